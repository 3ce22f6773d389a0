"""The computer tool of the Responses API: ``computer_call`` items with one ``action``, or with a batch of ``actions``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rollout_tasks.agents.profiles.actions import (
    Action,
    Button,
    Click,
    Done,
    Drag,
    Fail,
    Keys,
    Move,
    Point,
    Press,
    Screenshot,
    Scroll,
    Type,
    Wait,
)
from rollout_tasks.agents.profiles.coordinates import Coordinates
from rollout_tasks.agents.profiles.key_names import together
from rollout_tasks.agents.profiles.reply import (
    MOST_ACTIONS,
    ComputerCall,
    Parsed,
    SafetyCheck,
    UnusableReplyError,
    bounded,
    fields,
    notches,
    number,
    parsed_calls,
    seconds,
    shown,
    some_text,
    typed_text,
    written,
)

MOST_POINTS = 200
"""Of a path."""
INFEASIBLE = ("infeasible", "unfeasible", "impossible", "not feasible", "cannot be done")
"""Words of a final text that say that the task cannot be done, as the official agent has them."""
_BUTTONS: Mapping[str, Button] = {"left": "left", "right": "right", "middle": "middle", "wheel": "middle"}
Fields = Mapping[str, Any]


def parse(response: Mapping[str, Any], coordinates: Coordinates) -> Parsed:
    """Reads a response. One without a call is the final answer, if it was not cut off and has text.

    Args:
        response: The response as JSON, with ``output`` and ``status``.
        coordinates: Spans the picture that the model was sent; usually the screen.

    Raises:
        UnusableReplyError: It holds no action that can be carried out.
    """
    items = _list(fields(response, "response").get("output"), "output of the response")
    items = [fields(item, "item of the response") for item in items]
    calls = [item for item in items if str(item.get("type"))[:100].endswith("_call")]
    if response.get("status") not in (None, "completed"):
        raise UnusableReplyError("The response was cut off or has failed.")
    if calls:
        return parsed_calls(_call(item, coordinates) for item in calls)
    said = _text(items)
    if not said:
        raise UnusableReplyError("The response has neither a call of the computer nor a final text.")
    infeasible = any(word in said.lower() for word in INFEASIBLE)
    return Parsed((Fail(said) if infeasible else Done(said),))


def _list(value: object, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise UnusableReplyError(f"The {what} is not a list.")
    return value


def _text(items: list[Fields]) -> str:
    parts = [
        fields(part, "part of the message")
        for item in items
        if item.get("type") == "message"
        for part in _list(item.get("content") or [], "content of the message")
    ]
    texts = (bounded(part.get("text"), "text of the message") for part in parts if part.get("type") == "output_text")
    return bounded("\n\n".join(texts).strip(), "text of the message")


def _call(item: Fields, coordinates: Coordinates) -> ComputerCall:
    if item.get("type") != "computer_call":
        raise UnusableReplyError(f"The call {shown(item.get('type'))} is unknown; the only one is 'computer_call'.")
    if item.get("status") not in (None, "completed"):
        raise UnusableReplyError("The call of the computer was cut off.")
    batch = item.get("actions")
    actions = [item.get("action")] if batch is None else _list(batch, "actions of the call")
    if len(actions) > MOST_ACTIONS:
        raise UnusableReplyError(f"The reply has more than {MOST_ACTIONS} actions.")
    checks = _list(item.get("pending_safety_checks") or [], "pending_safety_checks of the call")
    return ComputerCall(
        some_text(item.get("call_id"), "call_id of the call"),
        tuple(_action(fields(action, "action of the call"), coordinates) for action in actions),
        tuple(_check(fields(check, "safety check")) for check in checks[:MOST_ACTIONS]),
    )


def _check(check: Fields) -> SafetyCheck:
    code, message = (bounded(check.get(name) or "", f"{name} of a safety check") for name in ("code", "message"))
    return SafetyCheck(some_text(check.get("id"), "id of a safety check"), code, message)


def _action(action: Fields, coordinates: Coordinates) -> Action:
    name = action.get("type")
    read = _ACTIONS.get(name) if isinstance(name, str) else None
    if read is None:
        raise UnusableReplyError(f"The action {shown(name)} is unknown.")
    return read(action, coordinates)


def _place(action: Fields, coordinates: Coordinates) -> Point:
    x, y = action.get("x"), action.get("y")
    if x is None or y is None:
        raise UnusableReplyError(f"The x and y of {action.get('type', 'a point')} are missing.")
    return coordinates.place(x, y)


def _held(action: Fields) -> Keys:
    keys = action.get("keys")
    return together(_list(keys, f"keys of {action['type']}")) if keys else ()


def _small(keys: Iterable[object]) -> list[object]:
    """Returns the names with small letters: these models write every key in capitals."""
    return [key.lower() if isinstance(key, str) else key for key in keys]


def _click(action: Fields, coordinates: Coordinates) -> Action:
    name = action.get("button")
    button = _BUTTONS.get(name) if isinstance(name, str) else "left" if name is None else None
    if button is None:
        raise UnusableReplyError(f"The button {shown(name)} is unknown.")
    return Click(_place(action, coordinates), button, 1, _held(action))


def _drag(action: Fields, coordinates: Coordinates) -> Action:
    path = _list(action.get("path"), "path of drag")
    if not 2 <= len(path) <= MOST_POINTS:
        raise UnusableReplyError(f"The path of drag has {len(path)} points, and not 2 to {MOST_POINTS}.")
    start, *rest = (_point(point, coordinates) for point in path)
    return Drag(tuple(rest), start, held=_held(action))


def _point(point: object, coordinates: Coordinates) -> Point:
    if isinstance(point, list | tuple) and len(point) == 2:
        return coordinates.place(*point)
    return _place(fields(point, "point of the path"), coordinates)


def _keypress(action: Fields, _coordinates: Coordinates) -> Action:
    return Press(together(_small(_list(action.get("keys"), "keys of keypress"))))


def _scroll(action: Fields, coordinates: Coordinates) -> Action:
    right, down = (notches(action.get(name) or 0, f"{name} of scroll") for name in ("scroll_x", "scroll_y"))
    if right == down == 0:
        raise UnusableReplyError("The scroll_x and scroll_y of scroll are 0.")
    somewhere = action.get("x") is not None or action.get("y") is not None
    return Scroll(right, -down, _place(action, coordinates) if somewhere else None, _held(action))


def _wait(action: Fields, _coordinates: Coordinates) -> Action:
    milliseconds = action.get("ms")
    return Wait(None if milliseconds is None else seconds(number(milliseconds, "ms of wait", 1e9) / 1000, "ms of wait"))


_ACTIONS: Mapping[str, Callable[[Fields, Coordinates], Action]] = {
    "click": _click,
    "double_click": lambda action, coordinates: Click(_place(action, coordinates), "left", 2, _held(action)),
    "drag": _drag,
    "keypress": _keypress,
    "move": lambda action, coordinates: Move(_place(action, coordinates)),
    "screenshot": lambda _action, _coordinates: Screenshot(),
    "scroll": _scroll,
    "type": lambda action, _coordinates: Type(typed_text(written(action.get("text")), "text of type")),
    "wait": _wait,
}
