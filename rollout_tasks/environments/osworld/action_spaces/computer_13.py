"""OSWorld's own action space: one tool for each kind of mouse or keyboard action."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from rollout_tasks.environments.base import Tool, ToolCall
from rollout_tasks.environments.osworld.action_spaces.base import (
    CONTROL,
    CallRefused,
    Plan,
    View,
    control,
    place_of,
    pointing,
    tool,
)
from rollout_tasks.environments.osworld.keys import known_key, pressed_together

BUTTON: Mapping[str, Any] = {"type": "string", "enum": ["left", "right", "middle"]}
DOWN_OR_UP: Mapping[str, Any] = {"type": "string", "enum": ["down", "up"]}
KEY: Mapping[str, Any] = {
    "type": "string",
    "minLength": 1,
    "description": "A key's name: a character, or enter, tab, esc, backspace, delete, space, up, down, left, right, home, end,"
    " pageup, pagedown, ctrl, alt, shift, win, f1 to f12, ...",
}
CLICKS: Mapping[str, Any] = {"type": "integer", "minimum": 1, "maximum": 3}
NOTCHES: Mapping[str, Any] = {"type": "integer", "minimum": -100, "maximum": 100}


def tools(view: View) -> list[Tool]:
    """Returns the tools."""
    there = pointing(view, "Where to")
    here = pointing(view, "Where; leave it out for where the pointer is")
    place = ["x", "y"] if view.marks is None else None
    return [
        tool("desktop_mouse_move", "Moves the pointer.", there, place),
        tool(
            "desktop_mouse_click",
            "Clicks, by default once with the left button.",
            {**here, "button": BUTTON, "num_clicks": CLICKS},
        ),
        tool("desktop_mouse_right_click", "Clicks with the right button.", here),
        tool("desktop_mouse_double_click", "Double-clicks with the left button.", here),
        tool(
            "desktop_mouse_button",
            "Presses or releases a mouse button where the pointer is.",
            {"action": DOWN_OR_UP, "button": BUTTON},
            ["action"],
        ),
        tool("desktop_mouse_drag", "Drags with the left button from where the pointer is.", there, place),
        tool(
            "desktop_scroll",
            "Turns the wheel where the pointer is, by notches.",
            {
                "dx": {**NOTCHES, "description": "Positive goes right."},
                "dy": {**NOTCHES, "description": "Positive goes up, negative down."},
            },
        ),
        tool(
            "desktop_type",
            "Types text where the keyboard's focus is; a line break presses enter. Any script can be typed.",
            {"text": {"type": "string", "minLength": 1}},
            ["text"],
        ),
        tool("desktop_key_press", "Presses and releases a key.", {"key": KEY}, ["key"]),
        tool("desktop_key_hold", "Presses or releases a key.", {"action": DOWN_OR_UP, "key": KEY}, ["action", "key"]),
        tool(
            "desktop_hotkey",
            "Presses keys together, as in ['ctrl', 's'].",
            {"keys": {"type": "array", "items": KEY, "minItems": 1, "maxItems": 8}},
            ["keys"],
        ),
        CONTROL,
    ]


def plan(call: ToolCall, view: View) -> Plan:
    """Returns what a call becomes.

    Raises:
        CallRefused: It cannot be carried out.
    """
    if call.name == CONTROL.name:
        return control(call)
    action = _ACTIONS[call.name](call, view)
    return Plan(action, json.dumps(action, ensure_ascii=False), call.arguments.get("pause"))


def _click(call: ToolCall, view: View) -> dict[str, Any]:
    place = place_of(call, view, required=False)
    chosen = {name: call.arguments[name] for name in ("button", "num_clicks") if call.arguments.get(name) is not None}
    return {"action_type": "CLICK", **place, **chosen}


def _at(kind: str, *, required: bool) -> Callable[[ToolCall, View], dict[str, Any]]:
    return lambda call, view: {"action_type": kind, **place_of(call, view, required=required)}


def _button(call: ToolCall, _view: View) -> dict[str, Any]:
    kind = "MOUSE_DOWN" if call.arguments["action"] == "down" else "MOUSE_UP"
    return {"action_type": kind, "button": call.arguments.get("button") or "left"}


def _scroll(call: ToolCall, _view: View) -> dict[str, Any]:
    turns = {name: call.arguments[name] for name in ("dx", "dy") if call.arguments.get(name)}
    if not turns:
        raise CallRefused("dx or dy must be given, and not be 0")
    return {"action_type": "SCROLL", **turns}


def _press(call: ToolCall, view: View) -> dict[str, Any]:
    return {"action_type": "PRESS", "key": _key(call.arguments["key"], view)}


def _hold(call: ToolCall, view: View) -> dict[str, Any]:
    kind = "KEY_DOWN" if call.arguments["action"] == "down" else "KEY_UP"
    return {"action_type": kind, "key": _key(call.arguments["key"], view)}


def _hotkey(call: ToolCall, view: View) -> dict[str, Any]:
    return {"action_type": "HOTKEY", "keys": pressed_together(_key(name, view) for name in call.arguments["keys"])}


def _key(name: str, view: View) -> str:
    key = known_key(name, view.system)
    if key is None:
        raise CallRefused(f"unknown key {name[:40]!r}")
    return key


_ACTIONS: Mapping[str, Callable[[ToolCall, View], dict[str, Any]]] = {
    "desktop_mouse_move": _at("MOVE_TO", required=True),
    "desktop_mouse_click": _click,
    "desktop_mouse_right_click": _at("RIGHT_CLICK", required=False),
    "desktop_mouse_double_click": _at("DOUBLE_CLICK", required=False),
    "desktop_mouse_button": _button,
    "desktop_mouse_drag": _at("DRAG_TO", required=True),
    "desktop_scroll": _scroll,
    "desktop_type": lambda call, _view: {"action_type": "TYPING", "text": call.arguments["text"]},
    "desktop_key_press": _press,
    "desktop_key_hold": _hold,
    "desktop_hotkey": _hotkey,
}
