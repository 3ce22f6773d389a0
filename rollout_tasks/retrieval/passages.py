"""The passages that documents are divided into, and their store on disk, which readers map into memory.

The store has two files: ``passages.jsonl`` with a passage a line, and ``offsets``, where each line begins, and the end.
"""

from __future__ import annotations

import json
import mmap
import re
import struct
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from rollout_tasks.retrieval.documents import Document
from rollout_tasks.retrieval.errors import RetrievalError

_LINES, _OFFSETS = "passages.jsonl", "offsets"
_OFFSET = struct.Struct("<Q")
# Chinese and Japanese have no blanks between words: there, each character counts as one.
UNSPACED = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_WORD = re.compile(rf"[{UNSPACED}]|[^\s{UNSPACED}]+")


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of a document."""

    id: str
    """The document's id, ``#``, and which of its passages it is, from 1."""
    document_id: str
    title: str
    """The document's; empty if it has none."""
    text: str


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage that was found."""

    passage: Passage
    score: float
    """Higher is better; comparable within one search alone."""


def divide(document: Document, words: int, overlap: int) -> Iterator[Passage]:
    """Divides a document into passages.

    Args:
        document: The document.
        words: The most words of a passage.
        overlap: How many words at the end of a passage the next one begins with; fewer than `words`.
    """
    for number, text in enumerate(_pieces(document.text, words, overlap), 1):
        yield Passage(f"{document.id}#{number}", document.id, document.title, text)


def _pieces(text: str, words: int, overlap: int) -> Iterator[str]:
    if len(text) <= words or (text.isascii() and len(text.split(maxsplit=words)) <= words):
        yield text.strip()
        return
    spans = [found.span() for found in _WORD.finditer(text)]
    for first in range(0, max(1, len(spans) - overlap), words - overlap):
        last = min(first + words, len(spans)) - 1
        yield text[spans[first][0] : spans[last][1]]


class PassageWriter:
    """Writes a store, passage by passage; a context manager."""

    def __init__(self, folder: Path) -> None:
        """Begins the files in a folder, which must exist."""
        self._folder = folder
        self._lines = (folder / _LINES).open("wb")
        self._offsets = array("Q", [0])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._lines.close()

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def add(self, passage: Passage) -> int:
        """Appends a passage; returns its row."""
        fields = [passage.id, passage.document_id, passage.title, passage.text]
        line = json.dumps(fields, ensure_ascii=False).encode() + b"\n"
        self._lines.write(line)
        self._offsets.append(self._offsets[-1] + len(line))
        return len(self) - 1

    def finish(self) -> None:
        """Completes the files."""
        self._lines.close()
        with (self._folder / _OFFSETS).open("wb") as file:
            for offset in self._offsets:
                file.write(_OFFSET.pack(offset))


class PassageStore:
    """Reads a store; many processes share its memory."""

    def __init__(self, folder: Path) -> None:
        """Maps the files of a folder.

        Raises:
            RetrievalError: They are missing or damaged.
        """
        try:
            self._lines = _mapped(folder / _LINES)
            self._offsets = _mapped(folder / _OFFSETS)
        except (OSError, ValueError) as error:
            raise RetrievalError(f"{folder}: the index is damaged, remove it: {error}") from error
        self._rows = len(self._offsets) // _OFFSET.size - 1
        if self._rows < 1 or self._offset(self._rows) != len(self._lines):
            raise RetrievalError(f"{folder}: the index is damaged, remove it: its files do not fit each other")

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, row: int) -> Passage:
        if not 0 <= row < self._rows:
            raise IndexError(row)
        return Passage(*json.loads(self._lines[self._offset(row) : self._offset(row + 1)]))

    def _offset(self, row: int) -> int:
        return int(_OFFSET.unpack_from(self._offsets, row * _OFFSET.size)[0])


def _mapped(path: Path) -> mmap.mmap:
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
