"""Replies with Qwen's ``<tool_call>``: what each becomes, or why it cannot be used."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rollout_tasks.agents.profiles.actions import (
    Action,
    Answer,
    Click,
    Done,
    Drag,
    Fail,
    Move,
    Press,
    Scroll,
    Type,
    Wait,
)
from rollout_tasks.agents.profiles.coordinates import Coordinates
from rollout_tasks.agents.profiles.qwen import GRID, parse
from rollout_tasks.agents.profiles.reply import UnusableReplyError

SCREEN = (1920, 1080)
ON_GRID = Coordinates(SCREEN, GRID)
IN_PICTURE = Coordinates(SCREEN, (1932, 1092))
MIDDLE = (960, 540)


def call(**arguments: Any) -> str:
    return "<tool_call>\n" + json.dumps({"name": "computer_use", "arguments": arguments}) + "\n</tool_call>"


@pytest.mark.parametrize(
    ("arguments", "action"),
    [
        ({"action": "left_click", "coordinate": [500, 500]}, Click(MIDDLE)),
        ({"action": "left_click", "coordinate": "[500, 500]"}, Click(MIDDLE)),
        ({"action": "left_click", "coordinate": "500, 500"}, Click(MIDDLE)),
        ({"action": "left_click", "coordinate": [1000, 1000]}, Click((1919, 1079))),
        ({"action": "left_click"}, Click()),
        ({"action": "right_click", "coordinate": [0, 0]}, Click((0, 0), "right")),
        ({"action": "middle_click", "coordinate": [0, 0]}, Click((0, 0), "middle")),
        ({"action": "double_click", "coordinate": [0.5, 999]}, Click((0, 1079), count=2)),
        ({"action": "triple_click", "coordinate": [500, 500]}, Click(MIDDLE, count=3)),
        ({"action": "mouse_move", "coordinate": [500, 500]}, Move(MIDDLE)),
        ({"action": "left_click_drag", "coordinate": [500, 500]}, Drag((MIDDLE,))),
        ({"action": "left_click_drag", "coordinate": [500, 500], "start_coordinate": [0, 0]}, Drag((MIDDLE,), (0, 0))),
        ({"action": "type", "text": 'it\'s "x"\n'}, Type('it\'s "x"\n')),
        ({"action": "key", "keys": ["enter"]}, Press(("enter",))),
        ({"action": "key", "keys": ["Ctrl", "C"]}, Press(("ctrl", "c"))),
        ({"action": "key", "keys": ["ctrl+c"]}, Press(("ctrl", "c"))),
        ({"action": "key", "keys": "ctrl+c"}, Press(("ctrl", "c"))),
        ({"action": "key", "keys": '["ctrl", "c"]'}, Press(("ctrl", "c"))),
        ({"action": "key", "keys": ["keys=['ctrl'", "'c']"]}, Press(("ctrl", "c"))),
        ({"action": "key", "keys": ["keys=[ctrl", "c]"]}, Press(("ctrl", "c"))),
        ({"action": "key", "keys": ["[", "]"]}, Press(("[", "]"))),
        ({"action": "key", "keys": ["ctrl", 5]}, Press(("ctrl", "5"))),
        ({"action": "key", "keys": "5"}, Press(("5",))),
        ({"action": "scroll", "pixels": -5}, Scroll(dy=-5)),
        ({"action": "scroll", "pixels": "3", "coordinate": [500, 500]}, Scroll(dy=3, at=MIDDLE)),
        ({"action": "scroll", "pixels": -99999999}, Scroll(dy=-1000)),
        ({"action": "hscroll", "pixels": 2.9}, Scroll(dx=2)),
        ({"action": "wait", "time": 3}, Wait(3.0)),
        ({"action": "wait", "time": 10**90}, Wait(100.0)),
        ({"action": "wait"}, Wait()),
        ({"action": "terminate", "status": "success"}, Done()),
        ({"action": "terminate", "status": "failure"}, Fail()),
        ({"action": "terminate"}, Done()),
        ({"action": "terminate", "status": "Success", "text": "42"}, Done("42")),
        ({"action": "answer", "text": "42"}, Answer("42")),
        ({"action": "type", "text": 2024}, Type("2024")),
        ({"action": "type", "text": -1.5}, Type("-1.5")),
        ({"action": "answer", "text": 42}, Answer("42")),
        ({"action": "answer", "text": 0}, Answer("0")),
        ({"action": "terminate", "status": "success", "text": 42}, Done("42")),
    ],
)
def test_each_action(arguments: dict[str, Any], action: Action) -> None:
    assert parse(call(**arguments), ON_GRID).actions == (action,)


CLICK = '{"name": "computer_use", "arguments": {"action": "left_click", "coordinate": [966, 546]}}'
TEXT = r'{"name": "computer_use", "arguments": {"action": "type", "text": "<a>\n"}}'
SPREAD = CLICK.replace(", ", ",\n  ")


@pytest.mark.parametrize(
    ("reply", "actions"),
    [
        (f"<tool_call>\n{CLICK}\n</tool_call>", [Click(MIDDLE)]),
        (f"<tool_call>{CLICK}</tool_call>", [Click(MIDDLE)]),
        (f"<tool_call>\n{SPREAD}\n</tool_call>", [Click(MIDDLE)]),
        (f"<tool_call>\n{CLICK}", [Click(MIDDLE)]),
        (f"{CLICK}\n</tool_call>", [Click(MIDDLE)]),
        (f"  {CLICK}  ", [Click(MIDDLE)]),
        (f"⚗\n{CLICK}\n⚗", [Click(MIDDLE)]),
        (f"📐\n{CLICK}\n</tool_call>", [Click(MIDDLE)]),
        (f"<tool_call></tool_call>\n<tool_call>\n{CLICK}\n</tool_call>", [Click(MIDDLE)]),
        (f"<tool_call>\n{CLICK}\n</tool_call>\n<tool_call>\n{TEXT}\n</tool_call>", [Click(MIDDLE), Type("<a>\n")]),
        (f"{CLICK}\n{TEXT}", [Click(MIDDLE), Type("<a>\n")]),
        (
            json.dumps({"name": "computer_use", "arguments": json.dumps({"action": "wait"})}),
            [Wait()],
        ),
        (
            "<tool_call>\n<function=computer_use>\n<parameter=action>\nleft_click\n</parameter>\n"
            "<parameter=coordinate>\n[966, 546]\n</parameter>\n</function>\n</tool_call>",
            [Click(MIDDLE)],
        ),
        (
            "<function=computer_use><parameter=action>type</parameter><parameter=text>\n 5 \n\n</parameter></function>",
            [Type(" 5 \n")],
        ),
        (
            "<tool_call>\n<function=computer_use>\n<parameter=action>key</parameter>\n"
            '<parameter=keys>["ctrl", "s"]</parameter>\n<function=computer_use>\n<parameter=action>wait</parameter>'
            "<parameter=time>2</parameter>",
            [Press(("ctrl", "s")), Wait(2.0)],
        ),
    ],
)
def test_each_spelling_of_a_call(reply: str, actions: list[Action]) -> None:
    read = parse(f"<think>\nA <tool_call>?\n</think>\nAction: Click it.\n{reply}", IN_PICTURE)

    assert list(read.actions) == actions
    assert read.thought == "Action: Click it."


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ("", "no action"),
        ("The task is complete.", "no action"),
        ("<think>\nIs it done?\n" + call(action="terminate", status="success"), "</think> is missing"),
        (call(action="type", text="a" * 10_001), "text of type has more than 10000 characters"),
        ("{not JSON}", "no action"),
        ('{"a": 1}', "no action"),
        ("<tool_call>\nclick\n</tool_call>", "not JSON, or is cut off"),
        ('<tool_call>\n{"name": "computer_use", "arguments": {"action": "left_cl', "not JSON, or is cut off"),
        ('<tool_call>{"name": "computer_use", "arguments": {"action": "wait", "time": NaN}}</tool_call>', "not JSON"),
        ("<tool_call>" + "[" * 100_000 + "</tool_call>", "not JSON"),
        ("<tool_call>[]</tool_call>", "tool call is not an object"),
        ('<tool_call>{"name": "computer_use"}</tool_call>', "arguments of the tool call is not an object"),
        (
            '<tool_call>{"name": "computer_use", "arguments": []}</tool_call>',
            "arguments of the tool call is not an object",
        ),
        ('<tool_call>{"name": "bash", "arguments": {"command": "ls"}}</tool_call>', "tool 'bash' is unknown"),
        ('<tool_call>{"arguments": {"action": "wait"}}</tool_call>', "tool a NoneType is unknown"),
        ("<function=bash><parameter=a>b</parameter></function>", "tool 'bash' is unknown"),
        ("<function=computer_use", "cut off in the name"),
        ("<function=computer_use><parameter=action>wait", "parameter 'action' of a tool call does not end"),
        (call(), "action a NoneType is unknown"),
        (call(action="explode"), "action 'explode' is unknown"),
        (call(action=["left_click"]), "action a list is unknown"),
        (call(action="left_click", coordinate=[500]), "not a pair of numbers"),
        (call(action="left_click", coordinate={"x": 1, "y": 2}), "not a pair of numbers"),
        (call(action="left_click", coordinate=[1, 2, 3, 4]), "not a pair of numbers"),
        (call(action="left_click", coordinate=[1900, 2]), r"\(1900, 2\) is outside the picture of 999x999"),
        (call(action="left_click", coordinate=[-10, 2]), "outside the picture"),
        (call(action="left_click", coordinate=["x", 2]), "outside the picture"),
        (call(action="left_click", coordinate=[10**99, 2]), "outside the picture"),
        (call(action="left_click", coordinate="the button"), "not a pair of numbers"),
        (call(action="mouse_move"), "coordinate of mouse_move is missing"),
        (call(action="left_click_drag"), "coordinate of left_click_drag is missing"),
        (call(action="type"), "text of type is missing"),
        (call(action="type", text=True), "text of type is not text"),
        (call(action="type", text=["5"]), "text of type is not text"),
        (call(action="answer", text=True), "text of answer is not text"),
        (call(action="terminate", text=False), "text of terminate is not text"),
        (call(action="key"), "keys of key are missing"),
        (call(action="key", keys=[]), "keys are missing"),
        (call(action="key", keys=["hyper"]), "key 'hyper' is unknown"),
        (call(action="key", keys=[["ctrl"]]), "key a list is unknown"),
        (call(action="key", keys=True), "keys a bool are unknown"),
        (call(action="scroll"), "pixels of scroll is not a number"),
        (call(action="scroll", pixels=0), "pixels of scroll are 0"),
        (call(action="wait", time=-1), "time of wait is outside"),
        (call(action="terminate", status="perhaps"), "success or failure, and not 'perhaps'"),
    ],
)
def test_a_reply_that_cannot_be_used_says_why(reply: str, said: str) -> None:
    with pytest.raises(UnusableReplyError, match=said) as caught:
        parse(reply, ON_GRID)

    assert len(str(caught.value)) < 200


DONE = '{"name": "computer_use", "arguments": {"action": "terminate", "status": "success"}}'


@pytest.mark.parametrize(
    "reply",
    [
        f"Not yet:\n{DONE}\n<tool_call>\n{CLICK}\n</tool_call>",
        f"<tool_call>\n{CLICK}\n</tool_call>\nLater:\n{DONE}",
        f"Not yet: <function=computer_use>\n<tool_call>\n{CLICK}\n</tool_call>",
    ],
)
def test_what_stands_outside_of_tags_is_no_call(reply: str) -> None:
    assert parse(reply, IN_PICTURE).actions == (Click(MIDDLE),)


@pytest.mark.parametrize("reply", [DONE, f"{DONE}\n</tool_call>"])
def test_without_an_opening_tag_it_is(reply: str) -> None:
    assert parse(reply, ON_GRID).actions == (Done(),)


def test_an_end_without_a_status_is_done_as_for_the_official_agents() -> None:
    assert parse(call(action="terminate"), ON_GRID).actions == (Done(),)
