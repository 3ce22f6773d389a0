"""Writes an evaluation as JSON, row by row. `stored_report` reads it back; `markdown_report` writes it for people."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

from benchmark.results import Evaluation, ItemRow, Overview, RolloutRow
from benchmark.stored_report import item_scores, read_report
from benchmark.whole_file import WholeFile

__all__ = [
    "BenchmarkInfo",
    "ReportFile",
    "item_scores",
    "read_report",
    "write_report",
]

_ITEM_FIELDS = ("item_id", "domain", "question", "ground_truth", "prediction", "score", "metric_name")
"""Fields of an item's row; ``details`` and ``rollouts`` follow them."""
_ROLLOUT_FIELDS = (
    ("index", "standing", "prediction", "score", "metric_name"),
    ("failure_class", "error", "seconds", "attempts"),
)
"""Fields of a rollout's row, before and after ``details``."""


@dataclass(frozen=True, slots=True)
class BenchmarkInfo:
    """What the report says about the origin of its items."""

    name: str
    data_path: str
    description: str = ""
    scripted: bool = False
    """Whether the scripted model gave the answers; the Markdown report then begins with a notice."""
    left_out: tuple[str, ...] = ()
    """A sentence for each item of the data that was not run; no score counts it."""
    doubted: tuple[str, ...] = ()
    """A sentence for each item whose score cannot be relied on, though every figure counts it."""
    images: tuple[str, ...] = ()
    """The images of the desktops."""


class ReportFile:
    """Writes the JSON report: ``benchmark_info``, ``evaluation_results`` (one per item) and ``summary``.

    A context manager. Readers see the old file or the whole new one; without `end`, nothing changes.
    """

    def __init__(self, path: Path, info: BenchmarkInfo, total_items: int) -> None:
        """Opens nothing yet; `total_items` is the number of rows to come."""
        self._file = WholeFile(path)
        self._heading = {"name": info.name, "description": info.description}
        source: dict[str, Any] = {"data_path": info.data_path, "total_items": total_items, "scripted": info.scripted}
        source |= {key: said for key in ("left_out", "doubted", "images") if (said := getattr(info, key))}
        about = _json({**self._heading, **source}, depth=1)
        self._before_row = f'{{\n "benchmark_info": {about},\n "evaluation_results": [\n'

    def __enter__(self) -> Self:
        self._file.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._file.__exit__()

    def add(self, row: ItemRow) -> None:
        """Writes the next item.

        Raises:
            OSError: The folder cannot be written to, or is full; names the path.
        """
        self._file.write(f"{self._before_row}  {_row(row)}")
        self._before_row = ",\n"

    def end(self, overview: Overview) -> None:
        """Writes the summary and publishes the report; there must be at least one row.

        Raises:
            OSError: As for `add`.
        """
        groups = [asdict(group) for group in overview.groups]
        summary = _json({**self._heading, **asdict(overview.summary), "groups": groups}, depth=1)
        self._file.write(f'\n ],\n "summary": {summary}\n}}\n')
        self._file.publish()


def write_report(path: Path, evaluation: Evaluation, info: BenchmarkInfo) -> None:
    """Writes the JSON report of an evaluation that is in memory.

    Raises:
        OSError: The folder cannot be written to, or is full; names the path.
    """
    with ReportFile(path, info, len(evaluation.rows)) as report:
        for row in evaluation.rows:
            report.add(row)
        report.end(evaluation.overview)


def _row(row: ItemRow) -> str:
    """Returns an item as `_json` would at depth 2, in a fifth of the time: large reports consist mostly of items."""
    plain = _plain(row, _ITEM_FIELDS, depth=3)
    rollouts = ",\n    ".join(_rollout(rollout) for rollout in row.rollouts)
    details = _json(row.details, depth=3)
    return f'{{\n   {plain},\n   "details": {details},\n   "rollouts": [\n    {rollouts}\n   ]\n  }}'


def _rollout(row: RolloutRow) -> str:
    before, after = (_plain(row, names, depth=5) for names in _ROLLOUT_FIELDS)
    return f'{{\n     {before},\n     "details": {_json(row.details, depth=5)},\n     {after}\n    }}'


def _plain(row: ItemRow | RolloutRow, names: Iterable[str], *, depth: int) -> str:
    """Returns fields that are numbers or text, each on its own line."""
    return _encoder(depth)({name: getattr(row, name) for name in names})[1:-1]


@lru_cache
def _encoder(depth: int) -> Callable[[object], str]:
    """Returns Python's fast encoder, which cannot indent, but can put a line break between values."""
    return json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",\n" + " " * depth, ": ")).encode


def _json(value: Mapping[str, Any], *, depth: int) -> str:
    """Returns a value as it looks at this depth of indented JSON."""
    if not value:
        return "{}"
    return json.dumps(dict(value), ensure_ascii=False, allow_nan=False, indent=1).replace("\n", "\n" + " " * depth)
