"""Responses with calls of the computer: what each becomes, or why it cannot be used."""

from __future__ import annotations

from typing import Any

import pytest

from rollout_tasks.agents.profiles.actions import (
    Action,
    Click,
    Done,
    Drag,
    Fail,
    Move,
    Press,
    Screenshot,
    Scroll,
    Type,
    Wait,
)
from rollout_tasks.agents.profiles.coordinates import Coordinates
from rollout_tasks.agents.profiles.reply import SafetyCheck, UnusableReplyError
from rollout_tasks.agents.profiles.responses_computer import parse

SCREEN = Coordinates((1920, 1080), (1920, 1080))


def call(*batch: Any, **fields: Any) -> dict[str, Any]:
    return {"type": "computer_call", "call_id": "call_1", "status": "completed", "actions": list(batch), **fields}


def one(**action: Any) -> dict[str, Any]:
    return {"type": "computer_call", "call_id": "call_1", "pending_safety_checks": [], "action": action}


def response(*items: Any, status: object = "completed") -> dict[str, Any]:
    return {"status": status, "output": list(items)}


def words(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


@pytest.mark.parametrize(
    ("action", "meant"),
    [
        ({"type": "click", "x": 5, "y": 6, "button": "left"}, Click((5, 6))),
        ({"type": "click", "x": 5, "y": 6}, Click((5, 6))),
        ({"type": "click", "x": 1920, "y": 6, "button": "right"}, Click((1919, 6), "right")),
        ({"type": "click", "x": 5, "y": 6.7, "button": "wheel"}, Click((5, 6), "middle")),
        ({"type": "click", "x": 5, "y": 6, "button": "left", "keys": ["CTRL"]}, Click((5, 6), held=("ctrl",))),
        ({"type": "double_click", "x": 5, "y": 6, "keys": None}, Click((5, 6), count=2)),
        ({"type": "drag", "path": [{"x": 1, "y": 2}, {"x": 3, "y": 4}]}, Drag(((3, 4),), (1, 2))),
        (
            {"type": "drag", "path": [[1, 2], [3, 4], [5, 6]], "keys": ["SHIFT"]},
            Drag(((3, 4), (5, 6)), (1, 2), held=("shift",)),
        ),
        ({"type": "keypress", "keys": ["CTRL", "A"]}, Press(("ctrl", "a"))),
        ({"type": "keypress", "keys": ["A"]}, Press(("a",))),
        ({"type": "keypress", "keys": ["ARROWDOWN"]}, Press(("down",))),
        ({"type": "keypress", "keys": ["CMD", "ALT", "Esc"]}, Press(("win", "alt", "esc"))),
        ({"type": "move", "x": 5, "y": 6}, Move((5, 6))),
        ({"type": "screenshot"}, Screenshot()),
        ({"type": "scroll", "x": 5, "y": 6, "scroll_x": 0, "scroll_y": 10}, Scroll(dy=-10, at=(5, 6))),
        ({"type": "scroll", "scroll_x": 3, "scroll_y": -2}, Scroll(dx=3, dy=2)),
        ({"type": "scroll", "x": 5, "y": 6, "scroll_y": 99999}, Scroll(dy=-1000, at=(5, 6))),
        ({"type": "type", "text": "it's\n"}, Type("it's\n")),
        ({"type": "type", "text": 2024}, Type("2024")),
        ({"type": "wait"}, Wait()),
        ({"type": "wait", "ms": 1500}, Wait(1.5)),
        ({"type": "wait", "ms": 10**9}, Wait(100.0)),
    ],
)
def test_each_action_alone_and_in_a_batch(action: dict[str, Any], meant: Action) -> None:
    assert parse(response(one(**action)), SCREEN).actions == (meant,)
    assert parse(response(call(action, {"type": "screenshot"})), SCREEN).actions == (meant, Screenshot())


def test_checks_are_kept_and_words_beside_a_call_do_not_end_the_episode() -> None:
    check = {"id": "sc_1", "code": "malicious_instructions", "message": "Look out."}
    thought = {
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": "I wait."}, {"type": "summary_text"}],
    }

    read = parse(
        response(thought, words("It is impossible to miss."), call({"type": "wait"}, pending_safety_checks=[check])),
        SCREEN,
    )

    assert read.actions == (Wait(),)
    assert [(kept.id, kept.actions, kept.safety_checks) for kept in read.calls] == [
        ("call_1", (Wait(),), (SafetyCheck("sc_1", "malicious_instructions", "Look out."),))
    ]


@pytest.mark.parametrize(
    ("text", "meant"),
    [("It is 42.", Done("It is 42.")), ("The task is INFEASIBLE.", Fail("The task is INFEASIBLE."))],
)
def test_a_response_without_a_call_is_the_final_answer(text: str, meant: Action) -> None:
    assert parse(response(words(text)), SCREEN).actions == (meant,)


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (None, "response is not an object"),
        ({}, "output of the response is not a list"),
        (response("text"), "item of the response is not an object"),
        (response(), "neither a call of the computer nor a final text"),
        (response(words("")), "neither a call"),
        (response({"type": "message", "content": [{"type": "refusal", "refusal": "No."}]}), "neither a call"),
        (response({"type": "message", "content": "text"}), "content of the message is not a list"),
        (response(words("I will"), status="incomplete"), "was cut off or has failed"),
        (response(call({"type": "wait"}), status="failed"), "was cut off or has failed"),
        (response(call({"type": "wait"}, status="incomplete")), "call of the computer was cut off"),
        (response({"type": "function_call", "name": "f", "call_id": "a"}), "call 'function_call' is unknown"),
        (response(call()), "no action"),
        (response(call({"type": "wait"}, call_id=None)), "call_id of the call is missing"),
        (response(call({"type": "wait"}, actions="wait")), "actions of the call is not a list"),
        (response(call("wait")), "action of the call is not an object"),
        (response({"type": "computer_call", "call_id": "a"}), "action of the call is not an object"),
        (response(call({"type": "wait"}, pending_safety_checks=[{}])), "id of a safety check is missing"),
        (response(call(*[{"type": "wait"}] * 101)), "more than 100 actions"),
        (response(one()), "action a NoneType is unknown"),
        (response(one(type="explode")), "action 'explode' is unknown"),
        (response(one(type=["click"])), "action a list is unknown"),
        (response(one(type="click")), "x and y of click are missing"),
        (response(one(type="click", x=5)), "x and y of click are missing"),
        (response(one(type="click", x="5", y=5)), "outside the picture"),
        (response(one(type="click", x=1930, y=5)), r"\(1930, 5\) is outside the picture of 1920x1080"),
        (response(one(type="click", x=float("nan"), y=5)), "outside the picture"),
        (response(one(type="click", x=5, y=5, button="back")), "button 'back' is unknown"),
        (response(one(type="click", x=5, y=5, button=3)), "button a int is unknown"),
        (response(one(type="click", x=5, y=5, keys="CTRL")), "keys of click is not a list"),
        (response(one(type="drag", path=[{"x": 1, "y": 2}])), "path of drag has 1 points"),
        (response(one(type="drag", path=[{"x": 1, "y": 2}] * 201)), "path of drag has 201 points"),
        (response(one(type="drag", path=[{"x": 1}, {"x": 1}])), "x and y of a point are missing"),
        (response(one(type="drag", path=[5, 6])), "point of the path is not an object"),
        (response(one(type="drag", path="1,2")), "path of drag is not a list"),
        (response(one(type="keypress", keys=[])), "keys are missing"),
        (response(one(type="keypress", keys=["HYPER"])), "key 'hyper' is unknown"),
        (response(one(type="keypress", keys="A")), "keys of keypress is not a list"),
        (response(one(type="scroll", x=5, y=5)), "scroll_x and scroll_y of scroll are 0"),
        (response(one(type="scroll", x=5, scroll_y=5)), "x and y of scroll are missing"),
        (response(one(type="scroll", scroll_y="5")), "scroll_y of scroll is not a number"),
        (response(one(type="type", text="")), "text of type is missing"),
        (response(one(type="wait", ms=-1)), "ms of wait is outside"),
        (response(one(type="wait", ms=float("nan"))), "ms of wait is outside"),
        (response(one(type="wait", ms=10**400)), "ms of wait is outside"),
    ],
)
def test_a_response_that_cannot_be_used_says_why(broken: Any, said: str) -> None:
    with pytest.raises(UnusableReplyError, match=said) as caught:
        parse(broken, SCREEN)

    assert len(str(caught.value)) < 200
