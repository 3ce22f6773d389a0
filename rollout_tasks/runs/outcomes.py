"""Joins a run's items with their verdicts for finalising, a few at a time, so that a large run needs little memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from benchmark.errors import BenchmarkError
from benchmark.items import Item
from benchmark.scoring import Outcome
from rollout_tasks.runs.verdict import Verdict, rollout_id_of

_AT_A_TIME = 200
"""Rollouts whose verdicts are read at once."""


def outcomes(
    items: Iterable[Item], rollouts_per_item: int, find: Callable[[Sequence[str]], Sequence[Verdict | None]]
) -> Iterator[Outcome]:
    """Joins items with their verdicts, in the items' order.

    Args:
        items: The run's items.
        rollouts_per_item: n, the rollouts of each item.
        find: Returns the verdicts of the given rollout ids, in the same order.

    Raises:
        BenchmarkError: Two items have the same id.
    """
    seen: set[str] = set()
    coming = iter(items)
    while some := list(islice(coming, max(1, _AT_A_TIME // rollouts_per_item))):
        for item in some:
            if item.id in seen:
                raise BenchmarkError(f"item {item.id!r} is given twice")
            seen.add(item.id)
        verdicts = iter(find([rollout_id_of(item.id, index) for item in some for index in range(rollouts_per_item)]))
        for item in some:
            item_verdicts = [next(verdicts) for _ in range(rollouts_per_item)]
            yield Outcome(item, [None if verdict is None else verdict.as_result() for verdict in item_verdicts])
