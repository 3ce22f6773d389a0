"""What a source gives for one place of it: fields, or the reason why there are none."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmark.errors import BenchmarkError


@dataclass(frozen=True, slots=True)
class Entry:
    """What stood at one place: fields, or the reason why they could not be read."""

    where: str
    """File and line or entry, as sentences begin with."""
    number: int
    """Line (JSONL, CSV), entry (JSON) or row, from 1."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    problem: str | None = None
    question_field: str = "question"
    """What the question is called there."""


def unreadable(path: Path, error: OSError) -> BenchmarkError:
    """The error that names a file and why it cannot be read."""
    return BenchmarkError(f"{path}: cannot be read: {error.strerror or os.strerror(error.errno or 0)}")
