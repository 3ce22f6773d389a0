"""Shows how far a submission is, and says at Ctrl-C what there is of it."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import typer

from rollout_tasks.cli.program import INTERRUPTED
from rollout_tasks.errors import SubmissionStopped
from rollout_tasks.ignored_exceptions import noticed_if_ignored
from rollout_tasks.runs.counting import Counting

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

T = TypeVar("T")
SHOWN_AFTER_SECONDS = 2.0
LINE_SECONDS = 10.0
"""How often a line is printed where there is no terminal to draw on."""
_AT_A_TIME = 100
"""How many things are done between two looks at the clock."""
NOTHING = "Stopped before anything was begun."
"""The message at Ctrl-C where there is nothing of a run, whether it was to be rolled out here or on workers."""


@contextmanager
def submitting() -> Iterator[Counting]:
    """Shows on stderr how far the work inside is, and ends the command with one sentence at Ctrl-C.

    The sentence is that of the `SubmissionStopped`, or says that nothing was begun. Further Ctrl-C are ignored until it is
    printed: they would break off what the first has begun.
    """
    shown = _Shown()
    with _first_ctrl_c_alone():
        try:
            yield shown
        except KeyboardInterrupt as stop:
            shown.stop()
            sentence = stop.sentence if isinstance(stop, SubmissionStopped) else ""
            sys.stderr.write(f"{sentence or NOTHING}\n")
            raise typer.Exit(INTERRUPTED) from stop
        finally:
            shown.stop()


@contextmanager
def _first_ctrl_c_alone() -> Iterator[None]:
    """Has the first Ctrl-C raise `KeyboardInterrupt`, and ignores the others, where Ctrl-C raises that at all."""
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    came = False

    def handle(*_: object) -> None:
        nonlocal came
        if not came:
            came = True
            raise KeyboardInterrupt

    def raise_the_next() -> None:
        nonlocal came
        came = False

    signal.signal(signal.SIGINT, handle)
    try:
        with noticed_if_ignored(KeyboardInterrupt, raise_the_next):
            yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


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
    from rich.console import Console  # here, because few submissions take long enough for a bar
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    progress = Progress(*columns, console=Console(stderr=True), transient=True)
    task = progress.add_task(doing[:1].upper() + doing[1:], total=total, completed=done)
    progress.start()
    return progress, task
