"""The versions of the model, in their order: by their step, and those of one step in the order in which they came."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import Connection, func, insert, select, update

from rollout_tasks.errors import UserError
from rollout_tasks.training.index.counts import recount
from rollout_tasks.training.index.rule import Rule
from rollout_tasks.training.index.tables import checkpoints, insert_one, key_of, rollouts
from rollout_tasks.unicode_text import storable

UNKNOWN = ""
"""The version of rollouts whose model did not tell; it is older than all others."""
SEEN, REGISTERED = "seen", "registered"
"""The status of a version that a rollout had, and of one that was registered without another status."""
_BEFORE_ALL = -(1 << 62)
_MOST_STEPS = 1 << 53
_LONGEST = 1_000
_LONGEST_STATUS = 50


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A version of the model, and where its weights are."""

    version: str
    """As rollouts have it; empty for those whose model did not tell."""
    step: int | None
    """Its place in the order; None for the unknown version."""
    name: str
    path: str
    status: str
    created: float
    """When the index first had it, in seconds since the epoch."""


def register(
    connection: Connection, version: str, *, step: int | None, name: str | None, path: str | None, status: str | None
) -> Checkpoint:
    """Adds a checkpoint, or changes what is given of one that is there.

    Args:
        connection: Of a transaction that writes.
        version: As rollouts have it.
        step: Its place; by default, a new one comes after the newest.
        name: What people call it.
        path: Where its weights are.
        status: A word, such as ``served``.

    Raises:
        UserError: A value cannot be stored.
    """
    texts = {"version": version, "name": name, "path": path}
    _check(texts | {"status": status}, step)
    known = connection.execute(select(checkpoints).where(checkpoints.c.key == key_of(version))).first()
    if known is None:
        place(connection, [version], status=REGISTERED)
        known = connection.execute(select(checkpoints).where(checkpoints.c.key == key_of(version))).one()
    elif known.status == SEEN and status is None:
        status = REGISTERED
    given = {"step": step, "name": name, "path": path, "status": status}
    changes = {key: value for key, value in given.items() if value is not None and value != getattr(known, key)}
    if changes:
        connection.execute(update(checkpoints).where(checkpoints.c.id == known.id).values(**changes))
    if "step" in changes:
        own = rollouts.c.checkpoint == known.id
        connection.execute(update(rollouts).where(own).values(step=changes["step"]))
        of_version = select(rollouts.c.item).where(own).distinct()
        recount(connection, connection.execute(of_version).scalars())
    return _checkpoint(connection.execute(select(checkpoints).where(checkpoints.c.id == known.id)).one())


class Place(NamedTuple):
    """Where a version is in their order."""

    checkpoint: int
    """Its id in the index."""
    step: int


def place(connection: Connection, versions: Iterable[str], *, status: str = SEEN) -> dict[str, Place]:
    """Returns the places of versions; those that are not known get theirs after the newest, in the given order."""
    keys = {key_of(version): version for version in versions}
    chosen = select(checkpoints.c.key, checkpoints.c.id, checkpoints.c.step).where(checkpoints.c.key.in_(keys))
    found = {row.key: Place(row.id, row.step) for row in connection.execute(chosen)}
    newest = connection.execute(select(func.max(checkpoints.c.step))).scalar()
    following = max(-1, -1 if newest is None else newest) + 1
    for key, version in keys.items():
        if key in found:
            continue
        known = version != UNKNOWN
        step = following if known else _BEFORE_ALL
        values = {"created": time.time(), "status": status, "name": "", "path": ""}
        new = insert_one(connection, insert(checkpoints).values(key=key, version=version, step=step, **values))
        found[key] = Place(new, step)
        following += known
    return {version: found[key] for key, version in keys.items()}


def allowed(connection: Connection, rule: Rule) -> list[int]:
    """Returns the ids of the versions that a rule allows, the newest first."""
    newest_first = select(checkpoints.c.id).order_by(checkpoints.c.step.desc(), checkpoints.c.id.desc())
    if rule.staleness is None:
        return list(connection.execute(newest_first.limit(rule.versions)).scalars())
    newest = connection.execute(select(func.max(checkpoints.c.step))).scalar()
    if newest is None:
        return []
    return list(connection.execute(newest_first.where(checkpoints.c.step >= newest - rule.staleness)).scalars())


def every(connection: Connection) -> list[Checkpoint]:
    """Returns all checkpoints, the newest first."""
    ordered = select(checkpoints).order_by(checkpoints.c.step.desc(), checkpoints.c.id.desc())
    return [_checkpoint(row) for row in connection.execute(ordered)]


def _checkpoint(row: Any) -> Checkpoint:
    step = None if row.step == _BEFORE_ALL else row.step
    return Checkpoint(row.version, step, row.name, row.path, row.status, row.created)


def _check(texts: dict[str, str | None], step: int | None) -> None:
    for name, text in texts.items():
        longest = _LONGEST_STATUS if name == "status" else _LONGEST
        if text is not None and (len(text) > longest or storable(text) != text):
            raise UserError(f"{name}: must be a text of at most {longest:,} characters")
    if not texts["version"]:
        raise UserError("version: must not be empty: that is the version of rollouts whose model did not tell")
    if step is not None and not 0 <= step <= _MOST_STEPS:
        raise UserError(f"step: must be between 0 and {_MOST_STEPS:,}, got {step}")
