"""Entries of a benchmark source: the fields at one place, or the reason why they cannot be read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmark.errors import BenchmarkError


@dataclass(frozen=True, slots=True)
class Entry:
    """One line, entry or row of a source: its fields, or the reason why they cannot be read."""

    where: str
    """File and line or entry; error messages begin with it."""
    number: int
    """Line (JSONL, CSV), entry (JSON) or row, from 1."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    problem: str | None = None
    question_field: str = "question"
    """Name of the question's field in the source."""


MOST_LEVELS = 64
"""How deeply lists and objects may be nested: what handles an item later, here or on a worker, may recurse for each level."""


def too_deep(value: object) -> str | None:
    """Returns the end of a sentence that says lists and objects are nested too deeply; None where they are not."""
    level: list[Any] = [value]
    for _ in range(MOST_LEVELS + 1):
        level = [one for one in level if isinstance(one, list | tuple | dict)]
        if not level:
            return None
        level = [inner for one in level for inner in (one.values() if isinstance(one, dict) else one)]
    return f"has lists and objects nested more than {MOST_LEVELS} deep"


def unreadable(path: Path, error: OSError) -> BenchmarkError:
    """Returns an error that names the file and why it cannot be read."""
    reason = (
        os.strerror(error.errno) if error.errno else " ".join(str(error).split())
    )  # packages have words of their own
    return BenchmarkError(f"{path}: cannot be read: {reason}")
