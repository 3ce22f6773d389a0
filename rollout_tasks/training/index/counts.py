"""Counts by which trainable groups are found without a look at every rollout; kept in the transaction that changes rollouts.

For each item and version, how many rollouts are unused. And for each item its streak: how many of its newest unused rollouts, one
after the other, succeeded. Versions that a rule allows are always the newest, so an item has a trainable group if and only if
enough unused rollouts have such versions and the streak is shorter than the group.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from sqlalchemy import ColumnElement, Connection, and_, case, delete, func, insert, select, update

from benchmark.results import PERFECT
from rollout_tasks.training.index.tables import items, rollouts, unused

AT_A_TIME = 500
"""Rows that one statement names."""
_Any = TypeVar("_Any")

is_unused: ColumnElement[bool] = and_(rollouts.c.claim.is_(None), rollouts.c.reward.is_not(None))
newest_first = (
    rollouts.c.step.desc(),
    rollouts.c.checkpoint.desc(),
    rollouts.c.ended.desc(),
    rollouts.c.id.desc(),
)
"""The order of rollouts."""


def recount(connection: Connection, changed: Iterable[int]) -> None:
    """Counts the unused rollouts of items again, after a change to them or to the order of their versions."""
    for some in at_a_time(sorted(set(changed))):
        connection.execute(delete(unused).where(unused.c.item.in_(some)))
        counted = (
            select(rollouts.c.checkpoint, rollouts.c.item, func.count())
            .where(rollouts.c.item.in_(some), is_unused)
            .group_by(rollouts.c.checkpoint, rollouts.c.item)
        )
        connection.execute(insert(unused).from_select(["checkpoint", "item", "rollouts"], counted))
        streaks = _streaks(connection, some)
        streak = case(streaks, value=items.c.id, else_=0) if streaks else 0
        connection.execute(update(items).where(items.c.id.in_(some)).values(solved_streak=streak))


def _streaks(connection: Connection, some: Sequence[int]) -> dict[int, int]:
    """Returns the streaks that are not 0, by the item."""
    failed = func.sum(case((rollouts.c.reward < PERFECT, 1), else_=0))
    failed_so_far = failed.over(partition_by=rollouts.c.item, order_by=newest_first, rows=(None, 0)).label(
        "failed_so_far"
    )
    newest = select(rollouts.c.item, failed_so_far).where(rollouts.c.item.in_(some), is_unused).subquery()
    streak = func.count().label("streak")
    counted = select(newest.c.item, streak).where(newest.c.failed_so_far == 0).group_by(newest.c.item)
    return {row.item: row.streak for row in connection.execute(counted)}


def at_a_time(every: Sequence[_Any], most: int = AT_A_TIME) -> Iterator[Sequence[_Any]]:
    """Yields a sequence in parts; by default, such as one statement can name."""
    return (every[start : start + most] for start in range(0, len(every), most))
