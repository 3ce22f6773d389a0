"""What code that is not ours prints and logs, in the attempt's folder: text that steers no terminal, and not too much of it."""

from __future__ import annotations

import codecs
from pathlib import Path

from rollout_tasks.unicode_text import printable

LARGEST_LOG = 16 << 20
"""Bytes; what is printed after that is dropped."""


class OutputLog:
    """One log."""

    def __init__(self, path: Path | None) -> None:
        """Touches nothing yet.

        Args:
            path: The file; its folder is made if there is none. None if nothing is to be kept.
        """
        self._path = path
        self._room = LARGEST_LOG
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, content: bytes) -> None:
        """Adds bytes of any kind; a character may be in two calls' bytes."""
        if self._path is None:
            return
        kept = printable(self._decoder.decode(content[: self._room])).encode()[: self._room]
        if kept:
            self._room -= len(kept)
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("ab") as log:
                log.write(kept)
