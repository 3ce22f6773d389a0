"""How a copy is followed: beside a spinner, or as a line now and then where there is no terminal to draw on."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape

from rollout_tasks.cli import program
from rollout_tasks.unicode_text import one_line

_SHOWN_AFTER_SECONDS = 2.0
_LINE_SECONDS = 10.0
_SAME_LINE_SECONDS = 60.0
"""How often a line is repeated."""


@contextmanager
def copy_progress() -> Iterator[Callable[[str], None]]:
    """Shows the sentences that the yielded function is called with, in any thread, once the work has taken a while."""
    console = Console(stderr=True)
    if not sys.stderr.isatty() or os.environ.get("TERM", "dumb") in {"dumb", "unknown"}:
        yield _Lines()
        return
    with console.status("Copying") as status:
        yield lambda sentence: status.update(escape(one_line(sentence)))


class _Lines:
    """Prints some of the sentences: the first after two seconds, then one every ten."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next = time.monotonic() + _SHOWN_AFTER_SECONDS
        self._last, self._said_at = "", 0.0

    def __call__(self, sentence: str) -> None:
        now = time.monotonic()
        with self._lock:
            if now < self._next or (sentence == self._last and now - self._said_at < _SAME_LINE_SECONDS):
                return
            self._next, self._last, self._said_at = now + _LINE_SECONDS, sentence, now
        program.tell(sentence)
