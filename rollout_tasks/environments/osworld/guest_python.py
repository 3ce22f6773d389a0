"""OSWorld's actions as Python for the guest, where `pyautogui` and `time` are already imported.

An action is one of OSWorld's: ``{"action_type": "CLICK", "x": 1, "y": 2}``, a list of those, or the text of a script;
``WAIT``, ``DONE`` and ``FAIL`` have no command. Values are written with `repr`, so no text of a model becomes code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rollout_tasks.environments.osworld import text_input

Action = str | dict[str, Any] | list[dict[str, Any]]
SPECIAL = frozenset({"WAIT", "DONE", "FAIL"})

DRAG_SECONDS = 0.5
"""Some programs take a drag without movement on the way for a click."""


def _point(action: Mapping[str, Any]) -> str:
    return f"{action['x']!r}, {action['y']!r}" if "x" in action else ""


def _click(action: Mapping[str, Any]) -> str:
    place = f"x={action['x']!r}, y={action['y']!r}, " if "x" in action else ""
    return f"pyautogui.click({place}clicks={action.get('num_clicks', 1)!r}, button={action.get('button', 'left')!r})"


def _scroll(action: Mapping[str, Any]) -> str:
    parts = [f"pyautogui.moveTo({_point(action)})"] if "x" in action else []
    parts += [f"pyautogui.hscroll({action['dx']!r})"] if action.get("dx") else []
    parts += [f"pyautogui.vscroll({action['dy']!r})"] if action.get("dy") else []
    return "; ".join(parts) or "pass"


def _pressed(key: str) -> tuple[str, ...]:
    """Returns the keys to press for a key: pyautogui would press shift and the '<' key for '<', which types '>'."""
    return ("shift", ",") if key == "<" else (key,)


def _hotkey(keys: Sequence[str]) -> str:
    return f"pyautogui.hotkey({', '.join(repr(pressed) for key in keys for pressed in _pressed(key))})"


def _press(key: str) -> str:
    return _hotkey([key]) if len(_pressed(key)) > 1 else f"pyautogui.press({key!r})"


def _key_down(key: str) -> str:
    return "; ".join(f"pyautogui.keyDown({pressed!r})" for pressed in _pressed(key))


def _key_up(key: str) -> str:
    return "; ".join(f"pyautogui.keyUp({pressed!r})" for pressed in reversed(_pressed(key)))


_COMMANDS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "MOVE_TO": lambda action: f"pyautogui.moveTo({_point(action)})",
    "CLICK": _click,
    "RIGHT_CLICK": lambda action: f"pyautogui.rightClick({_point(action)})",
    "DOUBLE_CLICK": lambda action: f"pyautogui.doubleClick({_point(action)})",
    "MOUSE_DOWN": lambda action: f"pyautogui.mouseDown(button={action.get('button', 'left')!r})",
    "MOUSE_UP": lambda action: f"pyautogui.mouseUp(button={action.get('button', 'left')!r})",
    "DRAG_TO": lambda action: (
        f"pyautogui.dragTo({_point(action)}, duration={DRAG_SECONDS}, button={action.get('button', 'left')!r})"
    ),
    "SCROLL": _scroll,
    "TYPING": lambda action: f"pyautogui.typewrite({action['text']!r})",
    "PRESS": lambda action: _press(action["key"]),
    "KEY_DOWN": lambda action: _key_down(action["key"]),
    "KEY_UP": lambda action: _key_up(action["key"]),
    "SLEEP": lambda action: f"time.sleep({action['seconds']!r})",
    "POSITION": lambda _action: "print(*pyautogui.position())",
    "HOTKEY": lambda action: _hotkey(action["keys"]),
}


def command_for(action: Action) -> str:
    """Returns the Python that carries out an action, to be put after desktop-env's own imports."""
    if isinstance(action, str):
        return f"\n{text_input.SOURCE}{action}"
    parts = [action] if isinstance(action, dict) else action
    source = text_input.SOURCE if any(part["action_type"] == "TYPING" for part in parts) else ""
    return "\n" + source + script_for(parts)


def script_for(parts: Sequence[Mapping[str, Any]]) -> str:
    """Returns the Python of several actions as a script: an action itself, for which `command_for` adds the typing."""
    return "\n".join(_COMMANDS[part["action_type"]](part) for part in parts)
