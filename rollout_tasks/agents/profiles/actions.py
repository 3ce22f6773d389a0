"""What a model can ask for, in one vocabulary for all protocols: operations of the computer, and words for the user.

Every place is a whole pixel inside the screen, every key has pyautogui's name, and every number is bounded; the readers of
the protocols see to that. `pyautogui_code` turns an operation into a call that the environment executes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Point = tuple[int, int]
"""Pixels from the left and from the top of the screen."""
Button = Literal["left", "middle", "right"]
Keys = tuple[str, ...]
"""Names of keys as pyautogui knows them."""


@dataclass(frozen=True, slots=True)
class Move:
    """Moves the pointer."""

    to: Point


@dataclass(frozen=True, slots=True)
class Click:
    """Clicks, once or several times."""

    at: Point | None = None
    """None: where the pointer is."""
    button: Button = "left"
    count: int = 1
    held: Keys = ()
    """Keys held down meanwhile."""


@dataclass(frozen=True, slots=True)
class MouseDown:
    """Presses a mouse button and keeps it down."""

    at: Point | None = None
    button: Button = "left"


@dataclass(frozen=True, slots=True)
class MouseUp:
    """Releases a mouse button."""

    at: Point | None = None
    button: Button = "left"


@dataclass(frozen=True, slots=True)
class Drag:
    """Presses a button, moves along a path, and releases the button at its end."""

    path: tuple[Point, ...]
    """At least one place; the last is where the button is released."""
    start: Point | None = None
    """Where the button is pressed; None: where the pointer is."""
    button: Button = "left"
    held: Keys = ()


@dataclass(frozen=True, slots=True)
class Scroll:
    """Turns the wheel."""

    dx: int = 0
    """Notches; positive goes right."""
    dy: int = 0
    """Notches; positive goes up."""
    at: Point | None = None
    held: Keys = ()


@dataclass(frozen=True, slots=True)
class Type:
    """Types text; a line break presses enter."""

    text: str


@dataclass(frozen=True, slots=True)
class Press:
    """Presses keys together and releases them."""

    keys: Keys
    times: int = 1


@dataclass(frozen=True, slots=True)
class HoldKeys:
    """Keeps keys down for some time."""

    keys: Keys
    seconds: float


@dataclass(frozen=True, slots=True)
class KeyDown:
    """Presses a key and keeps it down."""

    key: str


@dataclass(frozen=True, slots=True)
class KeyUp:
    """Releases a key."""

    key: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Waits before the next look at the screen."""

    seconds: float | None = None
    """None: the reply does not say how long."""


@dataclass(frozen=True, slots=True)
class Screenshot:
    """Only looks at the screen."""


@dataclass(frozen=True, slots=True)
class Zoom:
    """Looks at a part of the screen in full resolution."""

    left_top: Point
    right_bottom: Point
    """The last pixel that belongs to the part."""


@dataclass(frozen=True, slots=True)
class PointerPosition:
    """Asks where the pointer is."""


@dataclass(frozen=True, slots=True)
class Done:
    """Says that the task is finished."""

    text: str = ""
    """The final answer, where the reply has one."""


@dataclass(frozen=True, slots=True)
class Fail:
    """Says that the task cannot be done."""

    text: str = ""
    """Why, where the reply says it."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Text for the user; the episode goes on."""

    text: str


@dataclass(frozen=True, slots=True)
class CallUser:
    """Asks the user for help."""

    text: str = ""


Operation = (
    Move
    | Click
    | MouseDown
    | MouseUp
    | Drag
    | Scroll
    | Type
    | Press
    | HoldKeys
    | KeyDown
    | KeyUp
    | Wait
    | Screenshot
    | Zoom
    | PointerPosition
    | Done
    | Fail
)
"""What the environment executes."""
Action = Operation | Answer | CallUser
"""What a reply may hold; an answer and a call for the user concern whoever runs the episode."""
