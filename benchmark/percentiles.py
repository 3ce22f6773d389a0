"""Percentiles of durations, and their shares. Pure functions on seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum

PERCENTILES = (50, 90, 99)


@dataclass(frozen=True, slots=True)
class Spread:
    """How some durations are distributed, in seconds."""

    count: int
    total: float
    mean: float
    p50: float
    p90: float
    p99: float


def spread(seconds: Sequence[float]) -> Spread | None:
    """Returns the distribution of durations; None if there are none.

    Args:
        seconds: In any order. Between two of them, percentiles are interpolated linearly.
    """
    if not seconds:
        return None
    import numpy as np  # here, so that workers stay small

    values = np.asarray(seconds, dtype=np.float64)
    p50, p90, p99 = (float(one) for one in np.percentile(values, PERCENTILES))
    total = fsum(seconds)
    return Spread(len(seconds), total, total / len(seconds), p50, p90, p99)


def shares(totals: Mapping[str, float]) -> dict[str, float]:
    """Returns each part's share of the sum; all 0 where the sum is 0.

    Args:
        totals: Seconds by part.
    """
    whole = fsum(totals.values())
    return {name: total / whole if whole else 0.0 for name, total in totals.items()}
