"""Scores answers: makes a row for every rollout, item by item, with few items in memory. Computes no totals."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from benchmark.errors import JudgeFailure
from benchmark.grading import Grading
from benchmark.items import Item
from benchmark.judge import Judge
from benchmark.metrics import JUDGE_METRIC
from benchmark.metrics import metric as find_metric
from benchmark.results import ENVIRONMENT, ItemRow, RolloutResult, RolloutRow, Standing
from benchmark.score import Metric, Score

_JUDGED_AHEAD = 128
"""Most items that wait for grades at a time: enough to keep a judge's threads busy while one answer is slow."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an item's rollouts ended."""

    item: Item
    results: Sequence[RolloutResult | None]
    """By index; None when the result is missing."""

    @property
    def known(self) -> Iterator[RolloutResult]:
        """The results that are not missing."""
        return (result for result in self.results if result is not None)


Scored = Generator[tuple[Outcome, ItemRow]]


def score_each(outcomes: Iterable[Outcome], *, metric: str, judge: Judge | None = None) -> Scored:
    """Scores items one by one, in their order.

    Args:
        outcomes: How the rollouts of each item ended.
        metric: Name of the metric for completed rollouts that the environment did not score itself.
        judge: The judge for ``llm_judgement``; default: the one the environment names.

    Returns:
        A generator of each outcome with its row; closing it ends the grading.

    Raises:
        UnknownMetric: No metric has that name.
    """
    score = find_metric(metric)
    return _judge_each(outcomes, judge) if metric == JUDGE_METRIC else _apply_each(outcomes, metric, score)


def _apply_each(outcomes: Iterable[Outcome], metric_name: str, score: Metric) -> Scored:
    for outcome in outcomes:
        item = outcome.item
        scored = [
            _apply(score, result.answer, item.answer, item) if result is not None and _needs_metric(result) else None
            for result in outcome.results
        ]
        yield outcome, _item_row(outcome, metric_name, scored)


def _judge_each(outcomes: Iterable[Outcome], judge: Judge | None) -> Scored:
    with Grading(judge) as grading:
        waiting: deque[tuple[Outcome, list[Future[Score | JudgeFailure] | None]]] = deque()
        for outcome in outcomes:
            item = outcome.item
            pending_scores = [
                grading.submit(result.answer, item.answer, item)
                if result is not None and _needs_metric(result)
                else None
                for result in outcome.results
            ]
            waiting.append((outcome, pending_scores))
            if len(waiting) > _JUDGED_AHEAD:
                yield _judged(*waiting.popleft())
        while waiting:
            yield _judged(*waiting.popleft())


def _judged(outcome: Outcome, pending_scores: Sequence[Future[Score | JudgeFailure] | None]) -> tuple[Outcome, ItemRow]:
    return outcome, _item_row(
        outcome, JUDGE_METRIC, [None if one is None else _grade(one.result()) for one in pending_scores]
    )


def _grade(graded: Score | JudgeFailure) -> Score | _Unscored:
    return _Unscored(graded.failure_class, str(graded)) if isinstance(graded, JudgeFailure) else graded


def _needs_metric(result: RolloutResult) -> bool:
    return result.status == "completed" and result.score is None


@dataclass(frozen=True, slots=True)
class _Unscored:
    """Why a completed rollout has no score."""

    failure_class: str
    error: str


def _apply(score: Metric, prediction: str, answer: str, item: Item) -> Score | _Unscored:
    """Applies a metric, which may come from another package: its errors and wrong return values become data."""
    try:
        scored: object = score(prediction, answer, item)
        if isinstance(scored, Score):
            json.dumps(dict(scored.details), allow_nan=False)
            return Score(float(scored.value), dict(scored.details))
    except Exception as error:  # noqa: BLE001 - the border to metrics, classified here
        return _Unscored("metric", f"{type(error).__name__}: {error}"[:2000])
    return _Unscored("metric", f"the metric returned {type(scored).__name__} instead of a Score")


def _item_row(outcome: Outcome, metric_name: str, scored: Sequence[Score | _Unscored | None]) -> ItemRow:
    """Takes the metric's result for each rollout; None when the metric was not used."""
    item = outcome.item
    rollouts = tuple(
        _rollout_row(index, result, metric_name, one)
        for index, (result, one) in enumerate(zip(outcome.results, scored, strict=True))
    )
    first = rollouts[0]
    scores = [row.score for row in rollouts]
    return ItemRow(
        item_id=item.id,
        domain=item.domain,
        question=item.question,
        ground_truth=item.answer,
        prediction=first.prediction,
        score=None if all(score is None for score in scores) else fmean(score or 0.0 for score in scores),
        metric_name=first.metric_name,
        details=first.details,
        rollouts=rollouts,
    )


def _rollout_row(
    index: int, result: RolloutResult | None, metric_name: str, scored: Score | _Unscored | None
) -> RolloutRow:
    if result is None:
        return RolloutRow(index, "missing")
    common: dict[str, Any] = {"prediction": result.answer, "seconds": result.seconds, "attempts": result.attempts}
    if result.status != "completed":
        return RolloutRow(
            index,
            _failure_standing(result),
            failure_class=result.failure_class or ("cancelled" if result.status == "cancelled" else "internal"),
            error=result.error,
            **common,
        )
    if isinstance(scored, _Unscored):
        return RolloutRow(
            index,
            "unscored",
            score=None,
            details={"failure_class": scored.failure_class, "error": scored.error},
            failure_class=scored.failure_class,
            error=scored.error,
            **common,
        )
    if scored is None:
        return RolloutRow(index, "scored", score=result.score, metric_name=ENVIRONMENT, **common)
    return RolloutRow(
        index, "scored", score=scored.value, metric_name=metric_name, details=dict(scored.details), **common
    )


def _failure_standing(result: RolloutResult) -> Standing:
    if result.status == "cancelled":
        return "cancelled"
    return "agent_failure" if result.counted_as == "agent" else "infrastructure_loss"
