"""The groups of unused rollouts that a rule allows: a query, which changes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

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
    found = list(connection.execute(_items_with_groups(versions, rule, most)).scalars())
    newest = _newest(connection, found, rollouts.c.checkpoint.in_(versions), rule.size)
    names = _names(connection, found)
    groups = [TrainableGroup(names[item], item, tuple(newest[item])) for item in found]
    return _with_pool(connection, groups) if rule.pool else groups


def _items_with_groups(versions: Sequence[int], rule: Rule, most: int) -> Select[Any]:
    enough = (
        select(unused.c.item)
        .where(unused.c.checkpoint.in_(versions))
        .group_by(unused.c.item)
        .having(func.sum(unused.c.rollouts) >= rule.size)
        .subquery()
    )
    return (
        select(items.c.id)
        .join(enough, enough.c.item == items.c.id)
        .where(items.c.solved_streak < rule.size)
        .order_by(items.c.last_claim, items.c.id)
        .limit(most)
    )


def _with_pool(connection: Connection, groups: Sequence[TrainableGroup]) -> list[TrainableGroup]:
    """Returns the groups, each of those whose mean is 0 with the newest success besides, if the item has one."""
    lost = [group.item_key for group in groups if not group.mean_reward]
    successes = _newest(connection, lost, rollouts.c.reward >= PERFECT, 1)
    joined = {item: tuple(replace(one, pooled=True) for one in found) for item, found in successes.items()}
    return [replace(group, rollouts=group.rollouts + joined.get(group.item_key, ())) for group in groups]


def _newest(
    connection: Connection, some: Sequence[int], wanted: ColumnElement[bool], most: int
) -> dict[int, list[IndexedRollout]]:
    """Returns the newest unused rollouts of some items, by the item."""
    found: dict[int, list[IndexedRollout]] = {}
    for part in at_a_time(some):
        place = func.row_number().over(partition_by=rollouts.c.item, order_by=newest_first).label("place")
        ranked = select(*_COLUMNS, place).where(rollouts.c.item.in_(part), is_unused, wanted).subquery()
        chosen = select(ranked).where(ranked.c.place <= most).order_by(ranked.c.item, ranked.c.place)
        rows = connection.execute(chosen).all()
        of_run = _runs(connection, {row.run for row in rows})
        version_of = _versions(connection, {row.checkpoint for row in rows})
        for item, own in groupby(rows, key=lambda row: row.item):
            found[item] = [_indexed(row, *of_run[row.run], version_of[row.checkpoint]) for row in own]
    return found


def _indexed(row: Any, run_id: str, folder: str, version: str) -> IndexedRollout:
    return IndexedRollout(row.id, run_id, folder, row.number, row.attempt, row.reward, version, row.failure_class)


def _names(connection: Connection, some: Sequence[int]) -> dict[int, str]:
    found = select(items.c.id, items.c.item_id).where(items.c.id.in_(some))
    return {row.id: row.item_id for row in connection.execute(found)}


def _runs(connection: Connection, some: Iterable[int]) -> dict[int, tuple[str, str]]:
    found = select(runs.c.id, runs.c.run_id, runs.c.folder).where(runs.c.id.in_(list(some)))
    return {row.id: (row.run_id, row.folder) for row in connection.execute(found)}


def _versions(connection: Connection, some: Iterable[int]) -> dict[int, str]:
    found = select(checkpoints.c.id, checkpoints.c.version).where(checkpoints.c.id.in_(list(some)))
    return {row.id: row.version for row in connection.execute(found)}
