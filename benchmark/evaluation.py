"""Evaluates the results of a run. Runs and writes nothing.

Re-scoring a finished run is the same call with another metric. `benchmark.scoring` scores answers, `benchmark.results`
defines how rollouts count, `benchmark.summary` computes the totals.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from benchmark.errors import BenchmarkError
from benchmark.items import Item
from benchmark.judge import Judge
from benchmark.results import Evaluation, RolloutResult
from benchmark.scoring import Outcome, score_each
from benchmark.summary import Tally

__all__ = ["Evaluation", "RolloutResult", "evaluate"]


def evaluate(
    items: Iterable[Item],
    results: Iterable[RolloutResult],
    *,
    metric: str = "exact_match",
    rollouts_per_item: int = 1,
    judge: Judge | None = None,
) -> Evaluation:
    """Scores a run. For a run that is too large for memory, see `benchmark.scoring.score_each`.

    Args:
        items: All items of the run, also those without a result.
        results: At most one for each rollout, in any order.
        metric: Name of the metric for completed rollouts that the environment did not score itself.
        rollouts_per_item: n; indexes go from 0 to n - 1.
        judge: The judge for ``llm_judgement``; default: the one the environment names.

    Raises:
        UnknownMetric: No metric has that name.
        BenchmarkError: There are no items, an id occurs twice, a result belongs to no rollout of these items, or a
            rollout has two results.
    """
    by_id = _by_id(items)
    by_key = _by_key(results, by_id, rollouts_per_item)
    outcomes = (
        Outcome(item, [by_key.get((item.id, index)) for index in range(rollouts_per_item)]) for item in by_id.values()
    )
    tally = Tally(metric, rollouts_per_item)
    rows = []
    for outcome, row in score_each(outcomes, metric=metric, judge=judge):
        tally.add(row, outcome.known)
        rows.append(row)
    return Evaluation(tuple(rows), tally.overview())


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
) -> dict[tuple[str, int], RolloutResult]:
    if rollouts_per_item < 1:
        raise BenchmarkError(f"rollouts per item must be at least 1, got {rollouts_per_item}")
    by_key: dict[tuple[str, int], RolloutResult] = {}
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
