"""The actions of Claude's computer-use tool, as one tool with an ``action``."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from rollout_tasks.environments.base import Tool, ToolCall
from rollout_tasks.environments.osworld.action_spaces.base import (
    CONTROL,
    MARK,
    CallRefused,
    Plan,
    View,
    at_mark,
    control,
    on_screen,
    tool,
)
from rollout_tasks.environments.osworld.keys import known_combination, pressed_together

MAX_SECONDS = 100.0
"""For holding a key and waiting; commands in the guest may take no longer than two minutes."""
POINT: Mapping[str, Any] = {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2}
Parts = list[dict[str, Any]]


def tools(view: View) -> list[Tool]:
    """Returns the tools."""
    width, height = view.screen
    properties: dict[str, Any] = {
        "action": {"type": "string", "enum": sorted([*_ACTIONS, "screenshot", "wait"])},
        "coordinate": {**POINT, "description": f"[x, y] on the screen of {width}x{height} pixels."},
        "start_coordinate": {**POINT, "description": "Where left_click_drag begins."},
        "text": {
            "type": "string",
            "description": "What to type; for key and hold_key the keys, as in ctrl+s; for clicks and scroll keys to hold.",
        },
        "scroll_direction": {"type": "string", "enum": ["up", "down", "left", "right"]},
        "scroll_amount": {"type": "integer", "minimum": 0, "maximum": 100, "description": "Notches of the wheel."},
        "duration": {
            "type": "number",
            "minimum": 0,
            "maximum": MAX_SECONDS,
            "description": "Seconds, for hold_key and wait.",
        },
    }
    if view.marks is not None:
        properties["mark"] = MARK
    description = "Uses the mouse and the keyboard of the computer, or looks at its screen."
    return [tool("computer", description, properties, ["action"]), CONTROL]


def plan(call: ToolCall, view: View) -> Plan:
    """Returns what a call becomes.

    Raises:
        CallRefused: It cannot be carried out.
    """
    if call.name == CONTROL.name:
        return control(call)
    name, pause = str(call.arguments["action"]), call.arguments.get("pause")
    if name == "screenshot":
        return Plan(None, name, 0 if pause is None else pause)
    if name == "wait":
        return Plan("WAIT", name, call.arguments.get("duration", pause))
    parts = _ACTIONS[name](call.arguments, view)
    words = {key: value for key, value in call.arguments.items() if key not in {"action", "pause"}}
    said = f"{name} {json.dumps(words, ensure_ascii=False)}" if words else name
    return Plan(parts, said, pause, answers=name == "cursor_position")


def _point(
    arguments: Mapping[str, Any], view: View, name: str = "coordinate", *, required: bool = False
) -> dict[str, float]:
    if name == "coordinate" and arguments.get("mark") is not None:
        return dict(zip(("x", "y"), at_mark(arguments["mark"], view), strict=True))
    given = arguments.get(name)
    if given is None:
        if required:
            raise CallRefused(f"{name} is needed for {arguments['action']}")
        return {}
    return dict(zip(("x", "y"), on_screen(given[0], given[1], view), strict=True))


def _text(arguments: Mapping[str, Any]) -> str:
    if not arguments.get("text"):
        raise CallRefused(f"text is needed for {arguments['action']}")
    return str(arguments["text"])


def _keys(arguments: Mapping[str, Any], view: View) -> list[str]:
    keys = known_combination(_text(arguments), view.system)
    if keys is None:
        raise CallRefused(f"unknown key in {arguments['text'][:80]!r}")
    return pressed_together(keys)


def _held(arguments: Mapping[str, Any], view: View, inner: Parts) -> Parts:
    """Returns the parts, with the keys that ``text`` names held during them."""
    keys = _keys(arguments, view) if arguments.get("text") else []
    down: Parts = [{"action_type": "KEY_DOWN", "key": key} for key in keys]
    up: Parts = [{"action_type": "KEY_UP", "key": key} for key in reversed(keys)]
    return [*down, *inner, *up]


def _click(button: str, clicks: int) -> Callable[[Mapping[str, Any], View], Parts]:
    def parts(arguments: Mapping[str, Any], view: View) -> Parts:
        place = _point(arguments, view)
        return _held(arguments, view, [{"action_type": "CLICK", **place, "button": button, "num_clicks": clicks}])

    return parts


def _button(kind: str) -> Callable[[Mapping[str, Any], View], Parts]:
    def parts(arguments: Mapping[str, Any], view: View) -> Parts:
        place = _point(arguments, view)
        move: Parts = [{"action_type": "MOVE_TO", **place}] if place else []
        return [*move, {"action_type": kind, "button": "left"}]

    return parts


def _move(arguments: Mapping[str, Any], view: View) -> Parts:
    return [{"action_type": "MOVE_TO", **_point(arguments, view, required=True)}]


def _drag(arguments: Mapping[str, Any], view: View) -> Parts:
    start = _point(arguments, view, "start_coordinate")
    move: Parts = [{"action_type": "MOVE_TO", **start}] if start else []
    return [*move, {"action_type": "DRAG_TO", **_point(arguments, view, required=True)}]


def _scroll(arguments: Mapping[str, Any], view: View) -> Parts:
    direction, amount = arguments.get("scroll_direction"), arguments.get("scroll_amount", 3)
    if direction is None:
        raise CallRefused("scroll_direction is needed for scroll")
    turn = {"up": {"dy": amount}, "down": {"dy": -amount}, "left": {"dx": -amount}, "right": {"dx": amount}}[direction]
    return _held(arguments, view, [{"action_type": "SCROLL", **_point(arguments, view), **turn}])


def _hold_key(arguments: Mapping[str, Any], view: View) -> Parts:
    _text(arguments)
    return _held(arguments, view, [{"action_type": "SLEEP", "seconds": arguments.get("duration", 1)}])


_ACTIONS: Mapping[str, Callable[[Mapping[str, Any], View], Parts]] = {
    "cursor_position": lambda _arguments, _view: [{"action_type": "POSITION"}],
    "double_click": _click("left", 2),
    "hold_key": _hold_key,
    "key": lambda arguments, view: [{"action_type": "HOTKEY", "keys": _keys(arguments, view)}],
    "left_click": _click("left", 1),
    "left_click_drag": _drag,
    "left_mouse_down": _button("MOUSE_DOWN"),
    "left_mouse_up": _button("MOUSE_UP"),
    "middle_click": _click("middle", 1),
    "mouse_move": _move,
    "right_click": _click("right", 1),
    "scroll": _scroll,
    "triple_click": _click("left", 3),
    "type": lambda arguments, _view: [{"action_type": "TYPING", "text": _text(arguments)}],
}
