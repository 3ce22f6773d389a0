"""Small defects that could be planted in one file: candidates, of which some are drawn and become mutants."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Candidate:
    """A place where a rule can plant a defect."""

    file: str
    """Path in the repository."""
    source: str = field(repr=False)
    """The whole file."""
    place: tuple[int, int]
    """Line from 1 and column from 0 of what is changed."""
    kind: str
    """The rule's name."""
    change: Callable[[], str | None] = field(repr=False)
    """The file with the defect in it; None where it would mean the same, or nothing."""

    def mutant(self) -> Mutant | None:
        """Returns the defect, if the rule can plant one here."""
        text = self.change()
        if text is None:
            return None
        line = self.place[0]
        return Mutant(self.file, self.place, self.kind, line_of(self.source, line), line_of(text, line), text)


@dataclass(frozen=True, slots=True)
class Mutant:
    """One defect. Nothing is planted yet."""

    file: str
    """Path in the repository."""
    place: tuple[int, int]
    """Line from 1 and column from 0 of what is changed."""
    kind: str
    """The rule's name."""
    before: str
    """The line that is changed, without its indentation."""
    after: str
    """The changed line."""
    text: str = field(repr=False)
    """The whole file with the defect in it."""

    @property
    def id(self) -> str:
        """Stays the same as long as the file around the defect does."""
        return hashlib.sha256(f"{self.file}\0{self.text}".encode()).hexdigest()[:16]

    def __str__(self) -> str:
        return f"{self.file}:{self.place[0]}: {self.kind}: {self.before}  ->  {self.after}"


def line_of(text: str, line: int) -> str:
    """Returns a line, counted from 1, without its indentation."""
    lines = text.splitlines()
    return lines[line - 1].strip() if line <= len(lines) else ""
