"""Says how far long work is: the first time after two seconds, then now and then."""

from __future__ import annotations

import time
from collections.abc import Callable

Say = Callable[[str], None]
"""Takes a sentence for whoever waits."""

FIRST_SECONDS = 2.0
SECONDS = 10.0
"""Between two sentences."""


def silent(_sentence: str) -> None:
    """A `Say` that says nothing."""


class Progress:
    """How far one piece of work is."""

    def __init__(self, say: Say, doing: str, total: int) -> None:
        """Says nothing yet.

        Args:
            say: Gets the sentences.
            doing: What is done, as in ``"indexing corpus.jsonl"``.
            total: How much there is to do, in any unit.
        """
        self._say = say
        self._doing = doing
        self._total = max(1, total)
        self._done = 0
        self._next = time.monotonic() + FIRST_SECONDS

    def add(self, done: int) -> None:
        """Counts work that has been done."""
        self._done += done
        now = time.monotonic()
        if now >= self._next:
            self._next = now + SECONDS
            self._say(f"{self._doing}: {100 * min(self._done, self._total) // self._total} %")
