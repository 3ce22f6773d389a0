"""Whatever a model says: its actions or a sentence, never anything else, nothing outside the screen, and not slowly."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rollout_tasks.agents.profiles import anthropic_computer, qwen, responses_computer, thought_action_code, ui_tars
from rollout_tasks.agents.profiles.actions import Answer, CallUser, Done, Fail
from rollout_tasks.agents.profiles.code_calls import LONGEST_CODE
from rollout_tasks.agents.profiles.coordinates import Coordinates, Rounding
from rollout_tasks.agents.profiles.pyautogui_code import tool_call
from rollout_tasks.agents.profiles.reply import MOST_ACTIONS, MOST_CHARACTERS, Parsed, UnusableReplyError

SCREEN = (1920, 1080)
Parse = Callable[[Any], Parsed]
GOOD_TEXT: dict[str, tuple[Callable[[str, Coordinates], Parsed], Coordinates, str]] = {
    "ui_tars": (
        ui_tars.parse,
        Coordinates(SCREEN, (1932, 1092), Rounding.THOUSANDTHS_DOWN),
        "<think>A</think>\nThought: B.\nAction: drag(start_box='<|box_start|>(100,200)<|box_end|>', end_box=(3,4))\n\n"
        "type(content='it's \\'x\\'\\n')\nscroll(point='<point>100 200</point>', direction='down')\n\nhotkey(key='ctrl c')",
    ),
    "qwen": (
        qwen.parse,
        Coordinates(SCREEN, qwen.GRID),
        'Action: B.\n<tool_call>\n{"name": "computer_use", "arguments": {"action": "left_click", "coordinate": [100, 200]}}\n'
        "</tool_call>\n<tool_call>\n<function=computer_use>\n<parameter=action>\nkey\n</parameter>\n<parameter=keys>\n"
        '["ctrl", "c"]\n</parameter>\n</function>\n</tool_call>',
    ),
    "thought_action_code": (
        thought_action_code.parse,
        Coordinates(SCREEN, (1, 1), Rounding.NEAREST),
        "## Thought:\nA\n## Action:\nB\n## Code:\n```python\npyautogui.moveTo(0.1, y=0.25)\npyautogui.dragTo(x=0.5, y=-0.0)\n"
        "pyautogui.press(['a', 'b'], presses=2)\npyautogui.write('abc')\ntime.sleep(1.5)\n```",
    ),
}
GOOD_JSON: dict[str, tuple[Callable[[Any, Coordinates], Parsed], Any]] = {
    "anthropic_computer": (
        anthropic_computer.parse,
        {
            "content": [
                {"type": "text", "text": "A"},
                {
                    "type": "tool_use",
                    "id": "a",
                    "name": "computer",
                    "input": {"action": "left_click_drag", "coordinate": [5, 6]},
                },
                {"type": "tool_use", "id": "b", "name": "computer", "input": {"action": "key", "text": "ctrl+c"}},
            ],
            "stop_reason": "tool_use",
        },
    ),
    "responses_computer": (
        responses_computer.parse,
        {
            "status": "completed",
            "output": [
                {"type": "reasoning", "summary": [{"type": "summary_text", "text": "A"}]},
                {
                    "type": "computer_call",
                    "call_id": "a",
                    "pending_safety_checks": [{"id": "s", "code": "c", "message": "m"}],
                    "actions": [
                        {"type": "drag", "path": [{"x": 5, "y": 6}, {"x": 7, "y": 8}]},
                        {"type": "scroll", "x": 5, "y": 6, "scroll_x": 0, "scroll_y": 3},
                        {"type": "keypress", "keys": ["CTRL", "C"]},
                    ],
                },
            ],
        },
    ),
}
ENDS = (Done, Fail, CallUser)


def inside(value: Any) -> Iterator[Any]:
    """Yields a value and everything in it."""
    yield value
    if isinstance(value, tuple):
        for one in value:
            yield from inside(one)
    elif is_dataclass(value):
        for field in fields(value):
            yield from inside(getattr(value, field.name))


def check(parse: Parse, reply: Any) -> None:
    refusal = ""
    try:
        read = parse(reply)
    except UnusableReplyError as error:
        refusal = str(error)
    if refusal:
        assert 10 < len(refusal) < 300
        assert refusal.endswith(".")
        return
    assert 1 <= len(read.actions) <= MOST_ACTIONS
    assert not any(isinstance(action, ENDS) for action in read.actions[:-1])
    for part in inside(read):
        if isinstance(part, str):
            part.encode()
        if isinstance(part, tuple) and len(part) == 2 and all(type(one) is int for one in part):
            assert 0 <= part[0] < SCREEN[0]
            assert 0 <= part[1] < SCREEN[1]
    for action in read.actions:
        if not isinstance(action, Answer | CallUser):
            json.dumps(dict(tool_call(action, "1").arguments), ensure_ascii=False, allow_nan=False).encode()


def text_parser(name: str) -> Parse:
    parse, coordinates, _ = GOOD_TEXT[name]
    return lambda reply: parse(reply, coordinates)


def json_parser(name: str) -> Parse:
    parse, _ = GOOD_JSON[name]
    return lambda reply: parse(reply, Coordinates(SCREEN, (1280, 720)))


PIECES = st.one_of(
    st.text(max_size=8),
    st.sampled_from(
        ["'", '"', "\\", "(", ")", "[", "]", "{", "}", ",", "\n\n", "```", "```python\n", "<tool_call>", "</tool_call>"]
    ),
    st.sampled_from(
        [
            "Action: ",
            "Thought:",
            "-",
            "9" * 30,
            "1e999",
            "nan",
            "NaN",
            "null",
            "true",
            "\0",
            "\ud800",
            "# ",
            "; ",
            "=",
            ".",
        ]
    ),
    st.sampled_from(
        [
            "click(",
            "wait()",
            "finished()",
            "type(content='",
            "<function=computer_use>",
            "<parameter=",
            "pyautogui.",
            "*",
        ]
    ),
)
CHANGES = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 12), PIECES), max_size=4)


def changed(text: str, changes: list[tuple[float, int, str]]) -> str:
    """Returns the text with pieces put in at some places, in place of some characters."""
    for share, removed, piece in changes:
        place = int(share * len(text))
        text = text[:place] + piece + text[place + removed :]
    return text


@pytest.mark.parametrize("name", GOOD_TEXT)
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(changes=CHANGES)
def test_a_changed_text(name: str, changes: list[tuple[float, int, str]]) -> None:
    check(text_parser(name), changed(GOOD_TEXT[name][2], changes))


@pytest.mark.parametrize("name", GOOD_TEXT)
@settings(max_examples=200, deadline=None)
@given(pieces=st.lists(PIECES, max_size=30))
def test_any_text(name: str, pieces: list[str]) -> None:
    check(text_parser(name), "".join(pieces))


VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.just(10**4000),
        st.floats(allow_nan=True, allow_infinity=True),
        st.text(max_size=5),
        st.sampled_from(
            [
                "click",
                "left_click",
                "key",
                "scroll",
                "type",
                "zoom",
                "wait",
                "drag",
                "up",
                "left",
                "tool_use",
                "computer",
            ]
        ),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=4), inner, max_size=3)),
    max_leaves=6,
)


def replaced(value: Any, chosen: list[int], new: Any) -> Any:
    """Returns the value with the part that the numbers lead to replaced."""
    if not chosen or not isinstance(value, list | dict) or not value:
        return new
    first, rest = chosen[0], chosen[1:]
    if isinstance(value, list):
        place = first % len(value)
        return [replaced(one, rest, new) if index == place else one for index, one in enumerate(value)]
    key = list(value)[first % len(value)]
    return {name: replaced(one, rest, new) if name == key else one for name, one in value.items()}


@pytest.mark.parametrize("name", GOOD_JSON)
@settings(max_examples=400, deadline=None)
@given(changes=st.lists(st.tuples(st.lists(st.integers(0, 9), max_size=6), VALUES), min_size=1, max_size=3))
def test_changed_json(name: str, changes: list[tuple[list[int], Any]]) -> None:
    value = GOOD_JSON[name][1]
    for chosen, new in changes:
        value = replaced(value, chosen, new)
    check(json_parser(name), value)


@pytest.mark.parametrize("name", GOOD_TEXT)
def test_the_good_texts_are_good(name: str) -> None:
    assert len(text_parser(name)(GOOD_TEXT[name][2]).actions) > 1


@pytest.mark.parametrize("name", GOOD_JSON)
def test_the_good_json_is_good(name: str) -> None:
    assert len(json_parser(name)(GOOD_JSON[name][1]).actions) > 1


LONG = [
    " ", "\n", "'", "\\", "\\'", "')", "') ", "')\n", "(", ")", "a", "9", "-", "Action:", "\nAction: ", "<tool_call>",
    "</tool_call>", "<tool_call>{}", "{", "[", '{"name"', '{"name": "arguments"}\n', "<function=computer_use>", "<parameter=a>",
    "</parameter>", "```", "``` ", "## Action:\n", "click(", "type(content='", "wait()\n", "wait( ", "\n\n", " = ", "<point>",
    "<|box_start|>", "⚗\n", "computer.wait()\n", "x=", "a.b", "not ", "lambda:", '"', "#", "[EOS]", "Thought:", "</think>", "+a",
    "=a ", "\ud800",
]  # fmt: skip
STARTS = [
    "",
    "Action: ",
    "Action: type(content='",
    "Action: click(start_box=",
    "<tool_call>",
    "<function=computer_use><parameter=a>",
    "```\n",
]


LENGTHS = [(name, MOST_CHARACTERS) for name in GOOD_TEXT] + [("thought_action_code", LONGEST_CODE - 10)]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "length"), LENGTHS)
def test_long_replies_take_no_longer_than_their_length(name: str, length: int) -> None:
    parse = text_parser(name)
    for start in STARTS:
        for piece in LONG:
            reply = (start + piece * length)[:length]
            began = time.process_time()
            check(parse, reply if start != "```\n" else reply[:-4] + "\n```")
            took = time.process_time() - began
            assert took < 1, (start, piece, took)


UNCLOSED: dict[str, tuple[str, str, str, str, str]] = {
    "calls whose quote is closed late": ("ui_tars", "Action: ", "click(start_box='\n", "", "\nAction: wait()\n', !"),
    "the other quote": ("ui_tars", "Action: ", 'click(start_box="\n', "", '\nAction: wait()\n", !'),
    "arguments before it": ("ui_tars", "Action: ", "drag(end_box=(1,2), x='\n", "", "\nAction: wait()\n', !"),
    "arguments after it": ("ui_tars", "Action: ", "click(x='\n", ",y=1", "!\nAction: wait()"),
    "blanks after it": ("ui_tars", "Action: ", "click(x='\n", " ", "!\nAction: wait()"),
    "texts that prose follows": ("ui_tars", "Action: ", "type(content='a')\nx\n", "", "\nAction: wait()"),
    "texts that a comment follows": ("ui_tars", "Action: ", "type(content='a'),\n", "Action: \n", ""),
    "JSON": ("qwen", "", '<tool_call>\n{"name": "\n', "", '"}\n</tool_call>'),
    "parameters": ("qwen", "<tool_call>\n", "<function=computer_use>\n<parameter=a>'\n", "", "'</tool_call>"),
    "code": ("thought_action_code", "```python\n", "pyautogui.write('\n", "", "')\n```"),
    "long texts in code": ("thought_action_code", "```python\n", "pyautogui.write('''\n", "", "''')\n```"),
}
"""A protocol, and how a reply begins, goes on in its first half and in its second, and ends."""


@pytest.mark.parametrize(("name", "start", "piece", "later", "end"), UNCLOSED.values(), ids=UNCLOSED)
def test_quotes_that_are_closed_late_or_never_take_no_longer(
    name: str, start: str, piece: str, later: str, end: str
) -> None:
    half = MOST_CHARACTERS // 2 - len(start + piece + later + end)
    reply = (
        start
        + piece * (half // len(piece))
        + "'," * bool(later)
        + (later or piece) * (half // len(later or piece))
        + end
    )
    began = time.process_time()

    check(text_parser(name), reply)

    assert time.process_time() - began < 3, "it takes minutes if the rest is read again for each piece"
