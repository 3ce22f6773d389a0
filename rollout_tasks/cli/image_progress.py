"""How building an image, or looking at one, is followed: beside a spinner, or as a line every few seconds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape

from desktop_image import ProgressCallback
from rollout_tasks.cli import program
from rollout_tasks.unicode_text import one_line

LINE_SECONDS = 5.0
"""How often a line of progress is printed when there is no terminal to draw on."""


@contextmanager
def image_progress() -> Iterator[ProgressCallback]:
    """Shows what is being done: beside a spinner, or as a line every few seconds."""
    console = Console(stderr=True)
    if not console.is_terminal or console.is_dumb_terminal:
        yield _every_few_seconds()
        return
    with console.status("Looking for the image") as status:
        yield lambda sentence: status.update(escape(one_line(sentence)))


def _every_few_seconds() -> ProgressCallback:
    last = 0.0

    def report(sentence: str) -> None:
        nonlocal last
        if time.monotonic() - last >= LINE_SECONDS:
            last = time.monotonic()
            program.tell(sentence)

    return report
