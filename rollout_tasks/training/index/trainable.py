"""The groups of unused rollouts that a rule allows: a query, which changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Select, func, select

from benchmark.results import PERFECT
from rollout_tasks.training.index.counts import at_a_time, is_unused, newest_first
from rollout_tasks.training.index.rule import Rule
from rollout_tasks.training.index.tables import checkpoints, items, rollouts, runs, unused
from rollout_tasks.training.index.versions import allowed

_COLUMNS = (
    rollouts.c.id,
    rollouts.c.item,
    rollouts.c.run,
    rollouts.c.number,
    rollouts.c.attempt,
    rollouts.c.reward,
    rollouts.c.failure_class,
    rollouts.c.checkpoint,
)
"""What is asked of a rollout."""


@dataclass(frozen=True, slots=True)
class IndexedRollout:
    """A rollout, as the index has it."""

    key: int
    """Its number in the index."""
    run_id: str
    folder: str
    """The run's."""
    index: int
    """Which of the item's rollouts in its run, from 0."""
    attempt: int
    reward: float
    version: str
    """The model's; empty if it is not known."""
    failure_class: str
    pooled: bool = False
    """Whether it is an older success that joined a group without any."""


@dataclass(frozen=True, slots=True)
class TrainableGroup:
    """Unused rollouts of one item."""

    item_id: str
    item_key: int
    """The item's number in the index."""
    rollouts: tuple[IndexedRollout, ...]
    """The newest first."""

    @property
    def mean_reward(self) -> float:
        """The mean of its rewards."""
        return sum(one.reward for one in self.rollouts) / len(self.rollouts)


def trainable_groups(connection: Connection, rule: Rule, most: int) -> list[TrainableGroup]:
    """Returns groups that are trainable now, at most one of an item: first those of items whose last claim is the longest ago.

    Args:
        connection: Of a transaction.
        rule: What is trainable.
        most: How many, at most.
    """
    versions = allowed(connection, rule)
    item_ids = {row.id: row.item_id for row in connection.execute(_items_with_groups(versions, rule, most))}
    newest = _newest(connection, list(item_ids), rollouts.c.checkpoint.in_(versions), rule.size)
    lost = [item for item in item_ids if not any(row.reward for row in newest.get(item, ()))] if rule.pool else []
    joined = _newest(connection, lost, rollouts.c.reward >= PERFECT, 1)
    every = [row for found in (newest, joined) for own in found.values() for row in own]
    names = _names_of(connection, every)
    return [
        TrainableGroup(
            item_id,
            item,
            (
                *(_indexed(row, names, pooled=False) for row in newest.get(item, ())),
                *(_indexed(row, names, pooled=True) for row in joined.get(item, ())),
            ),
        )
        for item, item_id in item_ids.items()
    ]


def _items_with_groups(versions: Sequence[int], rule: Rule, most: int) -> Select[Any]:
    enough = (
        select(unused.c.item)
        .where(unused.c.checkpoint.in_(versions))
        .group_by(unused.c.item)
        .having(func.sum(unused.c.rollouts) >= rule.size)
        .subquery()
    )
    return (
        select(items.c.id, items.c.item_id)
        .join(enough, enough.c.item == items.c.id)
        .where(items.c.solved_streak < rule.size)
        .order_by(items.c.last_claim, items.c.id)
        .limit(most)
    )


def _newest(
    connection: Connection, some: Sequence[int], wanted: ColumnElement[bool], most: int
) -> dict[int, list[Any]]:
    """Returns the rows of the newest unused rollouts of some items, by the item."""
    found: dict[int, list[Any]] = {}
    for part in at_a_time(some):
        place = func.row_number().over(partition_by=rollouts.c.item, order_by=newest_first).label("place")
        ranked = select(*_COLUMNS, place).where(rollouts.c.item.in_(part), is_unused, wanted).subquery()
        chosen = select(ranked).where(ranked.c.place <= most).order_by(ranked.c.item, ranked.c.place)
        for row in connection.execute(chosen):
            found.setdefault(row.item, []).append(row)
    return found


class _Names(NamedTuple):
    """What the numbers in rollouts' rows stand for."""

    runs: Mapping[int, tuple[str, str]]
    versions: Mapping[int, str]


def _names_of(connection: Connection, rows: Sequence[Any]) -> _Names:
    of_run = select(runs.c.id, runs.c.run_id, runs.c.folder).where(runs.c.id.in_({row.run for row in rows}))
    version_of = select(checkpoints.c.id, checkpoints.c.version).where(
        checkpoints.c.id.in_({row.checkpoint for row in rows})
    )
    return _Names(
        {row.id: (row.run_id, row.folder) for row in connection.execute(of_run)},
        {row.id: row.version for row in connection.execute(version_of)},
    )


def _indexed(row: Any, names: _Names, *, pooled: bool) -> IndexedRollout:
    return IndexedRollout(
        row.id,
        *names.runs[row.run],
        row.number,
        row.attempt,
        row.reward,
        names.versions[row.checkpoint],
        row.failure_class,
        pooled,
    )
