"""Claude's computer tool in messages of the Messages API: ``computer_20250124``, and ``computer_20251124`` with zoom."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rollout_tasks.agents.profiles.actions import (
    Action,
    Button,
    CallUser,
    Click,
    Done,
    Drag,
    Fail,
    HoldKeys,
    Keys,
    MouseDown,
    MouseUp,
    Move,
    Point,
    PointerPosition,
    Press,
    Screenshot,
    Scroll,
    Type,
    Wait,
    Zoom,
)
from rollout_tasks.agents.profiles.coordinates import Coordinates
from rollout_tasks.agents.profiles.key_names import combination, together
from rollout_tasks.agents.profiles.reply import (
    MOST_ACTIONS,
    ComputerCall,
    Parsed,
    UnusableReplyError,
    bounded,
    fields,
    notches,
    parsed_calls,
    seconds,
    shown,
    some_text,
    typed_text,
    written,
)
from rollout_tasks.environments.osworld.keys import known_combination, known_key

TOOL = "computer"
PRESS_SECONDS = 1.0
"""How long ``left_press`` keeps the button down."""
_FINISHED = frozenset({None, "end_turn", "stop_sequence"})
"""Why a message without a call may have stopped and yet be complete."""
Input = Mapping[str, Any]


def parse(message: Mapping[str, Any], coordinates: Coordinates) -> Parsed:
    """Reads a message. One without a call is the final answer, if it was not cut off and has text.

    Args:
        message: The message as JSON, with ``content`` and ``stop_reason``.
        coordinates: Spans the picture that the model was sent.

    Raises:
        UnusableReplyError: It holds no action that can be carried out.
    """
    blocks = fields(message, "message").get("content")
    if not isinstance(blocks, list):
        raise UnusableReplyError("The content of the message is not a list.")
    blocks = [fields(block, "block of the message") for block in blocks]
    uses = [block for block in blocks if block.get("type") == "tool_use"]
    if uses:
        return parsed_calls(_call(use, coordinates) for use in uses)
    said, stopped = _text(blocks), message.get("stop_reason")
    if not said or not (stopped is None or isinstance(stopped, str)) or stopped not in _FINISHED:
        raise UnusableReplyError("The message has neither a call of a tool nor a final text.")
    return Parsed((Done(said),))


def _text(blocks: list[Input]) -> str:
    texts = (bounded(block.get("text"), "text of the message") for block in blocks if block.get("type") == "text")
    return bounded("\n\n".join(texts).strip(), "text of the message")


def _call(use: Input, coordinates: Coordinates) -> ComputerCall:
    if use.get("name") != TOOL:
        raise UnusableReplyError(f"The tool {shown(use.get('name'))} is unknown; the only one is {TOOL!r}.")
    call = fields(use.get("input"), "input of the call")
    return ComputerCall(some_text(use.get("id"), "id of the call"), tuple(_actions(call, coordinates)))


def _actions(call: Input, coordinates: Coordinates) -> Iterator[Action]:
    name = call.get("action")
    read = _ACTIONS.get(name.replace(" ", "_")) if isinstance(name, str) else None
    if read is None:
        raise UnusableReplyError(f"The action {shown(name)} is unknown.")
    yield from read(call, coordinates)


def _place(call: Input, coordinates: Coordinates, name: str = "coordinate") -> Point | None:
    value = call.get(name)
    if value is None:
        return None
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise UnusableReplyError(f"The {name} of {call['action']} is not a pair of numbers.")
    return coordinates.place(*value)


def _needed(call: Input, coordinates: Coordinates) -> Point:
    place = _place(call, coordinates)
    if place is None:
        raise UnusableReplyError(f"The coordinate of {call['action']} is missing.")
    return place


def _held(call: Input) -> Keys:
    text = call.get("text")
    return combination(text) if text else ()


Read = Callable[[Input, Coordinates], Iterator[Action]]


def _one(read: Callable[[Input, Coordinates], Action]) -> Read:
    return lambda call, coordinates: iter([read(call, coordinates)])


def _click(button: Button, count: int) -> Read:
    return _one(lambda call, coordinates: Click(_place(call, coordinates), button, count, _held(call)))


def _left_press(call: Input, coordinates: Coordinates) -> Iterator[Action]:
    yield MouseDown(_place(call, coordinates))
    yield Wait(PRESS_SECONDS)
    yield MouseUp()


def _drag(call: Input, coordinates: Coordinates) -> Action:
    return Drag((_needed(call, coordinates),), _place(call, coordinates, "start_coordinate"))


def _key(call: Input, _coordinates: Coordinates) -> Iterator[Action]:
    """Yields one press for each combination: ``Down Down`` presses twice."""
    text = some_text(written(call.get("text")), "text of key")
    alone = known_key(text) or known_combination(text)
    presses = [text] if alone else text.replace(" + ", "+").split()
    if len(presses) > MOST_ACTIONS:
        raise UnusableReplyError(f"The text of key has more than {MOST_ACTIONS} combinations.")
    yield from (Press(together([keys])) for keys in presses)


def _hold(call: Input, _coordinates: Coordinates) -> Action:
    duration = call.get("duration")
    keys = combination(some_text(written(call.get("text")), "text of hold_key"))
    return HoldKeys(keys, 1.0 if duration is None else seconds(duration, "duration of hold_key"))


def _scroll(call: Input, coordinates: Coordinates) -> Action:
    amount, direction = notches(call.get("scroll_amount"), "scroll_amount"), call.get("scroll_direction")
    turn = _DIRECTIONS.get(direction) if isinstance(direction, str) else None
    if turn is None:
        raise UnusableReplyError("The scroll_direction must be up, down, left or right.")
    if amount == 0:
        raise UnusableReplyError("The scroll_amount is 0.")
    return Scroll(turn[0] * amount, turn[1] * amount, _place(call, coordinates), _held(call))


def _wait(call: Input, _coordinates: Coordinates) -> Action:
    duration = call.get("duration")
    return Wait(None if duration is None else seconds(duration, "duration of wait"))


def _zoom(call: Input, coordinates: Coordinates) -> Action:
    region = call.get("region")
    if not isinstance(region, list | tuple) or len(region) != 4:
        raise UnusableReplyError("The region of zoom is not a list of four numbers.")
    one, other = coordinates.place(*region[:2]), coordinates.place(*region[2:])
    if one[0] >= other[0] or one[1] >= other[1]:
        raise UnusableReplyError("The region of zoom is empty.")
    return Zoom(one, other)


_DIRECTIONS = {"up": (0, 1), "down": (0, -1), "left": (-1, 0), "right": (1, 0)}
_ACTIONS: Mapping[str, Read] = {
    "call_user": _one(lambda _call, _coordinates: CallUser()),
    "cursor_position": _one(lambda _call, _coordinates: PointerPosition()),
    "done": _one(lambda _call, _coordinates: Done()),
    "double_click": _click("left", 2),
    "fail": _one(lambda _call, _coordinates: Fail()),
    "hold_key": _one(_hold),
    "key": _key,
    "left_click": _click("left", 1),
    "left_click_drag": _one(_drag),
    "left_mouse_down": _one(lambda call, coordinates: MouseDown(_place(call, coordinates))),
    "left_mouse_up": _one(lambda call, coordinates: MouseUp(_place(call, coordinates))),
    "left_press": _left_press,
    "middle_click": _click("middle", 1),
    "mouse_move": _one(lambda call, coordinates: Move(_needed(call, coordinates))),
    "right_click": _click("right", 1),
    "screenshot": _one(lambda _call, _coordinates: Screenshot()),
    "scroll": _one(_scroll),
    "triple_click": _click("left", 3),
    "type": _one(lambda call, _coordinates: Type(typed_text(written(call.get("text")), "text of type"))),
    "wait": _one(_wait),
    "zoom": _one(_zoom),
}
