"""Qwen's ``computer_use`` tool in ``<tool_call>`` blocks, as Qwen2.5-VL, Qwen3-VL, Qwen3.5, OWL and EvoCUA S2 write it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rollout_tasks.agents.profiles.actions import (
    Action,
    Answer,
    Button,
    Click,
    Done,
    Drag,
    Fail,
    Move,
    Point,
    Press,
    Scroll,
    Type,
    Wait,
)
from rollout_tasks.agents.profiles.coordinates import Coordinates, numbers
from rollout_tasks.agents.profiles.key_names import combination, together
from rollout_tasks.agents.profiles.qwen_calls import take_apart
from rollout_tasks.agents.profiles.reply import (
    Parsed,
    UnusableReplyError,
    bounded,
    notches,
    seconds,
    shown,
    some_text,
    typed_text,
    until_the_end,
    without_thinking,
    written,
)
from rollout_tasks.agents.tool_calls import parsed_json
from rollout_tasks.environments.osworld.keys import known_key

GRID = (999, 999)
"""What Qwen3-VL's numbers span, whatever the picture's size."""
Arguments = Mapping[str, Any]


def parse(reply: str, coordinates: Coordinates) -> Parsed:
    """Reads a reply.

    Args:
        reply: The whole text, with or without thinking.
        coordinates: Spans `GRID`, or the resized picture for Qwen2.5-VL.

    Raises:
        UnusableReplyError: It holds no action that can be carried out.
    """
    apart = take_apart(without_thinking(bounded(reply)))
    actions = until_the_end(_action(call, coordinates) for call in apart.calls)
    return Parsed(actions, apart.before.strip())


def _action(call: Arguments, coordinates: Coordinates) -> Action:
    name = call.get("action")
    read = _ACTIONS.get(name.strip()) if isinstance(name, str) else None
    if read is None:
        raise UnusableReplyError(f"The action {shown(name)} is unknown.")
    return read(call, coordinates)


def _value(call: Arguments, name: str) -> Any:
    """Returns an argument; text that is JSON is read, since ``<parameter=...>`` holds nothing but text."""
    value = call.get(name)
    if not isinstance(value, str):
        return value
    try:
        return parsed_json(value)
    except (ValueError, RecursionError):
        return value


def _place(call: Arguments, coordinates: Coordinates, name: str = "coordinate") -> Point | None:
    value = _value(call, name)
    if value is None:
        return None
    if isinstance(value, str):
        value = numbers(value)
    if not isinstance(value, list) or len(value) != 2:
        raise UnusableReplyError(f"The {name} of {call['action']} is not a pair of numbers.")
    return coordinates.place(*value)


def _needed(call: Arguments, coordinates: Coordinates) -> Point:
    place = _place(call, coordinates)
    if place is None:
        raise UnusableReplyError(f"The coordinate of {call['action']} is missing.")
    return place


def _click(button: Button, count: int) -> Callable[[Arguments, Coordinates], Action]:
    return lambda call, coordinates: Click(_place(call, coordinates), button, count)


def _drag(call: Arguments, coordinates: Coordinates) -> Action:
    return Drag((_needed(call, coordinates),), _place(call, coordinates, "start_coordinate"))


def _press(call: Arguments, _coordinates: Coordinates) -> Action:
    keys = _value(call, "keys")
    if keys is None:
        raise UnusableReplyError("The keys of key are missing.")
    if isinstance(keys, list):
        return Press(together(map(_clean, keys)))
    if isinstance(keys, int) and not isinstance(keys, bool):
        keys = call["keys"] if isinstance(call["keys"], str) else _clean(keys)
    return Press(combination(keys))


def _clean(name: object) -> object:
    """Returns a key's name without the brackets and quotes of a list that was written into it."""
    if isinstance(name, int) and not isinstance(name, bool) and 0 <= name <= 9:
        return str(name)
    if isinstance(name, str) and len(name) > 1:
        bare = name.strip().removeprefix("keys=").strip("[]'\" ")
        return bare if known_key(name) is None and bare else name
    return name


def _wheel(call: Arguments) -> int:
    turns = notches(_value(call, "pixels"), f"pixels of {call['action']}")
    if turns == 0:
        raise UnusableReplyError(f"The pixels of {call['action']} are 0.")
    return turns


def _wait(call: Arguments, _coordinates: Coordinates) -> Action:
    given = _value(call, "time")
    return Wait(None if given is None else seconds(given, "time of wait"))


def _terminate(call: Arguments, _coordinates: Coordinates) -> Action:
    """Returns the end that a reply says. Without a status that is ``done``, as in both official agents: the call itself says that
    the model stops, and that it has failed it must say. Only a status that means neither is refused.
    """
    status, text = call.get("status"), written(call.get("text"))
    said = bounded(text, "text of terminate") if text is not None else ""
    status = status.strip().lower() if isinstance(status, str) else status
    if status in ("success", None):
        return Done(said)
    if status in ("failure", "fail"):
        return Fail(said)
    raise UnusableReplyError(f"The status of terminate must be success or failure, and not {shown(status)}.")


_ACTIONS: Mapping[str, Callable[[Arguments, Coordinates], Action]] = {
    "answer": lambda call, _coordinates: Answer(some_text(written(call.get("text")), "text of answer")),
    "double_click": _click("left", 2),
    "hscroll": lambda call, coordinates: Scroll(dx=_wheel(call), at=_place(call, coordinates)),
    "key": _press,
    "left_click": _click("left", 1),
    "left_click_drag": _drag,
    "middle_click": _click("middle", 1),
    "mouse_move": lambda call, coordinates: Move(_needed(call, coordinates)),
    "right_click": _click("right", 1),
    "scroll": lambda call, coordinates: Scroll(dy=_wheel(call), at=_place(call, coordinates)),
    "terminate": _terminate,
    "triple_click": _click("left", 3),
    "type": lambda call, _coordinates: Type(typed_text(written(call.get("text")), "text of type")),
    "wait": _wait,
}
