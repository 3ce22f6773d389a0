"""Reads a JSON report back: whole, or row by row when it may be large. `benchmark.report` writes it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

from benchmark.errors import BenchmarkError

_ROWS = "evaluation_results"
_SECTIONS = {"benchmark_info": dict, _ROWS: list, "summary": dict}
_READ_CHARACTERS = 1 << 16
_BLANKS = " \t\r\n"
_AFTER_A_NUMBER = tuple(",]}" + _BLANKS)
"""Before any other character, or at the end of what was read so far, a number may go on."""


def read_report(path: Path) -> dict[str, Any]:
    """Reads a whole JSON report.

    Raises:
        BenchmarkError: It is missing, cannot be read, or is not such a report.
    """
    rows: list[Any] = []
    return {**scan_report(path, rows.append), _ROWS: rows}


def scan_report(path: Path, each_row: Callable[[Any], None] | None = None) -> dict[str, Any]:
    """Reads a JSON report with one row in memory at a time.

    Args:
        path: The report.
        each_row: Called with each of its ``evaluation_results``, in order; also when the report later proves broken.

    Returns:
        Its other sections, ``benchmark_info`` and ``summary``.

    Raises:
        BenchmarkError: As for `read_report`.
    """
    sections: dict[str, Any] = {}
    section_types: dict[str, type] = {}
    try:
        with path.open(encoding="utf-8", newline="") as file:
            document = _Document(file)
            for name in document.names():
                if name == _ROWS and document.next_character() == "[":
                    section_types[name] = list
                    for row in document.elements():
                        if each_row is not None:
                            each_row(row)
                else:
                    sections[name] = document.value()
                    section_types[name] = type(sections[name])
    except OSError as error:
        raise BenchmarkError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise BenchmarkError(f"{path}: is not a JSON report: {error}") from error
    for section, kind in _SECTIONS.items():
        if section_types.get(section) is not kind:
            raise BenchmarkError(f"{path}: is not an evaluation report: {section} is missing or of the wrong kind")
    return sections


def item_scores(report: Mapping[str, Any]) -> dict[str, float]:
    """Returns scores by item id from a JSON report, for `benchmark.statistics.compare_paired`; missing counts 0."""
    return {row["item_id"]: row["score"] or 0.0 for row in report[_ROWS]}


class _Document:
    """A JSON text that is read only as far as the next value; raises ValueError when it is not JSON."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._decoder = json.JSONDecoder()
        self._text = ""
        self._at = 0

    def names(self) -> Iterator[str]:
        """Yields the names of the document's object, to its end; nothing when the document is not an object.

        The caller must read each name's value before going on.
        """
        if self.next_character() != "{":
            self.value()
        else:
            for _ in self._entries("}"):
                name = self.value()
                if not isinstance(name, str):
                    raise ValueError("a name that is not text")
                self._take(":")
                yield name
        if self.next_character():
            raise ValueError("it goes on after its end")

    def elements(self) -> Iterator[Any]:
        """Yields the values of the next list."""
        for _ in self._entries("]"):
            yield self.value()

    def value(self) -> Any:
        """Returns the whole next value."""
        self.next_character()
        while True:
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
            except json.JSONDecodeError:
                if not self._read_on():
                    raise
                continue
            except RecursionError:
                raise ValueError("it is nested too deep") from None
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if number and self._text[end : end + 1] not in _AFTER_A_NUMBER and self._read_on():
                continue
            self._at = end
            return value

    def next_character(self) -> str:
        """Returns the next character that is not blank; empty at the end."""
        while True:
            while self._at < len(self._text):
                if self._text[self._at] not in _BLANKS:
                    return self._text[self._at]
                self._at += 1
            if not self._read_on():
                return ""

    def _entries(self, closing: str) -> Iterator[None]:
        """Walks through an object or a list: yields before each entry, and ends after the closing bracket."""
        self._at += 1
        if self.next_character() == closing:
            self._at += 1
            return
        while True:
            yield
            if self.next_character() == closing:
                self._at += 1
                return
            self._take(",")

    def _take(self, character: str) -> None:
        if self.next_character() != character:
            raise ValueError(f"expected {character!r}, found {self.next_character()!r}")
        self._at += 1

    def _read_on(self) -> bool:
        """Reads as much again as is held already, so that a long value is not parsed too often."""
        self._text = self._text[self._at :]
        self._at = 0
        more = self._file.read(max(_READ_CHARACTERS, len(self._text)))
        self._text += more
        return bool(more)
