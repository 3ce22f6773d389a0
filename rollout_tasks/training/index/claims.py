"""Claims: groups that a trainer has taken. A rollout is in one claim at most, until the claim is given back."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, func, insert, select, update

from rollout_tasks.errors import UserError
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.training.groups import Group
from rollout_tasks.training.index.counts import at_a_time, is_unused, recount
from rollout_tasks.training.index.rule import Rule
from rollout_tasks.training.index.tables import claims, insert_one, items, rollouts, uses
from rollout_tasks.training.index.trainable import IndexedRollout, TrainableGroup, trainable_groups
from rollout_tasks.training.rewarded_traces import RewardedRollout, rewarded
from rollout_tasks.training.scored_rollouts import UNREADABLE, LeftOut, scored
from rollout_tasks.unicode_text import storable

_LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class Claim:
    """Groups that a trainer has taken, with their traces."""

    id: int
    by: str
    """Who took them."""
    at: float
    """When, in seconds since the epoch."""
    groups: tuple[Group, ...]
    """A rollout whose files could not be read is counted in its group's `left_out`."""


@dataclass(frozen=True, slots=True)
class ListedClaim:
    """A claim that was not given back."""

    id: int
    by: str
    at: float
    groups: int
    rollouts: int


def take(connection: Connection, rule: Rule, most: int, by: str) -> tuple[int, float, list[TrainableGroup]] | None:
    """Marks the rollouts of trainable groups as used.

    Args:
        connection: Of a transaction that writes.
        rule: What is trainable.
        most: How many groups, at most.
        by: Who takes them.

    Returns:
        The claim's id, its time and its groups; None if no group is trainable.

    Raises:
        UserError: The name cannot be stored, or the number makes no sense.
    """
    if not by or len(by) > _LONGEST_NAME or storable(by) != by:
        raise UserError(f"by: must be a name of at most {_LONGEST_NAME} characters")
    if most < 1:
        raise UserError(f"groups: must be at least 1, got {most}")
    groups = trainable_groups(connection, rule, most)
    if not groups:
        return None
    now = time.time()
    claim = insert_one(connection, insert(claims).values(taken_by=by, taken=now))
    taken = [one for group in groups for one in group.rollouts]
    for some in at_a_time([one.key for one in taken]):
        marked = connection.execute(update(rollouts).where(rollouts.c.id.in_(some), is_unused).values(claim=claim))
        if marked.rowcount != len(some):
            raise RuntimeError("a rollout was taken although writers take turns")
    pooled = rollouts.c.id.in_([one.key for one in taken if one.pooled])
    own = select(rollouts.c.claim, rollouts.c.id, pooled).where(rollouts.c.claim == claim)
    connection.execute(insert(uses).from_select(["claim", "rollout", "pooled"], own))
    changed = [group.item_key for group in groups]
    for some in at_a_time(changed):
        connection.execute(update(items).where(items.c.id.in_(some)).values(last_claim=claim))
    recount(connection, changed)
    return claim, now, groups


def give_back(connection: Connection, claim: int) -> list[int]:
    """Makes a claim's rollouts unused again; harmless when repeated.

    Args:
        connection: Of a transaction that writes.
        claim: Its id.

    Returns:
        The numbers of the rollouts that were given back.

    Raises:
        UserError: There is no such claim.
    """
    found = connection.execute(select(claims.c.given_back).where(claims.c.id == claim)).first()
    if found is None:
        raise UserError(f"there is no claim {claim}")
    if found.given_back is not None:
        return []
    held = connection.execute(select(rollouts.c.id, rollouts.c.item).where(rollouts.c.claim == claim)).all()
    connection.execute(update(rollouts).where(rollouts.c.claim == claim).values(claim=None))
    connection.execute(update(claims).where(claims.c.id == claim).values(given_back=time.time()))
    recount(connection, {row.item for row in held})
    return [row.id for row in held]


def held(connection: Connection) -> list[ListedClaim]:
    """Returns the claims that were not given back, the newest first."""
    counted = (
        select(claims, func.count(), func.count(rollouts.c.item.distinct()))
        .join(rollouts, rollouts.c.claim == claims.c.id)
        .where(claims.c.given_back.is_(None))
        .group_by(claims.c.id)
        .order_by(claims.c.id.desc())
    )
    return [ListedClaim(row.id, row.taken_by, row.taken, row[-1], row[-2]) for row in connection.execute(counted)]


def read(group: TrainableGroup) -> Group:
    """Returns a group with the traces of its rollouts, from their runs' folders."""
    left_out = LeftOut()
    found = [one for row in group.rollouts if (one := _read(group.item_id, row, left_out)) is not None]
    return Group(group.item_id, tuple(found), dict(left_out.counted), left_out.first_problem)


def _read(item_id: str, row: IndexedRollout, left_out: LeftOut) -> RewardedRollout | None:
    reported = {"index": row.index, "standing": "scored", "score": row.reward, "failure_class": row.failure_class}
    found = next(scored(RunFolder(Path(row.folder)), item_id, [reported], rewarded, left_out), None)
    if found is not None and found.attempt != row.attempt:
        changed = (
            f"rollout {item_id}#{row.index} of run {row.run_id} was rolled out again: add the run to the index again"
        )
        left_out.add(UNREADABLE, changed)
        return None
    return found
