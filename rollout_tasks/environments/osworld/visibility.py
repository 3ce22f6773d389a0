"""The visible part of an element: without what is off the screen, and what the active window covers.

The accessibility tree has no order of windows, but the active one is above the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Box = tuple[int, int, int, int]
"""Left, top, width, height in screen pixels."""


@dataclass(frozen=True, slots=True)
class ActiveWindow:
    """The active window."""

    node: Any
    """Its element in the tree."""
    box: Box


def centre_of(box: Box) -> tuple[int, int]:
    """Returns the middle of a box."""
    left, top, width, height = box
    return left + width // 2, top + height // 2


def on_screen(box: Box, screen: tuple[int, int] | None) -> Box | None:
    """Returns the part on the screen; None if nothing remains. Without the screen's size, only its left and top count."""
    left, top, width, height = box
    right, bottom = left + width, top + height
    left, top = max(left, 0), max(top, 0)
    if screen is not None:
        right, bottom = min(right, screen[0]), min(bottom, screen[1])
    return (left, top, right - left, bottom - top) if right > left and bottom > top else None


def visible_part(box: Box, active: ActiveWindow) -> Box | None:
    """Returns the largest part of another window's element that the active one does not cover, or None."""
    left, top, width, height = box
    right, bottom = left + width, top + height
    its_left, its_top, its_width, its_height = active.box
    its_right, its_bottom = its_left + its_width, its_top + its_height
    if right <= its_left or bottom <= its_top or left >= its_right or top >= its_bottom:
        return box
    parts = (
        (left, top, its_left - left, height),
        (its_right, top, right - its_right, height),
        (left, top, width, its_top - top),
        (left, its_bottom, width, bottom - its_bottom),
    )
    best = max(parts, key=lambda part: max(part[2], 0) * max(part[3], 0))
    return best if best[2] > 0 and best[3] > 0 else None
