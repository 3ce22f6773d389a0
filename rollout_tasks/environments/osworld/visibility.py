"""What can be seen of an element: not what is off the screen, and not what the active window covers.

Accessibility knows no order of windows, but the active one is above the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Box = tuple[int, int, int, int]
"""Left, top, width, height in screen pixels."""


@dataclass(frozen=True, slots=True)
class Window:
    """The active one."""

    node: Any
    """Its element of the tree."""
    box: Box


def centre_of(box: Box) -> tuple[int, int]:
    """The middle of a box."""
    left, top, width, height = box
    return left + width // 2, top + height // 2


def on_screen(box: Box) -> Box | None:
    """What is neither above nor left of the screen; None where nothing is. The screen's other edges are not known here."""
    left, top, width, height = box
    right, bottom = left + width, top + height
    left, top = max(left, 0), max(top, 0)
    return (left, top, right - left, bottom - top) if right > left and bottom > top else None


def visible_part(box: Box, active: Window) -> Box | None:
    """The largest part of another window's element that the active one leaves to be seen; None when it covers all of it."""
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
