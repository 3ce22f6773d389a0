"""Statistics of scores: means with their uncertainty, pass@k, whether two runs differ. Pure functions on numbers.

numpy and scipy are imported inside the functions that need them, so that workers which never evaluate stay small.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, stdev
from typing import Literal

from benchmark.errors import BenchmarkError

CONFIDENCE = 0.95
_RESAMPLES = 9_999
_RESAMPLES_AT_A_TIME = 500
"""Bounds the memory of the permutation test: this many times the number of differing items."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A confidence interval of a mean."""

    low: float
    high: float
    method: Literal["wilson", "t", "bootstrap"]


@dataclass(frozen=True, slots=True)
class PairedComparison:
    """How much better the second run did on the items that both runs have."""

    items: int
    mean_difference: float
    """Second minus first."""
    standard_error: float | None
    interval: Interval | None
    p_value: float
    """Two-sided: how often chance alone gives a mean difference at least this far from 0."""
    only_in_first: int
    only_in_second: int


def mean(values: Sequence[float]) -> float | None:
    """Returns the arithmetic mean; None when there are no values."""
    return fmean(values) if values else None


def standard_error(item_means: Sequence[float]) -> float | None:
    """Returns the standard error of the mean of per-item means; None for fewer than two items.

    Rollouts of one item are alike, so items, not rollouts, are the independent observations: averaging within items
    first clusters the error by item.
    """
    if len(item_means) < 2:
        return None
    return stdev(item_means) / math.sqrt(len(item_means))


def confidence_interval(item_means: Sequence[float]) -> Interval | None:
    """Returns the 95 % interval of the mean of per-item means in [0, 1]; None when there are too few items.

    Wilson's score interval when every item's mean is 0 or 1: it holds for few items and at 0 % or 100 %, where the
    spread is 0 and says nothing. Otherwise Student's t over the items, cut to [0, 1].
    """
    if item_means and all(value in (0.0, 1.0) for value in item_means):
        return _wilson(sum(item_means), len(item_means))
    return _student(item_means, 0.0, 1.0)


def pass_at_k(rollouts: int, successes: int, k: int) -> float:
    """Returns the chance that at least one of k rollouts, drawn without replacement from those made, succeeds.

    Unbiased: 1 - C(n - c, k) / C(n, k) (Chen et al. 2021, "Evaluating Large Language Models Trained on Code"), as a
    product of ratios, so that nothing overflows.

    Raises:
        BenchmarkError: k is not between 1 and the number of rollouts, or the successes are not between 0 and that.
    """
    if not 1 <= k <= rollouts:
        raise BenchmarkError(f"pass@{k} needs k between 1 and the {rollouts} rollouts of an item")
    if not 0 <= successes <= rollouts:
        raise BenchmarkError(f"{successes} successes in {rollouts} rollouts are impossible")
    if rollouts - successes < k:
        return 1.0
    return 1.0 - math.prod(1.0 - k / i for i in range(rollouts - successes + 1, rollouts + 1))


def ks_to_report(rollouts: int) -> list[int]:
    """Returns 1, 2, 4, ... and the number of rollouts itself."""
    ks = [2**power for power in range(rollouts.bit_length()) if 2**power < rollouts]
    return [*ks, rollouts]


def compare_paired(first: Mapping[str, float], second: Mapping[str, float]) -> PairedComparison:
    """Compares two runs item by item.

    The p-value comes from a permutation test that swaps the runs within items: exact for few differing items, else from
    9,999 random swaps with a fixed seed. It assumes nothing about how scores are distributed.

    Args:
        first: Score by item id.
        second: The same for the other run; items that only one run has are counted and left out.

    Raises:
        BenchmarkError: The runs have no item in common.
    """
    shared = [item_id for item_id in first if item_id in second]
    if not shared:
        raise BenchmarkError("the two runs have no item in common")
    differences = [second[item_id] - first[item_id] for item_id in shared]
    return PairedComparison(
        items=len(shared),
        mean_difference=fmean(differences),
        standard_error=standard_error(differences),
        interval=_student(differences, -1.0, 1.0),
        p_value=_sign_flip_p_value([difference for difference in differences if difference]),
        only_in_first=len(first) - len(shared),
        only_in_second=len(second) - len(shared),
    )


def _wilson(successes: float, trials: int) -> Interval:
    z = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)
    share = successes / trials
    scale = 1 + z * z / trials
    middle = (share + z * z / (2 * trials)) / scale
    half = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials)) / scale
    low = 0.0 if successes == 0 else max(middle - half, 0.0)
    high = 1.0 if successes == trials else min(middle + half, 1.0)
    return Interval(low, high, "wilson")


def _student(values: Sequence[float], lowest: float, highest: float) -> Interval | None:
    error = standard_error(values)
    if not error:  # values that are all the same say nothing about the spread
        return None
    from scipy.special import stdtrit  # here, so that workers stay small

    half = float(stdtrit(len(values) - 1, 0.5 + CONFIDENCE / 2)) * error
    middle = fmean(values)
    return Interval(max(middle - half, lowest), min(middle + half, highest), "t")


def _sign_flip_p_value(differences: Sequence[float]) -> float:
    """Takes the differences that are not 0: swapping items without a difference changes nothing."""
    if not differences:
        return 1.0
    if len(differences) == 1:
        return 1.0  # both signs are equally likely and equally far from 0
    import numpy as np  # here, so that workers stay small
    from scipy.stats import permutation_test

    gains = np.asarray(differences, dtype=np.float64)
    gains /= np.abs(gains).sum()  # so that rounding is as fine for small differences
    test = permutation_test(
        (gains, np.zeros_like(gains)),
        # Rounded, so that swaps which lead equally far are equal, whatever the order in which they were added up.
        lambda second, first, axis: (second - first).sum(axis=axis).round(9),
        permutation_type="samples",
        vectorized=True,
        n_resamples=_RESAMPLES,
        batch=_RESAMPLES_AT_A_TIME,
        rng=np.random.default_rng(0),
    )
    return float(test.pvalue)
