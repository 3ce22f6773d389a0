"""How good an answer is, and what a metric is: a function that says so."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from benchmark.items import Item


@dataclass(frozen=True, slots=True)
class Score:
    """How good an answer is."""

    value: float
    """From 0 (wrong) to 1 (right)."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """How the score was reached, as JSON types."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.value) and 0.0 <= self.value <= 1.0):
            raise ValueError(f"a score must be between 0 and 1, got {self.value!r}")


class Metric(Protocol):
    """Compares an answer with the reference. When it raises a plain error, the answer gets no score."""

    def __call__(self, prediction: str, answer: str, item: Item, /) -> Score:
        """Scores one answer."""
