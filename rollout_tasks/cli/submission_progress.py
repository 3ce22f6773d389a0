"""Shows how far a submission is, and says at Ctrl-C what there is of it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import typer

from rollout_tasks.cli.program import INTERRUPTED
from rollout_tasks.runs.counting import Counting

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

T = TypeVar("T")
SHOWN_AFTER_SECONDS = 2.0
LINE_SECONDS = 10.0
"""How often a line is printed where there is no terminal to draw on."""
_AT_A_TIME = 100
"""How many things are done between two looks at the clock."""
_NOTHING = "Stopped before anything was submitted."


@contextmanager
def submitting() -> Iterator[Counting]:
    """Shows on stderr how far the work inside is, and ends the command with one sentence at Ctrl-C.

    The sentence is that of the `KeyboardInterrupt`, or says that nothing was submitted.
    """
    shown = _Shown()
    try:
        yield shown
    except KeyboardInterrupt as stop:
        shown.stop()
        sys.stderr.write(f"{str(stop) or _NOTHING}\n")
        raise typer.Exit(INTERRUPTED) from stop
    finally:
        shown.stop()


class _Shown:
    """A `Counting` that draws a bar on a terminal, once the work has taken a while, and else prints a line now and then."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._next_line = self._began + LINE_SECONDS
        self._draws = sys.stderr.isatty() and os.environ.get("TERM", "dumb") not in {"dumb", "unknown"}
        self._drawn: tuple[Progress, TaskID] | None = None

    def __call__(self, doing: str, things: Sequence[T], /) -> Iterator[T]:
        for number, thing in enumerate(things):
            if number % _AT_A_TIME == 0:
                self._show(doing, number, len(things))
            yield thing
        self.stop()

    def stop(self) -> None:
        """Removes the bar."""
        if self._drawn is not None:
            self._drawn[0].stop()
            self._drawn = None

    def _show(self, doing: str, done: int, total: int) -> None:
        now = time.monotonic()
        if self._drawn is not None:
            progress, task = self._drawn
            progress.update(task, completed=done)
        elif self._draws:
            if now - self._began >= SHOWN_AFTER_SECONDS:
                self._drawn = _bar(doing, done, total)
        elif now >= self._next_line:
            self._next_line = now + LINE_SECONDS
            sys.stderr.write(f"{doing}: {done} of {total}\n")


def _bar(doing: str, done: int, total: int) -> tuple[Progress, TaskID]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    progress = Progress(*columns, console=Console(stderr=True), transient=True)
    task = progress.add_task(doing[:1].upper() + doing[1:], total=total, completed=done)
    progress.start()
    return progress, task
