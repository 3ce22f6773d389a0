"""Sums an evaluation's rows up: averages, uncertainty, bounds, losses by class, groups. Scores nothing itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Literal

from benchmark.results import (
    COVERED,
    PERFECT,
    VALID,
    Group,
    ItemRow,
    Losses,
    RolloutResult,
    RolloutRow,
    Standing,
    Summary,
)
from benchmark.statistics import confidence_interval, ks_to_report, mean, pass_at_k, standard_error


def group_by_domain(rows: Sequence[ItemRow]) -> tuple[Group, ...]:
    """One group per domain, by name, items without one last; none when no item has a domain."""
    members: dict[str | None, list[ItemRow]] = {}
    for row in rows:
        members.setdefault(row.domain, []).append(row)
    if members.keys() == {None}:
        return ()
    return tuple(_group(name, members[name]) for name in sorted(members, key=lambda name: (name is None, name)))


def _group(name: str | None, rows: Sequence[ItemRow]) -> Group:
    valid_means = _valid_means(rows)
    return Group(
        name=name,
        total_items=len(rows),
        coverage=_coverage(_standings(rows)),
        average_score=_average(rows),
        valid_mean=mean(valid_means),
        standard_error=standard_error(valid_means),
    )


def summarize(rows: Sequence[ItemRow], results: Iterable[RolloutResult], metric_name: str, n: int) -> Summary:
    """All figures of a run."""
    results = list(results)
    standings = _standings(rows)
    valid_means = _valid_means(rows)
    interval = confidence_interval(valid_means)
    item_scores = [row.score or 0.0 for row in rows]
    average = _average(rows)
    total = len(rows) * n
    invalid = sum(count for standing, count in standings.items() if standing not in VALID)
    return Summary(
        metric=metric_name,
        total_items=len(rows),
        evaluated_items=sum(any(rollout.standing in COVERED for rollout in row.rollouts) for row in rows),
        rollouts_per_item=n,
        total_rollouts=total,
        standings=standings,
        coverage=_coverage(standings),
        average_score=average,
        valid_items=len(valid_means),
        valid_mean=mean(valid_means),
        standard_error=standard_error(valid_means),
        confidence_interval=(interval.low, interval.high) if interval else None,
        interval_method=interval.method if interval else None,
        bounds=(average, min(average + invalid / total, 1.0)),
        max=max(item_scores),
        min=min(item_scores),
        perfect_matches=sum(score >= PERFECT for score in item_scores),
        failures=_losses(rows, {"agent_failure", "infrastructure_loss", "cancelled"}),
        unscored=_losses(rows, {"unscored"}),
        mean_at_n=average,
        max_at_n=fmean(max(rollout.score or 0.0 for rollout in row.rollouts) for row in rows),
        pass_at_k=_pass_at_ks(rows, n),
        seconds=sum(result.seconds or 0.0 for result in results),
        stages=_stages(results),
        prompt_tokens=sum(result.prompt_tokens for result in results),
        completion_tokens=sum(result.completion_tokens for result in results),
    )


def _stages(results: Iterable[RolloutResult]) -> dict[str, float]:
    seconds: Counter[str] = Counter()
    for result in results:
        seconds.update(result.stages)
    return {stage: round(taken, 3) for stage, taken in seconds.items()}


def _standings(rows: Iterable[ItemRow]) -> dict[Standing, int]:
    return dict(Counter(rollout.standing for row in rows for rollout in row.rollouts))


def _coverage(standings: Mapping[Standing, int]) -> float:
    covered = sum(count for standing, count in standings.items() if standing in COVERED)
    return covered / sum(standings.values())


def _average(rows: Sequence[ItemRow]) -> float:
    return fmean(row.score or 0.0 for row in rows)


def _valid_means(rows: Iterable[ItemRow]) -> list[float]:
    """The mean of each item's valid rollouts; items without one are left out."""
    valid = ([rollout.score or 0.0 for rollout in row.rollouts if rollout.standing in VALID] for row in rows)
    return [fmean(scores) for scores in valid if scores]


def _pass_at_ks(rows: Sequence[ItemRow], n: int) -> dict[int, float]:
    successes = Counter(sum((rollout.score or 0.0) >= PERFECT for rollout in row.rollouts) for row in rows)
    return {
        k: sum(count * pass_at_k(n, right, k) for right, count in successes.items()) / len(rows)
        for k in ks_to_report(n)
    }


def _losses(rows: Iterable[ItemRow], standings: set[Standing]) -> dict[str, Losses]:
    found: dict[str, list[tuple[str, RolloutRow]]] = {}
    for row in rows:
        for rollout in row.rollouts:
            if rollout.standing in standings:
                found.setdefault(rollout.failure_class or "internal", []).append((row.item_id, rollout))
    ordered = sorted(found.items(), key=lambda one: (-len(one[1]), one[0]))
    return {failure_class: _loss(cases) for failure_class, cases in ordered}


def _loss(cases: Sequence[tuple[str, RolloutRow]]) -> Losses:
    item_id, rollout = cases[0]
    counted_as: Literal["agent", "infrastructure"]
    counted_as = "agent" if rollout.standing == "agent_failure" else "infrastructure"
    return Losses(len(cases), counted_as, f"{item_id}#{rollout.index}: {rollout.error or 'no reason was recorded'}")
