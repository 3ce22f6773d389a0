"""What an agent's class prints and logs, in the attempt's folder."""

from __future__ import annotations

import codecs
from pathlib import Path

from rollout_tasks.unicode_text import printable

LOG_NAME = "agent.log"
LARGEST_LOG = 16 << 20
"""Bytes; what is printed after that is dropped."""


class AgentLog:
    """The log of one attempt."""

    def __init__(self, folder: Path | None) -> None:
        """Touches nothing yet.

        Args:
            folder: The attempt's; None if nothing is to be kept.
        """
        self._folder = folder
        self._room = LARGEST_LOG
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, content: bytes) -> None:
        """Adds bytes of any kind, as text that steers no terminal; a character may be in two calls' bytes."""
        if self._folder is None:
            return
        kept = printable(self._decoder.decode(content[: self._room])).encode()[: self._room]
        if kept:
            self._room -= len(kept)
            with (self._folder / LOG_NAME).open("ab") as log:
                log.write(kept)
