"""From operations to calls of the ``pyautogui`` action space, which `environment.execute` takes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, assert_never

from rollout_tasks.agents.profiles.actions import (
    Button,
    Click,
    Done,
    Drag,
    Fail,
    HoldKeys,
    KeyDown,
    Keys,
    KeyUp,
    MouseDown,
    MouseUp,
    Move,
    Operation,
    Point,
    PointerPosition,
    Press,
    Screenshot,
    Scroll,
    Type,
    Wait,
    Zoom,
)
from rollout_tasks.environments.base import ToolCall
from rollout_tasks.environments.osworld.action_spaces.base import CONTROL
from rollout_tasks.environments.osworld.action_spaces.pyautogui import SCRIPT
from rollout_tasks.environments.osworld.guest_python import script_for

OSWorldAction = dict[str, Any]
"""An action of OSWorld, as `guest_python` has them."""


def tool_call(operation: Operation, call_id: str) -> ToolCall:
    """Returns the call that carries out an operation.

    Looking at the screen is waiting for no time; the picture comes with the result, and what a zoom asks for is
    cut out of it later.
    """
    match operation:
        case Wait(seconds):
            return _control(call_id, "wait", **({} if seconds is None else {"pause": seconds}))
        case Screenshot() | Zoom():
            return _control(call_id, "wait", pause=0)
        case Done():
            return _control(call_id, "done")
        case Fail():
            return _control(call_id, "fail")
        case _:
            return ToolCall(call_id, SCRIPT.name, {"script": script_for(_osworld_actions(operation))})


def _control(call_id: str, action: str, **pause: float) -> ToolCall:
    return ToolCall(call_id, CONTROL.name, {"action": action, **pause})


_Input = (
    Move | Click | MouseDown | MouseUp | Drag | Scroll | Type | Press | HoldKeys | KeyDown | KeyUp | PointerPosition
)


def _osworld_actions(operation: _Input) -> list[OSWorldAction]:
    match operation:
        case Move(to):
            return [_at("MOVE_TO", to)]
        case Click(at, button, count, held):
            return _holding(held, [{**_at("CLICK", at), "button": button, "num_clicks": count}])
        case MouseDown(at, button):
            return [*_move(at), {"action_type": "MOUSE_DOWN", "button": button}]
        case MouseUp(at, button):
            return [*_move(at), {"action_type": "MOUSE_UP", "button": button}]
        case Drag(path, start, button, held):
            return _holding(held, [*_move(start), *_drag(path, button)])
        case Scroll(dx, dy, at, held):
            return _holding(held, [{**_at("SCROLL", at), "dx": dx, "dy": dy}])
        case Type(text):
            return [{"action_type": "TYPING", "text": text}]
        case Press(keys, times):
            return [_press(keys)] * times
        case HoldKeys(keys, seconds):
            return _holding(keys, [{"action_type": "SLEEP", "seconds": seconds}])
        case KeyDown(key):
            return [{"action_type": "KEY_DOWN", "key": key}]
        case KeyUp(key):
            return [{"action_type": "KEY_UP", "key": key}]
        case PointerPosition():
            return [{"action_type": "POSITION"}]
        case _:
            assert_never(operation)


def _at(kind: str, place: Point | None) -> OSWorldAction:
    return {"action_type": kind} if place is None else {"action_type": kind, "x": place[0], "y": place[1]}


def _move(place: Point | None) -> list[OSWorldAction]:
    return [] if place is None else [_at("MOVE_TO", place)]


def _drag(path: tuple[Point, ...], button: Button) -> Iterable[OSWorldAction]:
    """Yields one drag to one place; along a path, the button stays down from the first place to the last."""
    if len(path) == 1:
        yield {**_at("DRAG_TO", path[0]), "button": button}
        return
    yield {"action_type": "MOUSE_DOWN", "button": button}
    yield from (_at("MOVE_TO", place) for place in path)
    yield {"action_type": "MOUSE_UP", "button": button}


def _press(keys: Keys) -> OSWorldAction:
    return {"action_type": "PRESS", "key": keys[0]} if len(keys) == 1 else {"action_type": "HOTKEY", "keys": list(keys)}


def _holding(keys: Keys, inner: list[OSWorldAction]) -> list[OSWorldAction]:
    """Returns the actions, with keys held down during them."""
    down = [{"action_type": "KEY_DOWN", "key": key} for key in keys]
    up = [{"action_type": "KEY_UP", "key": key} for key in reversed(keys)]
    return [*down, *inner, *up]
