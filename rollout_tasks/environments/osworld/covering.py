"""What the active window covers: accessibility knows no order of windows, but the active one is above the others."""

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


def is_covered(box: Box | None, active: Window) -> bool:
    """Whether a click on the middle of an element of another window would hit the active one."""
    if box is None:
        return False
    x, y = centre_of(box)
    left, top, width, height = active.box
    return left <= x < left + width and top <= y < top + height
