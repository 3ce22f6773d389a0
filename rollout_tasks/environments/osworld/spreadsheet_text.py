"""A spreadsheet as short text: where columns and rows are, and the contents of cells that are not empty.

``[columns] A @ 62, B @ 105`` and ``[row] 1 @ 200: A1 - Name | B1 - Price`` say where every cell is, even an empty one:
at its column's x and its row's y. Empty rows are listed with only their places. So are rows that do not fit: those
farthest from the focused cell, or from the top.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_NAME = re.compile(r"([A-Z]{1,3})([0-9]{1,7})")
_PLACE = 11
"""Characters of a row's place, ``120 @ 1071,``."""
LONGEST_CONTENTS = (60, 30, 15)
"""Characters of one cell; fewer only where no row would fit."""
LEAST_CONTENTS = 1_200
"""Characters that contents always get."""


@dataclass(frozen=True, slots=True)
class SheetCell:
    """A cell on the screen."""

    name: str
    """``B5``."""
    content: str
    centre: tuple[int, int]
    focused: bool = False
    """Whether typed text goes there."""

    @property
    def column(self) -> str:
        """``B``."""
        return self.name.rstrip("0123456789")

    @property
    def row(self) -> int:
        """5."""
        return int(self.name[len(self.column) :])

    def text(self, longest: int) -> str:
        """Returns ``B5 - content``, with so many characters of the content at most."""
        content = self.content if len(self.content) <= longest else self.content[:longest] + "..."
        said = " - ".join(word for word in (self.name, content) if word)
        return f"{said} (focused)" if self.focused else said


def is_cell_name(name: str) -> bool:
    """Returns whether this is a name of a spreadsheet's cell."""
    return _NAME.fullmatch(name) is not None


def lines(cells: Sequence[SheetCell], room: int, indent: int, *, with_places: bool) -> list[str]:
    """Returns the lines of the cells on the screen.

    Args:
        cells: In any order.
        room: Characters available; contents get `LEAST_CONTENTS` even if there are fewer, and places are never left
            out, as agents act on them.
        indent: Characters before each line; they count.
        with_places: Says where columns and rows are.
    """
    columns = {cell.column: cell.centre[0] for cell in cells}
    rows: dict[int, list[SheetCell]] = {}
    for cell in cells:
        rows.setdefault(cell.row, []).append(cell)
    first: list[str] = []
    if with_places:
        first.append(f"[columns] {', '.join(f'{column} @ {x}' for column, x in columns.items())}")
        room -= len(first[0]) + indent + 1 + _PLACE * len(rows)
    room = max(room, LEAST_CONTENTS)
    placed = {number: _placed(number, rows, with_places) for number in rows}
    for longest in LONGEST_CONTENTS:
        said, unsaid = _contents(rows, placed, room, indent, longest)
        if said or not unsaid:
            break
    written = [*first, *(said[number] for number in sorted(said))]
    if unsaid:
        written.append(f"[... {unsaid} more cells with content have no room here]")
    rest = sorted(set(rows) - set(said))
    if rest and with_places:
        written.append(f"[rows] {', '.join(placed[number] for number in rest)}")
    return written


def _contents(
    rows: Mapping[int, Sequence[SheetCell]], placed: Mapping[int, str], room: int, indent: int, longest: int
) -> tuple[dict[int, str], int]:
    """Returns the lines of rows for which there is room, and how many cells with content have none."""
    focused = next((number for number, cells in rows.items() if any(cell.focused for cell in cells)), 0)
    said: dict[int, str] = {}
    unsaid = 0
    for number in sorted(rows, key=lambda number: (abs(number - focused), number)):
        texts = [cell.text(longest) for cell in rows[number] if cell.content or cell.focused]
        line = f"[row] {placed[number]}: {' | '.join(texts)}"
        if texts and (room := room - len(line) - indent - 1) >= 0:
            said[number] = line
        else:
            unsaid += len(texts)
    return said, unsaid


def _placed(row: int, rows: dict[int, list[SheetCell]], with_places: bool) -> str:
    return f"{row} @ {rows[row][0].centre[1]}" if with_places else str(row)
