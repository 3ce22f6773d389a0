"""Operations become calls that the environment's action space takes, and do what they say."""

from __future__ import annotations

import json

import pytest

from rollout_tasks.agents.profiles.actions import (
    Click,
    Done,
    Drag,
    Fail,
    HoldKeys,
    KeyDown,
    KeyUp,
    MouseDown,
    MouseUp,
    Move,
    Operation,
    PointerPosition,
    Press,
    Screenshot,
    Scroll,
    Type,
    Wait,
    Zoom,
)
from rollout_tasks.agents.profiles.pyautogui_code import tool_call
from rollout_tasks.agents.tool_calls import ToolCallReader
from rollout_tasks.environments.osworld.action_spaces import pyautogui
from rollout_tasks.environments.osworld.action_spaces.base import View
from rollout_tasks.models.base import RawToolCall
from tests.unit.agents.profiles.recorded_pyautogui import START, Event, recorded

VIEW = View((1920, 1080))
READER = ToolCallReader(pyautogui.tools(VIEW))


def keys(*moves: str) -> list[Event]:
    """``+shift`` goes down, ``-shift`` goes up."""
    return [("key down" if move[0] == "+" else "key up", move[1:]) for move in moves]


@pytest.mark.parametrize(
    ("operation", "events", "pointer"),
    [
        (Move((5, 6)), [], (5, 6)),
        (Click((5, 6)), [("down", "left", (5, 6)), ("up", "left", (5, 6))], (5, 6)),
        (Click(button="right", count=2), [("down", "right", START), ("up", "right", START)] * 2, START),
        (
            Click((5, 6), held=("ctrl", "shift")),
            [*keys("+ctrl", "+shift"), ("down", "left", (5, 6)), ("up", "left", (5, 6)), *keys("-shift", "-ctrl")],
            (5, 6),
        ),
        (MouseDown((5, 6), "middle"), [("down", "middle", (5, 6))], (5, 6)),
        (MouseUp(), [("up", "left", START)], START),
        (Drag(((5, 6),)), [("down", "left", START), ("up", "left", (5, 6))], (5, 6)),
        (Drag(((5, 6),), (1, 2), "right"), [("down", "right", (1, 2)), ("up", "right", (5, 6))], (5, 6)),
        (
            Drag(((5, 6), (7, 8)), (1, 2), held=("alt",)),
            [*keys("+alt"), ("down", "left", (1, 2)), ("up", "left", (7, 8)), *keys("-alt")],
            (7, 8),
        ),
        (Scroll(dy=-5), [("vertical", -5, START)], START),
        (
            Scroll(dx=2, dy=3, at=(5, 6), held=("ctrl",)),
            [*keys("+ctrl"), ("horizontal", 2, (5, 6)), ("vertical", 3, (5, 6)), *keys("-ctrl")],
            (5, 6),
        ),
        (Type("a'\n"), keys("+a", "-a", "+'", "-'", "+enter", "-enter"), START),
        (Press(("enter",), 2), keys("+enter", "-enter", "+enter", "-enter"), START),
        (Press(("ctrl", "s")), keys("+ctrl", "+s", "-s", "-ctrl"), START),
        (HoldKeys(("ctrl", "a"), 2.0), keys("+ctrl", "+a", "-a", "-ctrl"), START),
        (KeyDown("shift"), keys("+shift"), START),
        (KeyUp("shift"), keys("-shift"), START),
    ],
)
def test_an_operation_does_what_it_says(operation: Operation, events: list[Event], pointer: tuple[int, int]) -> None:
    call = tool_call(operation, "call_1")

    assert recorded(call.arguments["script"]) == [*events, ("pointer", pointer)]


@pytest.mark.parametrize(
    ("operation", "action", "pause", "ends"),
    [
        (Wait(), "WAIT", None, None),
        (Wait(2.5), "WAIT", 2.5, None),
        (Screenshot(), "WAIT", 0, None),
        (Zoom((0, 0), (5, 5)), "WAIT", 0, None),
        (Done("42"), "DONE", None, "done"),
        (Fail("no"), "FAIL", None, "fail"),
        (PointerPosition(), "print(*pyautogui.position())", None, None),
        (HoldKeys(("a",), 2.0), "pyautogui.keyDown('a')\ntime.sleep(2.0)\npyautogui.keyUp('a')", None, None),
        (Type("WAIT"), "pyautogui.typewrite('WAIT')", None, None),
    ],
)
def test_the_action_space_takes_the_call(
    operation: Operation, action: str, pause: float | None, ends: str | None
) -> None:
    call = tool_call(operation, "call_1")
    checked = READER.read(RawToolCall(call.id, call.name, json.dumps(dict(call.arguments))), cut_off=False)

    planned = pyautogui.plan(checked, VIEW)

    assert (planned.action, planned.pause, planned.ends) == (action, pause, ends)
