"""Figures of several runs of the same items: mean of each, best of all, in total, by domain and by group. Pure functions on scores.

Only valid rollouts count: what the infrastructure lost is no 0, and an item without a valid rollout is left out of the means.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from benchmark.scored_items import ScoredItem, is_success
from benchmark.statistics import Interval, confidence_interval, mean

GROUPS: Mapping[str, frozenset[str]] = {
    "OS": frozenset({"os"}),
    "Office": frozenset({"libreoffice_calc", "libreoffice_impress", "libreoffice_writer"}),
    "Daily": frozenset({"vlc", "thunderbird", "chrome"}),
    "Professional": frozenset({"gimp", "vs_code"}),
}
"""The groups of OSWorld's domains in its published tables."""
OVERALL, INFEASIBLE, NO_DOMAIN = "overall", "infeasible", "-"


@dataclass(frozen=True, slots=True)
class Figures:
    """How some items went, in one run or in several together."""

    asked: int
    """Rollouts that were asked for."""
    valid: int
    items: int
    """Items with a valid rollout."""
    score: float
    """Mean over all rollouts that were asked for; what has no score counts 0."""
    valid_mean: float | None
    """Mean over items of the mean of their valid rollouts."""
    interval: Interval | None
    """95 % interval of that mean; where several runs are taken together, it would say nothing."""
    best_mean: float | None
    """Mean over items of the best of their valid rollouts."""
    any_correct: int
    """Items that at least one valid rollout solved."""


@dataclass(frozen=True, slots=True)
class Line:
    """The figures of a part of the items."""

    kind: str
    """``domain``, ``group``, ``infeasible`` or ``overall``."""
    name: str
    items: int
    runs: tuple[Figures, ...]
    """Of each run."""
    together: Figures
    """Of all their rollouts, as if they were one run's."""


@dataclass(frozen=True, slots=True)
class ItemBest:
    """One item in all runs."""

    item_id: str
    domain: str | None
    means: tuple[float | None, ...]
    """Of each run: the mean of its valid rollouts."""
    best: float | None
    """The highest score of a valid rollout of any run."""

    @property
    def solved(self) -> bool:
        """Whether a valid rollout of any run has the full score."""
        return self.best is not None and is_success(self.best)


def figures(items: Iterable[ScoredItem]) -> Figures:
    """Returns the figures of some items of one run.

    Args:
        items: The items.
    """
    found = list(items)
    means = [one.mean for one in found if one.mean is not None]
    bests = [one.best for one in found if one.best is not None]
    asked = sum(one.asked for one in found)
    return Figures(
        asked=asked,
        valid=sum(len(one.valid) for one in found),
        items=len(means),
        score=sum(one.score_sum for one in found) / asked if asked else 0.0,
        valid_mean=mean(means),
        interval=confidence_interval(means),
        best_mean=mean(bests),
        any_correct=sum(map(is_success, bests)),
    )


def lines(
    runs: Sequence[Mapping[str, ScoredItem]], item_ids: Sequence[str], infeasible: frozenset[str] = frozenset()
) -> list[Line]:
    """Returns the figures by domain, by OSWorld's groups, of infeasible items, and of all.

    Args:
        runs: Items by id, of each run; all must have the items.
        item_ids: The items that count.
        infeasible: Those that cannot be solved, where the right answer is to say so.
    """
    domains: dict[str, list[str]] = {}
    for name in item_ids:
        domains.setdefault(runs[0][name].domain or NO_DOMAIN, []).append(name)
    parts = [("domain", name, domains[name]) for name in sorted(domains)]
    for group, members in GROUPS.items():
        if inside := [name for domain in sorted(members & domains.keys()) for name in domains[domain]]:
            parts.append(("group", group, inside))
    if inside := [name for name in item_ids if name in infeasible]:
        parts.append((INFEASIBLE, INFEASIBLE, inside))
    parts.append((OVERALL, OVERALL, list(item_ids)))
    return [_line(kind, name, runs, inside) for kind, name, inside in parts]


def _line(kind: str, name: str, runs: Sequence[Mapping[str, ScoredItem]], item_ids: Sequence[str]) -> Line:
    each = tuple(figures(run[item_id] for item_id in item_ids) for run in runs)
    return Line(kind, name, len(item_ids), each, _together(runs, item_ids, each))


def _together(runs: Sequence[Mapping[str, ScoredItem]], item_ids: Sequence[str], each: Sequence[Figures]) -> Figures:
    means: list[float] = []
    bests: list[float] = []
    for name in item_ids:
        scores = [score for run in runs for score in run[name].valid.values()]
        if scores:
            means.append(sum(scores) / len(scores))
            bests.append(max(scores))
    asked = sum(one.asked for one in each)
    return Figures(
        asked=asked,
        valid=sum(one.valid for one in each),
        items=len(means),
        score=sum(one.score * one.asked for one in each) / asked if asked else 0.0,
        valid_mean=mean(means),
        interval=None,
        best_mean=mean(bests),
        any_correct=sum(map(is_success, bests)),
    )


def bests(runs: Sequence[Mapping[str, ScoredItem]], item_ids: Sequence[str]) -> list[ItemBest]:
    """Returns each item's mean in each run, and its best score in any.

    Args:
        runs: Items by id, of each run; all must have the items.
        item_ids: The items.
    """
    found = []
    for name in item_ids:
        items = [run[name] for run in runs]
        best = max((one.best for one in items if one.best is not None), default=None)
        found.append(ItemBest(name, items[0].domain, tuple(one.mean for one in items), best))
    return found
