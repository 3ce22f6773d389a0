"""Computer tools of other APIs as functions: their descriptions for the model, and its calls checked on the way back."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

NAME = "computer"
"""The name of the function that stands for a computer tool."""
OPENAI_TYPES = ("computer", "computer_use_preview")
ANTHROPIC_TYPES = ("computer_20241022", "computer_20250124", "computer_20251124")
_MOST_ACTIONS = 100
_FARTHEST = 1_000_000
"""The largest coordinate or distance."""


def _is_number(value: Any) -> bool:
    return type(value) in {int, float} and -_FARTHEST <= value <= _FARTHEST


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _is_path(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(point, dict) and _is_number(point.get("x")) and _is_number(point.get("y")) for point in value
    )


_NUMBER = {"type": "integer"}
_TEXTS = {"type": "array", "items": {"type": "string"}}
_POINTS = {
    "type": "array",
    "items": {"type": "object", "properties": {"x": _NUMBER, "y": _NUMBER}, "required": ["x", "y"]},
}
_BUTTON = {"type": "string", "enum": ["left", "right", "wheel", "back", "forward"]}
_FIELDS: Mapping[str, tuple[Mapping[str, Any], Callable[[Any], bool]]] = {
    "x": (_NUMBER, _is_number),
    "y": (_NUMBER, _is_number),
    "scroll_x": (_NUMBER, _is_number),
    "scroll_y": (_NUMBER, _is_number),
    "button": (_BUTTON, lambda value: _is_text(value) and value in _BUTTON["enum"]),
    "keys": (_TEXTS, _are_texts),
    "path": (_POINTS, _is_path),
    "text": ({"type": "string"}, _is_text),
}
_ACTIONS: Mapping[str, tuple[str, ...]] = {
    "click": ("button", "x", "y"),
    "double_click": ("x", "y"),
    "drag": ("path",),
    "keypress": ("keys",),
    "move": ("x", "y"),
    "screenshot": (),
    "scroll": ("x", "y", "scroll_x", "scroll_y"),
    "type": ("text",),
    "wait": (),
}
"""Each action of OpenAI's computer tools, and the fields that it must have."""


def openai_computer(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the parameters and the description of OpenAI's computer tool, as fields of a function."""
    action = {
        "type": "object",
        "properties": {
            "type": {"type": "string", "enum": list(_ACTIONS)},
            **{name: dict(schema) for name, (schema, _) in _FIELDS.items()},
        },
        "required": ["type"],
    }
    if tool["type"] == "computer":
        properties: dict[str, Any] = {"actions": {"type": "array", "items": action, "minItems": 1}}
    else:
        properties = {"action": action}
    fields = "; ".join(f"{name}: {', '.join(needed) or 'nothing else'}" for name, needed in _ACTIONS.items())
    description = f"Acts on the computer and returns a screenshot of it.{_size(tool, '')} Fields by type: {fields}."
    return {
        "description": description,
        "parameters": {"type": "object", "properties": properties, "required": list(properties)},
    }


def openai_actions(tool_type: str, arguments: str) -> dict[str, Any] | None:
    """Returns the ``action`` or ``actions`` of a call by the model; None if the arguments are no such call."""
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return None
    name = "actions" if tool_type == "computer" else "action"
    if not isinstance(value, dict) or set(value) != {name}:
        return None
    actions = value[name] if name == "actions" else [value[name]]
    if not isinstance(actions, list) or not 0 < len(actions) <= _MOST_ACTIONS:
        return None
    return value if all(map(_is_action, actions)) else None


def _is_action(action: Any) -> bool:
    if not isinstance(action, dict) or not isinstance(action.get("type"), str) or action["type"] not in _ACTIONS:
        return False
    if not all(name in action for name in _ACTIONS[action["type"]]):
        return False
    others = {name: value for name, value in action.items() if name != "type"}
    return all(name in _FIELDS and _FIELDS[name][1](value) for name, value in others.items())


_OLDEST = ("key", "type", "mouse_move", "left_click", "left_click_drag", "right_click", "middle_click", "double_click")
_OLDEST_VIEWS = ("screenshot", "cursor_position")
_SINCE_2025 = ("left_mouse_down", "left_mouse_up", "scroll", "hold_key", "wait", "triple_click")
_POINT = {"type": "array", "items": _NUMBER, "minItems": 2, "maxItems": 2}


def anthropic_computer(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the parameters and the description of Anthropic's computer tool, as fields of a function."""
    actions = [*_OLDEST, *_OLDEST_VIEWS]
    properties: dict[str, Any] = {"coordinate": _POINT, "text": {"type": "string"}}
    if tool["type"] != "computer_20241022":
        actions += _SINCE_2025
        properties |= {
            "start_coordinate": _POINT,
            "scroll_direction": {"type": "string", "enum": ["up", "down", "left", "right"]},
            "scroll_amount": _NUMBER,
            "duration": {"type": "number"},
        }
    if tool.get("enable_zoom"):
        actions.append("zoom")
        properties["region"] = {"type": "array", "items": _NUMBER, "minItems": 4, "maxItems": 4}
    described = f"Acts on the computer and returns its result.{_size(tool, '_px')} Coordinates are [x, y] in pixels."
    return {
        "description": described,
        "parameters": {
            "type": "object",
            "properties": {"action": {"type": "string", "enum": actions}, **properties},
            "required": ["action"],
        },
    }


def _size(tool: Mapping[str, Any], unit: str) -> str:
    width, height = tool.get(f"display_width{unit}"), tool.get(f"display_height{unit}")
    if not _is_number(width) or not _is_number(height):
        return ""
    system = tool.get("environment")
    return f" Its screen has {width} x {height} pixels." + (f" It runs {system}." if isinstance(system, str) else "")
