"""Tables that keep each row on one line: as wide as needed in pipes and files, without the least telling columns elsewhere.

And the console that shows them: cells may hold what a task, a guest or an endpoint chose.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from rollout_tasks.unicode_text import printable

_ANY_WIDTH = 10_000


class PlainConsole(Console):
    """A console that shows no text which would steer the terminal; rich itself leaves escape sequences as they are."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Yields what is to be written; rich's own movements of the cursor stay."""
        for segment in super().render(renderable, options):
            if segment.control is None and not segment.text.isprintable():
                segment = segment._replace(text=printable(segment.text))
            yield segment


def table_console(*, stderr: bool = False, **options: Any) -> Console:
    """Returns a console for tables, which are as wide as they need where they are not written to a terminal.

    Args:
        stderr: Whether it writes to stderr in place of stdout.
        options: More of `rich.console.Console`.
    """
    stream = sys.stderr if stderr else sys.stdout
    return PlainConsole(stderr=stderr, width=None if stream.isatty() else _ANY_WIDTH, **options)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a `FittingTable`."""

    heading: str
    right: bool = False
    """Whether it is justified to the right."""
    leaves: int = 0
    """When it is left out for want of room: 1 first; 0 never."""
    folds_to: int | None = None
    """To how many characters it may be folded before another column is left out; None: it is not folded."""


class FittingTable:
    """A table that leaves columns out, one after the other, until its rows fit on one line each."""

    def __init__(self, columns: Sequence[Column], rows: Sequence[Sequence[str | Text]], **options: Any) -> None:
        """Takes the cells of every column, as plain text or with a style; `options` are those of `rich.table.Table`."""
        self._columns = columns
        self._rows = [[cell if isinstance(cell, Text) else Text(cell) for cell in row] for row in rows]
        self._options = options

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table]:
        """Yields the table that fits."""
        shown = list(range(len(self._columns)))
        for one in sorted(
            (one for one in shown if self._columns[one].leaves), key=lambda one: self._columns[one].leaves
        ):
            needed = Measurement.get(console, options.update(width=_ANY_WIDTH), self._table(shown, narrow=True))
            if needed.maximum <= options.max_width:
                break
            shown.remove(one)
        yield self._table(shown)

    def _table(self, shown: Sequence[int], *, narrow: bool = False) -> Table:
        table = Table(**self._options)
        for one in shown:
            column = self._columns[one]
            table.add_column(
                column.heading,
                justify="right" if column.right else "left",
                overflow="fold",
                no_wrap=column.folds_to is None,
                max_width=column.folds_to if narrow else None,
            )
        for row in self._rows:
            table.add_row(*(row[one] for one in shown))
        return table
