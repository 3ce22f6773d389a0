"""UI-TARS text: ``Thought: ...`` and ``Action: click(start_box='(x,y)')``, as UI-TARS, Doubao, Seed and DART write it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from rollout_tasks.agents.profiles.actions import (
    Action,
    Button,
    CallUser,
    Click,
    Done,
    Drag,
    Fail,
    KeyDown,
    KeyUp,
    Move,
    Point,
    Press,
    Scroll,
    Type,
    Wait,
)
from rollout_tasks.agents.profiles.coordinates import Coordinates, middle, numbers
from rollout_tasks.agents.profiles.key_names import combination, key
from rollout_tasks.agents.profiles.reply import (
    Parsed,
    UnusableReplyError,
    bounded,
    some_text,
    typed_text,
    until_the_end,
    without_thinking,
)
from rollout_tasks.agents.profiles.ui_tars_calls import TextCall, last_outside_calls, read_calls

NOTCHES = 5
"""Of the wheel, for one scroll."""
_ACTION = re.compile(r"^[ \t]{0,20}(Action:)", re.MULTILINE)
_ACTION_ANYWHERE = re.compile(r"(Action:)")
_DIRECTIONS: Mapping[str, tuple[int, int]] = {
    "up": (0, NOTCHES),
    "down": (0, -NOTCHES),
    "left": (-NOTCHES, 0),
    "right": (NOTCHES, 0),
}


def parse(reply: str, coordinates: Coordinates) -> Parsed:
    """Reads a reply.

    Args:
        reply: The whole text, with or without thinking.
        coordinates: Spans the resized picture, or a grid of 1000 for models that write ``<point>``.

    Raises:
        UnusableReplyError: It holds no action that can be carried out.
    """
    text = without_thinking(bounded(reply))
    thought, written = _parts(text)
    return Parsed(until_the_end(_action(call, coordinates) for call in read_calls(written)), thought)


def _parts(text: str) -> tuple[str, str]:
    """Returns the thought, and what stands after the last ``Action:``, if possible the last that begins a line.

    One in the text of a call does not count: what a model types is not what it does.
    """
    text = text.replace("[EOS]", "").strip()
    found = last_outside_calls(_ACTION, text) or last_outside_calls(_ACTION_ANYWHERE, text)
    if found is None:
        raise UnusableReplyError("The reply has no part that begins with 'Action:'.")
    thought = text[: found.start()].strip()
    for heading in ("Action_Summary:", "Thought:"):
        if heading in thought:
            thought = thought.partition(heading)[2].strip()
            break
    return thought, text[found.end() :]


def _action(call: TextCall, coordinates: Coordinates) -> Action:
    return _ACTIONS[call.name](call, coordinates)


def _place(call: TextCall, coordinates: Coordinates, name: str = "start_box") -> Point:
    return coordinates.place(*middle(numbers(some_text(call.arguments.get(name), f"{name} of {call.name}"))))


def _click(button: Button, count: int) -> Callable[[TextCall, Coordinates], Action]:
    return lambda call, coordinates: Click(_place(call, coordinates), button, count)


def _drag(call: TextCall, coordinates: Coordinates) -> Action:
    return Drag((_place(call, coordinates, "end_box"),), _place(call, coordinates))


def _scroll(call: TextCall, coordinates: Coordinates) -> Action:
    direction = call.arguments.get("direction", "").lower()
    turn = next((turn for word, turn in _DIRECTIONS.items() if word in direction), None)
    if turn is None:
        raise UnusableReplyError("The direction of scroll must be up, down, left or right.")
    return Scroll(*turn, _place(call, coordinates) if call.arguments.get("start_box") else None)


def _keys(call: TextCall) -> str:
    given = (call.arguments.get(name) for name in ("key", "hotkey", "press"))
    return some_text(next(filter(None, given), None), f"key of {call.name}")


def _type(call: TextCall, _coordinates: Coordinates) -> Action:
    text = typed_text(call.arguments.get("content"), "content of type")
    # A line break at the end is often escaped twice.
    return Type(text[:-2] + "\n" if text.endswith("\\n") else text)


_ACTIONS: Mapping[str, Callable[[TextCall, Coordinates], Action]] = {
    "click": _click("left", 1),
    "left_single": _click("left", 1),
    "left_double": _click("left", 2),
    "right_single": _click("right", 1),
    "hover": lambda call, coordinates: Move(_place(call, coordinates)),
    "drag": _drag,
    "select": _drag,
    "scroll": _scroll,
    "hotkey": lambda call, _coordinates: Press(combination(_keys(call))),
    "press": lambda call, _coordinates: Press(combination(_keys(call))),
    "keydown": lambda call, _coordinates: KeyDown(key(_keys(call))),
    "keyup": lambda call, _coordinates: KeyUp(key(_keys(call))),
    "release": lambda call, _coordinates: KeyUp(key(_keys(call))),
    "type": _type,
    "wait": lambda _call, _coordinates: Wait(),
    "finished": lambda call, _coordinates: Done(call.arguments.get("content", "")),
    "call_user": lambda call, _coordinates: CallUser(call.arguments.get("content", "")),
    "error_env": lambda _call, _coordinates: Fail(),
}
