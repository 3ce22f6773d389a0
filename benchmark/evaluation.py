"""From a run's results to its evaluation: every answer is scored, every rollout gets its row. Runs and writes nothing.

Re-scoring a finished run is the same call with another metric. Which rollouts count how is in
`benchmark.results`, the summing up in `benchmark.summary`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from benchmark.errors import BenchmarkError, JudgeFailure
from benchmark.items import Item
from benchmark.judge import Judge
from benchmark.metrics import JUDGE_METRIC, Metric, Score
from benchmark.metrics import metric as find_metric
from benchmark.results import Evaluation, ItemRow, RolloutResult, RolloutRow, Standing
from benchmark.summary import group_by_domain, summarize

__all__ = ["Evaluation", "RolloutResult", "evaluate"]

_Key = tuple[str, int]


def evaluate(
    items: Iterable[Item],
    results: Iterable[RolloutResult],
    *,
    metric: str = "exact_match",
    rollouts_per_item: int = 1,
    judge: Judge | None = None,
) -> Evaluation:
    """Scores a run.

    Args:
        items: Everything that was asked, also what has no result.
        results: At most one of each rollout, in any order.
        metric: Name of the metric for completed rollouts that the environment did not score itself.
        rollouts_per_item: n; indexes go from 0 to n - 1.
        judge: Who grades under ``llm_judgement``; default: as the environment says.

    Raises:
        UnknownMetric: No metric has that name.
        BenchmarkError: There is no item, an id occurs twice, or a result belongs to no rollout of these items or to one
            that has a result already.
    """
    score = find_metric(metric)
    by_id = _by_id(items)
    by_key = _by_key(results, by_id, rollouts_per_item)
    scores = _score_answers(by_id, by_key, metric, score, judge)
    rows = tuple(
        _item_row(item, [_rollout_row(key, by_key.get(key), scores) for key in _keys(item, rollouts_per_item)])
        for item in by_id.values()
    )
    return Evaluation(rows, group_by_domain(rows), summarize(rows, by_key.values(), metric, rollouts_per_item))


def _keys(item: Item, rollouts_per_item: int) -> Iterator[_Key]:
    return ((item.id, index) for index in range(rollouts_per_item))


def _by_id(items: Iterable[Item]) -> dict[str, Item]:
    by_id: dict[str, Item] = {}
    for item in items:
        if item.id in by_id:
            raise BenchmarkError(f"item {item.id!r} is given twice")
        by_id[item.id] = item
    if not by_id:
        raise BenchmarkError("there is no item to evaluate")
    return by_id


def _by_key(
    results: Iterable[RolloutResult], by_id: Mapping[str, Item], rollouts_per_item: int
) -> dict[_Key, RolloutResult]:
    if rollouts_per_item < 1:
        raise BenchmarkError(f"rollouts per item must be at least 1, got {rollouts_per_item}")
    by_key: dict[_Key, RolloutResult] = {}
    for result in results:
        name = f"rollout {result.item_id}#{result.index}"
        if result.item_id not in by_id:
            raise BenchmarkError(f"{name} has a result, but no item has that id")
        if not 0 <= result.index < rollouts_per_item:
            raise BenchmarkError(f"{name} has a result, but there are {rollouts_per_item} rollouts of an item, from 0")
        if (result.item_id, result.index) in by_key:
            raise BenchmarkError(f"{name} has two results")
        by_key[result.item_id, result.index] = result
    return by_key


@dataclass(frozen=True, slots=True)
class _Unscored:
    """Why a completed rollout has no score."""

    failure_class: str
    error: str


def _score_answers(
    by_id: Mapping[str, Item],
    by_key: Mapping[_Key, RolloutResult],
    metric_name: str,
    score: Metric,
    judge: Judge | None,
) -> dict[_Key, tuple[str, Score | _Unscored]]:
    """What scored each completed rollout, and the score."""
    completed = {key: result for key, result in by_key.items() if result.status == "completed"}
    own = {key: ("environment", Score(r.score)) for key, r in completed.items() if r.score is not None}
    asked = {
        key: (r.answer, by_id[r.item_id].answer, by_id[r.item_id]) for key, r in completed.items() if key not in own
    }
    if metric_name == JUDGE_METRIC and asked:
        graded = _grade(list(asked.values()), judge)
    else:
        graded = [_apply(score, *one) for one in asked.values()]
    return {**own, **{key: (metric_name, one) for key, one in zip(asked, graded, strict=True)}}


def _apply(score: Metric, prediction: str, answer: str, item: Item) -> Score | _Unscored:
    """A metric may come from another package: what it raises, or returns in place of a score, is kept as data."""
    try:
        scored: object = score(prediction, answer, item)
        if isinstance(scored, Score):
            json.dumps(dict(scored.details), allow_nan=False)
            return Score(float(scored.value), dict(scored.details))
    except Exception as error:  # noqa: BLE001 - the border to metrics, classified here
        return _Unscored("metric", f"{type(error).__name__}: {error}"[:2000])
    return _Unscored("metric", f"the metric returned {type(scored).__name__} instead of a Score")


def _grade(asked: Sequence[tuple[str, str, Item]], judge: Judge | None) -> list[Score | _Unscored]:
    if judge is None:
        with Judge.from_environment() as own:
            return _grade(asked, own)
    graded = judge.grade_all(asked)
    return [_Unscored(one.failure_class, str(one)) if isinstance(one, JudgeFailure) else one for one in graded]


def _rollout_row(
    key: _Key, result: RolloutResult | None, scores: Mapping[_Key, tuple[str, Score | _Unscored]]
) -> RolloutRow:
    if result is None:
        return RolloutRow(key[1], "missing")
    common: dict[str, Any] = {"prediction": result.answer, "seconds": result.seconds, "attempts": result.attempts}
    if result.status != "completed":
        return RolloutRow(
            key[1],
            _failure_standing(result),
            failure_class=result.failure_class or ("cancelled" if result.status == "cancelled" else "internal"),
            error=result.error,
            **common,
        )
    metric_name, scored = scores[key]
    if isinstance(scored, Score):
        return RolloutRow(
            key[1], "scored", score=scored.value, metric_name=metric_name, details=dict(scored.details), **common
        )
    return RolloutRow(
        key[1],
        "unscored",
        score=None,
        details={"failure_class": scored.failure_class, "error": scored.error},
        failure_class=scored.failure_class,
        error=scored.error,
        **common,
    )


def _failure_standing(result: RolloutResult) -> Standing:
    if result.status == "cancelled":
        return "cancelled"
    return "agent_failure" if result.counted_as == "agent" else "infrastructure_loss"


def _item_row(item: Item, rollouts: Sequence[RolloutRow]) -> ItemRow:
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
        rollouts=tuple(rollouts),
    )
