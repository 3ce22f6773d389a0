"""Converts the places that a model names to pixels of the screen: it saw a resized picture, or counts on a grid.

Each official agent rounds in its own way; so does `Rounding`, to the pixel, since a click that is one pixel off is another
click.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import Enum

from rollout_tasks.agents.profiles.actions import Point
from rollout_tasks.agents.profiles.reply import UnusableReplyError

MARGIN = 1 / 500
"""Of the picture's size: models name the edge itself, or a unit beyond it. Such a place is moved onto the screen."""
WIDEST_RATIO = 200
"""Of a picture's sides, as the models' own image processors have it."""
_TOKENS = re.compile(r"</?(?:point|bbox)>|<\|box_(?:start|end)\|>")
_NUMBER = re.compile(r"[+-]?(?:\d{1,9}(?:\.\d{0,20})?|\.\d{1,20})")
_LONGEST_BOX = 200


class Rounding(Enum):
    """How a place becomes a whole pixel."""

    DOWN = "down"
    """Multiplied by the scale, then cut: Qwen and Claude."""
    SHARE_DOWN = "share_down"
    """Divided by the picture's size, multiplied by the screen's, then cut: OpenCUA in the resized picture."""
    THOUSANDTHS_DOWN = "thousandths_down"
    """As `SHARE_DOWN`, but rounded to three places before it is cut: UI-TARS."""
    NEAREST = "nearest"
    """To the nearest pixel: OpenCUA with shares of the screen."""


@dataclass(frozen=True, slots=True)
class Coordinates:
    """How a model names places, and the screen they are on.

    Attributes:
        screen: Width and height in pixels.
        picture: What the model's numbers span: the size of the picture it saw, of its grid, or (1, 1) for shares.
        rounding: How a place becomes a whole pixel.
    """

    screen: tuple[int, int]
    picture: tuple[float, float]
    rounding: Rounding = Rounding.DOWN

    def place(self, x: object, y: object) -> Point:
        """Returns the pixel, which is on the screen.

        Raises:
            UnusableReplyError: Not two finite numbers, or a place outside the picture.
        """
        width, height = self.picture
        if not (_within(x, width) and _within(y, height)):
            raise UnusableReplyError(f"The place {_shown(x, y)} is outside the picture of {width:g}x{height:g}.")
        return self._pixel(x, 0), self._pixel(y, 1)

    def given(self, place: tuple[int, int]) -> tuple[int, int]:
        """Returns a place of the screen in the model's numbers."""
        x, y = (
            round(pixel * picture / screen)
            for pixel, picture, screen in zip(place, self.picture, self.screen, strict=True)
        )
        return x, y

    def _pixel(self, value: object, axis: int) -> int:
        if not isinstance(value, int | float):
            raise TypeError(value)
        screen, picture = self.screen[axis], self.picture[axis]
        match self.rounding:
            case Rounding.DOWN:
                pixel = int(value * (screen / picture))
            case Rounding.SHARE_DOWN:
                pixel = int(value / picture * screen)
            case Rounding.THOUSANDTHS_DOWN:
                pixel = int(round(value / picture * screen, 3))
            case Rounding.NEAREST:
                pixel = round(value / picture * screen)
        return max(0, min(pixel, screen - 1))


def _within(value: object, size: float) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return -size * MARGIN <= value <= size * (1 + MARGIN)  # false for NaN; whole numbers of any length compare exactly


def _shown(x: object, y: object) -> str:
    shown = (f"{one:g}" if _within(one, 1e12) else "?" for one in (x, y))
    return f"({', '.join(shown)})"


@dataclass(frozen=True, slots=True)
class Resizing:
    """How a model's image processor resizes pictures: both sides to multiples of a factor, within limits of pixels."""

    factor: int
    fewest_pixels: int
    most_pixels: int

    def size(self, width: int, height: int) -> tuple[int, int]:
        """Returns width and height of the picture that the model sees.

        Raises:
            ValueError: The picture is empty, or too narrow for any model.
        """
        if min(width, height) < 1 or max(width, height) > WIDEST_RATIO * min(width, height):
            raise ValueError(f"a picture of {width}x{height} pixels cannot be resized")
        new_width, new_height = (max(1, round(side / self.factor)) * self.factor for side in (width, height))
        if new_width * new_height > self.most_pixels:
            shrink = math.sqrt(width * height / self.most_pixels)
            return self._down(width / shrink), self._down(height / shrink)
        if new_width * new_height < self.fewest_pixels:
            grow = math.sqrt(self.fewest_pixels / (width * height))
            return self._up(width * grow), self._up(height * grow)
        return new_width, new_height

    def _down(self, side: float) -> int:
        return max(1, math.floor(side / self.factor)) * self.factor

    def _up(self, side: float) -> int:
        return math.ceil(side / self.factor) * self.factor


UI_TARS = Resizing(28, 100 * 28 * 28, 16384 * 28 * 28)
QWEN_25 = Resizing(28, 4 * 28 * 28, 16384 * 28 * 28)
"""Also what OpenCUA was trained with."""
QWEN_3 = Resizing(32, 4 * 28 * 28, 16 * 16 * 4 * 12800)


def numbers(text: str) -> list[float]:
    """Returns the numbers of a place or a box as models write them: ``(1, 2)``, ``[1, 2, 3, 4]``, ``<point>1 2</point>``.

    Raises:
        UnusableReplyError: There is something else in it.
    """
    if len(text) > _LONGEST_BOX:
        raise UnusableReplyError("A place is longer than it can be.")
    words = re.sub(r"[\s,()\[\]]+", " ", _TOKENS.sub(" ", text)).split()
    if not words or not all(map(_NUMBER.fullmatch, words)):
        raise UnusableReplyError(f"The place {text[:40]!r} is not a pair of numbers.")
    return [float(word) if "." in word else int(word) for word in words]


def middle(values: list[float]) -> tuple[float, float]:
    """Returns the place that two numbers give, or the middle of the box that four numbers give.

    Raises:
        UnusableReplyError: Another number of them.
    """
    if len(values) == 2:
        return values[0], values[1]
    if len(values) == 4:
        return (values[0] + values[2]) / 2, (values[1] + values[3]) / 2
    raise UnusableReplyError(f"A place has two numbers, or four for a box, and not {len(values)}.")
