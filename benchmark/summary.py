"""Summarises an evaluation's rows: averages, uncertainty, bounds, losses by class, groups. Scores nothing itself.

Rows are counted one by one; only a few numbers of each are kept.
"""

from __future__ import annotations

import heapq
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import fsum
from statistics import fmean
from typing import Literal

from benchmark.results import (
    COVERED,
    ENVIRONMENT,
    PERFECT,
    VALID,
    Group,
    ItemRow,
    Losses,
    Overview,
    RolloutResult,
    RolloutRow,
    Standing,
    Summary,
)
from benchmark.statistics import confidence_interval, ks_to_report, mean, pass_at_k, standard_error

_WORST = 10
_FAILED: frozenset[Standing] = frozenset({"agent_failure", "infrastructure_loss", "cancelled"})


class Tally:
    """Collects the figures of a run, row by row."""

    def __init__(self, metric_name: str, rollouts_per_item: int) -> None:
        """Takes the metric's name and n, the rollouts of each item."""
        self._metric_name = metric_name
        self._asked_metric = self._environment_scored = False
        self._n = rollouts_per_item
        self._all = _Scores()
        self._by_domain: dict[str | None, _Scores] = {}
        self._best = array("d")
        self._evaluated = 0
        self._successes: Counter[int] = Counter()
        self._failures = _LossCounter()
        self._unscored = _LossCounter()
        self._usage = _Usage()
        self._worst: list[tuple[float, int, ItemRow]] = []

    def add(self, row: ItemRow, results: Iterable[RolloutResult]) -> None:
        """Counts an item.

        Args:
            row: The item's scores.
            results: Results of its rollouts, without missing ones.
        """
        valid = [rollout.score or 0.0 for rollout in row.rollouts if rollout.standing in VALID]
        valid_mean = fmean(valid) if valid else None
        for scores in (self._all, self._by_domain.setdefault(row.domain, _Scores())):
            scores.add(row, valid_mean)
        self._best.append(max(rollout.score or 0.0 for rollout in row.rollouts))
        self._evaluated += any(rollout.standing in COVERED for rollout in row.rollouts)
        self._successes[sum((rollout.score or 0.0) >= PERFECT for rollout in row.rollouts)] += 1
        for rollout in row.rollouts:
            self._environment_scored |= rollout.metric_name == ENVIRONMENT
            self._asked_metric |= rollout.metric_name not in {None, ENVIRONMENT} or rollout.standing == "unscored"
            if rollout.standing in _FAILED:
                self._failures.add(row.item_id, rollout)
            elif rollout.standing == "unscored":
                self._unscored.add(row.item_id, rollout)
        for result in results:
            self._usage.add(result)
        self._note_if_bad(row)

    def _note_if_bad(self, row: ItemRow) -> None:
        score = row.score or 0.0
        if score < PERFECT:
            # The heap's first entry is the best of the worst; among equals, the last.
            heapq.heappush(self._worst, (-score, -len(self._best), row))
            if len(self._worst) > _WORST:
                heapq.heappop(self._worst)

    def overview(self) -> Overview:
        """Returns everything that was counted; there must be at least one item."""
        worst = tuple(row for _, _, row in sorted(self._worst, key=lambda one: one[:2], reverse=True))
        return Overview(self._groups(), self._summary(), worst)

    def _groups(self) -> tuple[Group, ...]:
        """Returns one group per domain, by name, items without a domain last; empty when no item has one."""
        if self._by_domain.keys() == {None}:
            return ()
        names = sorted(self._by_domain, key=lambda name: (name is None, name))
        return tuple(self._by_domain[name].as_group(name) for name in names)

    def _summary(self) -> Summary:
        scores = self._all
        total = len(scores.items) * self._n
        average = fmean(scores.items)
        invalid = sum(count for standing, count in scores.standings.items() if standing not in VALID)
        interval = confidence_interval(scores.valid_means)
        return Summary(
            metric=ENVIRONMENT if self._environment_scored and not self._asked_metric else self._metric_name,
            total_items=len(scores.items),
            evaluated_items=self._evaluated,
            rollouts_per_item=self._n,
            total_rollouts=total,
            standings=dict(scores.standings),
            coverage=_coverage(scores.standings),
            average_score=average,
            valid_items=len(scores.valid_means),
            valid_mean=mean(scores.valid_means),
            standard_error=standard_error(scores.valid_means),
            confidence_interval=(interval.low, interval.high) if interval else None,
            interval_method=interval.method if interval else None,
            bounds=(average, min(average + invalid / total, 1.0)),
            max=max(scores.items),
            min=min(scores.items),
            perfect_matches=sum(score >= PERFECT for score in scores.items),
            failures=self._failures.by_class(),
            unscored=self._unscored.by_class(),
            mean_at_n=average,
            max_at_n=fmean(self._best),
            pass_at_k=_pass_at_ks(self._successes, len(scores.items), self._n),
            seconds=fsum(self._usage.seconds),
            stages={stage: round(taken, 3) for stage, taken in self._usage.stages.items()},
            prompt_tokens=self._usage.prompt_tokens,
            completion_tokens=self._usage.completion_tokens,
            cost=fsum(self._usage.costs) if self._usage.costs else None,
            task_code=dict(sorted(self._usage.task_code.items())),
            attestation=dict(sorted(self._usage.attestation.items())),
            record_problems=self._usage.record_problems,
            first_record_problem=self._usage.first_record_problem,
        )


@dataclass(slots=True)
class _Scores:
    """Scores of some items, one or two numbers for each."""

    items: array[float] = field(default_factory=lambda: array("d"))
    valid_means: array[float] = field(default_factory=lambda: array("d"))
    """The mean of each item's valid rollouts; items without a valid rollout are left out."""
    standings: Counter[Standing] = field(default_factory=Counter)

    def add(self, row: ItemRow, valid_mean: float | None) -> None:
        self.items.append(row.score or 0.0)
        if valid_mean is not None:
            self.valid_means.append(valid_mean)
        for rollout in row.rollouts:
            self.standings[rollout.standing] += 1

    def as_group(self, name: str | None) -> Group:
        return Group(
            name=name,
            total_items=len(self.items),
            coverage=_coverage(self.standings),
            average_score=fmean(self.items),
            valid_mean=mean(self.valid_means),
            standard_error=standard_error(self.valid_means),
        )


@dataclass(slots=True)
class _Usage:
    """Time and tokens of the rollouts, added up."""

    seconds: array[float] = field(default_factory=lambda: array("d"))
    stages: dict[str, float] = field(default_factory=dict)
    prompt_tokens: int = 0
    completion_tokens: int = 0
    costs: array[float] = field(default_factory=lambda: array("d"))
    task_code: Counter[str] = field(default_factory=Counter)
    attestation: Counter[str] = field(default_factory=Counter)
    record_problems: int = 0
    first_record_problem: str = ""

    def add(self, result: RolloutResult) -> None:
        self.seconds.append(result.seconds or 0.0)
        for stage, taken in result.stages.items():
            self.stages[stage] = self.stages.get(stage, 0.0) + taken
        self.prompt_tokens += result.prompt_tokens
        self.completion_tokens += result.completion_tokens
        if result.cost is not None:
            self.costs.append(result.cost)
        if result.task_code is not None:
            self.task_code[result.task_code] += 1
        if result.attestation is not None:
            self.attestation[result.attestation] += 1
        if result.record_problem:
            self.record_problems += 1
            self.first_record_problem = self.first_record_problem or result.record_problem


class _LossCounter:
    """Counts losses by failure class, and keeps the first example of each."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._first: dict[str, tuple[Literal["agent", "infrastructure"], str]] = {}

    def add(self, item_id: str, rollout: RolloutRow) -> None:
        failure_class = rollout.failure_class or "internal"
        self._counts[failure_class] += 1
        if failure_class not in self._first:
            counted_as: Literal["agent", "infrastructure"]
            counted_as = "agent" if rollout.standing == "agent_failure" else "infrastructure"
            example = f"{item_id}#{rollout.index}: {rollout.error or 'no reason was recorded'}"
            self._first[failure_class] = (counted_as, example)

    def by_class(self) -> dict[str, Losses]:
        """Returns the losses by class, the most frequent first."""
        ordered = sorted(self._counts.items(), key=lambda one: (-one[1], one[0]))
        return {failure_class: Losses(count, *self._first[failure_class]) for failure_class, count in ordered}


def _coverage(standings: Mapping[Standing, int]) -> float:
    covered = sum(count for standing, count in standings.items() if standing in COVERED)
    return covered / sum(standings.values())


def _pass_at_ks(successes: Mapping[int, int], items: int, n: int) -> dict[int, float]:
    """Takes the number of items by number of successes; returns pass@k by k."""
    return {
        k: sum(count * pass_at_k(n, right, k) for right, count in successes.items()) / items for k in ks_to_report(n)
    }
