"""A set of marks: numbered boxes around what can be clicked, drawn on the screenshot and listed beside it."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from functools import lru_cache

from PIL import ImageDraw, ImageFont

from rollout_tasks.environments.osworld.accessibility_tree import INTERACTIVE, Element
from rollout_tasks.environments.osworld.screenshot import decoded

MAX_MARKS = 400
"""More boxes than this hide the picture."""
_SMALLEST = 4
"""Pixels; narrower elements cannot be told apart."""
_COLOURS = ("#d62728", "#1f77b4", "#2ca02c", "#9467bd", "#8c564b", "#e377c2", "#17becf", "#ff7f0e")
_LABEL_SIZE = 13


def choose(found: Sequence[Element], screen: tuple[int, int]) -> dict[int, Element]:
    """Returns the elements that get a mark, by number from 1: interactive ones with their centre on the screen.

    If there are too many, a spreadsheet's empty cells are left out first, then its other cells.
    """
    candidates: list[Element] = []
    places: set[tuple[int, int, int, int]] = set()
    for element in found:
        if element.role not in INTERACTIVE or element.box is None or element.centre is None or element.box in places:
            continue
        x, y = element.centre
        if min(element.box[2:]) < _SMALLEST or not (0 <= x < screen[0] and 0 <= y < screen[1]):
            continue
        places.add(element.box)
        candidates.append(element)
    ranked = sorted(range(len(candidates)), key=lambda number: _rank(candidates[number]))
    return dict(enumerate((candidates[number] for number in sorted(ranked[:MAX_MARKS])), 1))


def _rank(element: Element) -> int:
    """Returns an element's rank; elements of rank 0 get marks first."""
    if not element.is_sheet_cell:
        return 0
    return 1 if element.description else 2


def listed(marks: Mapping[int, Element]) -> str:
    """Returns one line for each mark."""
    return "\n".join(f"{number}: {element.label[:200]}" for number, element in marks.items())


def draw(screenshot: bytes, marks: Mapping[int, Element]) -> bytes:
    """Returns the screenshot with the boxes on it, as PNG.

    Raises:
        ValueError: The screenshot is not a picture.
    """
    picture = decoded(screenshot).convert("RGB")
    brush = ImageDraw.Draw(picture)
    font = _font()
    for number, element in marks.items():
        if element.box is None:
            continue
        left, top, width, height = element.box
        colour = _COLOURS[number % len(_COLOURS)]
        brush.rectangle((left, top, left + width - 1, top + height - 1), outline=colour)
        text = str(number)
        _, _, text_width, text_height = brush.textbbox((0, 0), text, font=font)
        x = min(max(left, 0), picture.width - int(text_width) - 4)
        y = min(max(top, 0), picture.height - int(text_height) - 4)
        brush.rectangle((x, y, x + text_width + 3, y + text_height + 3), fill=colour)
        brush.text((x + 2, y + 1), text, fill="white", font=font)
    file = io.BytesIO()
    picture.save(file, "PNG", compress_level=1)
    return file.getvalue()


@lru_cache(maxsize=1)
def _font() -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(_LABEL_SIZE)
