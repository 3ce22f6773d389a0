"""The scores of a stored report, item by item and checked: a report may come from elsewhere. Computes no statistics.

Only valid rollouts have a score here: one that the infrastructure lost says nothing about the agent, so it is no 0 either.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, get_args

from benchmark.results import PERFECT, VALID, Standing
from benchmark.stored_report import scan_report

_STANDINGS = frozenset(get_args(Standing))
_MOST_INDEX = 1_000_000
"""Above any number of rollouts of one item."""


@dataclass(frozen=True, slots=True)
class ScoredItem:
    """One item of a report, with its valid rollouts."""

    item_id: str
    domain: str | None
    asked: int
    """Rollouts that the run asked for."""
    valid: Mapping[int, float]
    """Score in [0, 1] of each valid rollout, by its index."""
    score_sum: float
    """Over all rollouts, where a missing score counts 0."""
    metric: str | None
    """What scored its rollouts, or the first of them; None if none was scored."""
    content: bytes
    """Digest of question and reference answer: two runs have the same item if it is the same."""

    @property
    def mean(self) -> float | None:
        """Mean score of the valid rollouts; None if there are none."""
        return fmean(self.valid.values()) if self.valid else None

    @property
    def best(self) -> float | None:
        """Highest score of the valid rollouts; None if there are none."""
        return max(self.valid.values(), default=None)


@dataclass(frozen=True, slots=True)
class ScoredReport:
    """The scores of one run."""

    metric: str
    """The report's metric; ``environment`` where that gave all scores."""
    scripted: bool
    """Whether the scripted model gave the answers."""
    items: Mapping[str, ScoredItem]
    """By id, in the report's order."""


def is_success(score: float) -> bool:
    """Whether a score is the full one."""
    return score >= PERFECT


def scored_report(path: Path) -> ScoredReport:
    """Reads the scores of a JSON report.

    Args:
        path: The report.

    Raises:
        BenchmarkError: It is missing, cannot be read, or is not such a report.
    """
    items: dict[str, ScoredItem] = {}

    def add(row: Any) -> None:
        item = _item(row, len(items) + 1)
        if item.item_id in items:
            raise ValueError(f"item {item.item_id!r} has two rows")
        items[item.item_id] = item

    def add_checked(row: Any) -> None:
        try:
            add(row)
        except (ArithmeticError, AttributeError, LookupError, TypeError) as error:
            raise ValueError(f"row {len(items) + 1} is not one of an evaluation") from error

    sections = scan_report(path, add_checked)
    return ScoredReport(
        metric=str(sections["summary"].get("metric", "")),
        scripted=sections["benchmark_info"].get("scripted") is True,
        items=items,
    )


def _item(row: Mapping[str, Any], number: int) -> ScoredItem:
    item_id, domain = row["item_id"], row["domain"]
    if type(item_id) is not str or not (domain is None or type(domain) is str):
        raise TypeError
    valid: dict[int, float] = {}
    indices: set[int] = set()
    metric: str | None = None
    score_sum = 0.0
    for rollout in row["rollouts"]:
        index, standing, score = rollout["index"], rollout["standing"], _score(rollout["score"])
        if type(index) is not int or not 0 <= index < _MOST_INDEX or standing not in _STANDINGS:
            raise TypeError
        if index in indices:
            raise ValueError(f"row {number} has rollout {index} twice")
        indices.add(index)
        score_sum += score or 0.0
        if standing in VALID:
            valid[index] = score or 0.0
        if standing == "scored" and metric is None:
            metric = str(rollout["metric_name"])
    if not indices:
        raise TypeError
    content = _digest(row["question"], row["ground_truth"])
    return ScoredItem(item_id, domain, len(indices), valid, score_sum, metric, content)


def _score(value: Any) -> float | None:
    if value is None:
        return None
    if type(value) not in {int, float} or not math.isfinite(value) or not 0.0 <= value <= 1.0:
        raise TypeError
    return float(value)


def _digest(question: str, reference: str) -> bytes:
    texts = (question, reference)
    return hashlib.sha256(b"\0".join(text.encode("utf-8", "surrogatepass") for text in texts)).digest()[:16]
