"""Whether two runs of the same items differ, by how much, and how many items it takes to tell. Pure functions on scores.

The items are the independent observations. Several rollouts of one item are alike, so each item counts once, with the mean of
its valid rollouts. Items without a valid rollout in both runs say nothing about the difference and are left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, stdev

from benchmark.errors import BenchmarkError
from benchmark.scored_items import ScoredItem, is_success
from benchmark.statistics import CONFIDENCE, Interval, compare_paired

LEVEL = 1.0 - CONFIDENCE
"""Of two-sided tests: how often they find a difference where there is none."""
POWER = 0.8
"""How often the test finds a difference that is there; what is usual where studies are planned."""
_RESAMPLES = 9_999
_RESAMPLED_AT_A_TIME = 2_000_000
"""Differences drawn at once, to bound memory."""
_EXACT_UNTIL = 100_000
"""Items; for more, the normal distribution is as good as Student's."""
_LARGE_SHIFT = 20.0
"""Of the noncentral t distribution: from here on, two items have a power of 0.88, and scipy may compute no number."""
_LEAST_SPREAD = 1e-9
"""Differences that vary less are the same, but for rounding."""


@dataclass(frozen=True, slots=True)
class McNemar:
    """McNemar's exact test of pass against fail, with one rollout of each item and run."""

    both: int
    first_only: int
    """Items that only the first run passed."""
    second_only: int
    neither: int
    p_value: float
    """Two-sided."""


@dataclass(frozen=True, slots=True)
class ItemDifference:
    """An item whose scores differ."""

    item_id: str
    domain: str | None
    first: float
    """Mean of the item's valid rollouts in the first run."""
    second: float
    index: int | None
    """The first rollout that is valid in both runs, if possible one whose scores differ; None if there is none."""

    @property
    def difference(self) -> float:
        """Second minus first."""
        return self.second - self.first


@dataclass(frozen=True, slots=True)
class Needed:
    """How many items a paired t test needs, at `LEVEL` and with `POWER`, if items differ as much as they did here."""

    difference: float
    items: int | None
    """Items to find that difference; None where no spread is known."""
    found_here: float | None
    """The smallest difference that as many items as here find."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The second run against the first."""

    items: int
    """Items with a valid rollout in both runs."""
    left_out: int
    """Items without."""
    first_mean: float
    """Mean over those items of the mean of their valid rollouts."""
    second_mean: float
    difference: float
    """Second minus first."""
    interval: Interval | None
    """Of the difference; None where all items differ by the same."""
    p_value: float
    """Of a test that swaps the runs within items."""
    mcnemar: McNemar
    needed: Needed
    differing: tuple[ItemDifference, ...]
    """The largest differences first."""


def compare_items(
    first: Mapping[str, ScoredItem], second: Mapping[str, ScoredItem], item_ids: Sequence[str], difference: float
) -> Comparison:
    """Compares two runs on some items.

    Args:
        first: Items by id.
        second: Those of the other run.
        item_ids: The items to compare; both runs must have them.
        difference: How large a difference of the means `Comparison.needed` is about, in (0, 1].

    Raises:
        BenchmarkError: No item has a valid rollout in both runs.
    """
    pairs = [(first[name], second[name]) for name in item_ids if first[name].valid and second[name].valid]
    if not pairs:
        raise BenchmarkError("no item has a valid rollout in both runs")
    means = {one.item_id: (fmean(one.valid.values()), fmean(two.valid.values())) for one, two in pairs}
    paired = compare_paired(
        {name: pair[0] for name, pair in means.items()}, {name: pair[1] for name, pair in means.items()}
    )
    differences = [two - one for one, two in means.values()]
    differing = [
        ItemDifference(one.item_id, one.domain, *means[one.item_id], _differing_index(one, two))
        for one, two in pairs
        if abs(means[one.item_id][1] - means[one.item_id][0]) > _LEAST_SPREAD
    ]
    return Comparison(
        items=len(pairs),
        left_out=len(item_ids) - len(pairs),
        first_mean=fmean(one for one, _ in means.values()),
        second_mean=fmean(two for _, two in means.values()),
        difference=paired.mean_difference,
        interval=bootstrap_interval(differences),
        p_value=paired.p_value,
        mcnemar=mcnemar(_outcomes(pairs)),
        needed=needed_items(differences, difference),
        differing=tuple(sorted(differing, key=lambda one: (-abs(one.difference), one.item_id))),
    )


def first_common_index(first: ScoredItem, second: ScoredItem) -> int | None:
    """Returns the lowest index of a rollout that is valid in both runs; None if there is none."""
    return min(first.valid.keys() & second.valid.keys(), default=None)


def _differing_index(first: ScoredItem, second: ScoredItem) -> int | None:
    common = first.valid.keys() & second.valid.keys()
    differing = [index for index in common if first.valid[index] != second.valid[index]]
    return min(differing or common, default=None)


def _outcomes(pairs: Iterable[tuple[ScoredItem, ScoredItem]]) -> Iterable[tuple[bool, bool]]:
    """Yields whether one rollout of each item passed: a fixed one, as a choice by score would prefer one of the runs."""
    for first, second in pairs:
        index = first_common_index(first, second)
        if index is not None:
            yield is_success(first.valid[index]), is_success(second.valid[index])


def mcnemar(outcomes: Iterable[tuple[bool, bool]]) -> McNemar:
    """Returns McNemar's exact test.

    Args:
        outcomes: For each item, whether the first run and whether the second passed it.
    """
    counts = {(True, True): 0, (True, False): 0, (False, True): 0, (False, False): 0}
    for outcome in outcomes:
        counts[outcome] += 1
    first_only, second_only = counts[True, False], counts[False, True]
    p_value = 1.0
    if first_only + second_only:
        from scipy.stats import binomtest  # here, so that workers stay small

        p_value = float(binomtest(first_only, first_only + second_only, 0.5).pvalue)
    return McNemar(counts[True, True], first_only, second_only, counts[False, False], p_value)


def bootstrap_interval(differences: Sequence[float]) -> Interval | None:
    """Returns the 95 % interval of the mean difference, by drawing items again; None where all items differ by the same.

    The bootstrap takes whole items, so rollouts of one item stay together. Percentiles of the drawn means are a little
    too close for few items: they are taken further out, by as much as Student's interval is wider than the normal one with the
    biased spread (Hesterberg 2015, "What Teachers Should Know About the Bootstrap", expanded percentile interval). The
    draws have a fixed seed.

    Args:
        differences: Second minus first, for each item.
    """
    items = len(differences)
    if items < 2 or max(differences) - min(differences) < _LEAST_SPREAD:
        return None
    import numpy as np  # here, so that workers stay small
    from scipy.special import stdtrit
    from scipy.stats import bootstrap

    further = math.sqrt(items / (items - 1)) * float(stdtrit(items - 1, 0.5 + CONFIDENCE / 2))
    drawn = bootstrap(
        (np.asarray(differences, dtype=np.float64),),
        np.mean,
        n_resamples=_RESAMPLES,
        batch=max(1, _RESAMPLED_AT_A_TIME // items),
        vectorized=True,
        confidence_level=1.0 - 2.0 * NormalDist().cdf(-further),
        method="percentile",
        rng=np.random.default_rng(0),
    )
    interval = drawn.confidence_interval
    return Interval(float(interval.low), float(interval.high), "bootstrap")


def needed_items(differences: Sequence[float], difference: float) -> Needed:
    """Returns how many items a difference needs to be found.

    Args:
        differences: Second minus first, for each item of a comparison: their spread is taken as that of all items.
        difference: The difference of the means, in (0, 1].
    """
    spread = stdev(differences) if len(differences) > 1 else 0.0
    if spread < _LEAST_SPREAD:
        return Needed(difference, None, None)
    return Needed(difference, items_for(difference / spread), _found_effect(len(differences)) * spread)


def items_for(effect: float) -> int:
    """Returns the fewest items with which a two-sided paired t test has `POWER` at `LEVEL`.

    Args:
        effect: The difference of the means over the standard deviation of the items' differences; more than 0.
    """
    normal = NormalDist()
    level, power = normal.inv_cdf(1.0 - LEVEL / 2), normal.inv_cdf(POWER)
    items = max(2, math.floor(((level + power) / effect) ** 2))
    if items > _EXACT_UNTIL:
        return math.ceil(((level + power) / effect) ** 2 + level**2 / 2)  # Guenther's correction of the normal one
    while _power(effect, items) < POWER:
        items += 1
    return items


def _power(effect: float, items: int) -> float:
    """Returns how often a two-sided paired t test finds an effect; the few times that it finds the opposite are left out."""
    from scipy.special import nctdtr, stdtrit  # here, so that workers stay small

    shift = effect * math.sqrt(items)
    if shift > _LARGE_SHIFT:
        return 1.0
    return float(1.0 - nctdtr(items - 1, shift, stdtrit(items - 1, 1.0 - LEVEL / 2)))


def _found_effect(items: int) -> float:
    """Returns the smallest effect that this many items find with `POWER`."""
    from scipy.special import nctdtrinc, stdtrit  # here, so that workers stay small

    return float(nctdtrinc(items - 1, 1.0 - POWER, stdtrit(items - 1, 1.0 - LEVEL / 2))) / math.sqrt(items)


def holm(p_values: Sequence[float]) -> list[float]:
    """Returns p-values adjusted for being several, by Holm's method: the smallest counts as often as there are tests."""
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = highest
    return adjusted
