"""The tables of an older system, for programs that read them: written beside the index's own, in the same transactions.

The index never reads them. Texts are cut to what their columns take; ids that would be cut are replaced by their SHA-256.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import (
    TIMESTAMP,
    BigInteger,
    Column,
    Connection,
    Double,
    Enum,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    delete,
    func,
    insert,
    select,
    update,
)

from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.runs.verdict import rollout_id_of
from rollout_tasks.training.index import tables
from rollout_tasks.training.index.counts import at_a_time
from rollout_tasks.training.index.tables import MYSQL, key_of
from rollout_tasks.training.index.trainable import TrainableGroup
from rollout_tasks.training.index.versions import Checkpoint
from rollout_tasks.trajectories.calls import CALLS_NAME
from rollout_tasks.trajectories.writer import RECORD_NAME

metadata = MetaData()
_ID = BigInteger().with_variant(Integer(), "sqlite")
_LONGEST_KEY = 64
_LONGEST_VERSION = 50
"""Of a checkpoint, as the older system made its table; a longer one is told apart by a part of its SHA-256."""
_LONGEST = 191
"""Of a text with an index in a database of MySQL."""
_LATEST = (1 << 31) - 1
"""The latest time that MySQL's TIMESTAMP takes."""

rollout_run = Table(
    "rollout_run",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("run_id", String(_LONGEST), index=True),
    Column("trajectory_id", String(_LONGEST), unique=True),
    Column("task_id", String(_LONGEST)),
    Column("trace_id", String(_LONGEST)),
    Column("split_dir", String(512)),
    Column("reward", Double),
    Column("num_chunks", Integer),
    Column("used", Integer, nullable=False, server_default="0", index=True),
    Column("model_version", String(_LONGEST)),
    Column("instruction", String(1024)),
    Column("create_at", TIMESTAMP),
    **MYSQL,
)

rollout_chunk = Table(
    "rollout_chunk",
    metadata,
    Column("trajectory_id", String(_LONGEST), primary_key=True),
    Column("chunk_index", Integer, primary_key=True),
    Column("json_path", String(512)),
    **MYSQL,
)

checkpoint = Table(
    "checkpoint",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("name", String(_LONGEST_VERSION), nullable=False, server_default=""),
    Column("version", String(_LONGEST_VERSION), nullable=False, index=True),
    Column("run_id", String(_LONGEST), nullable=False, server_default="", index=True),
    Column("status", String(20), nullable=False, index=True),
    Column("path", String(255), nullable=False),
    Column("source", String(50), index=True),
    Column("operator", String(50)),
    Column("remark", String(1024)),
    Column("config_yaml", Text),
    Column("created_at", TIMESTAMP, nullable=False),
    Column("updated_at", TIMESTAMP, nullable=False),
    Column("deleted_at", TIMESTAMP, nullable=True),
    Column("started_at", TIMESTAMP, nullable=True),
    Column("finished_at", TIMESTAMP, nullable=True),
    **MYSQL,
)

dataset_usage_events = Table(
    "dataset_usage_events",
    metadata,
    Column("trajectory_id", String(_LONGEST), nullable=False, index=True),
    Column("run_id", String(_LONGEST), nullable=False),
    Column("model_version", String(512)),
    Column("used_delta", Integer, nullable=False, server_default="0"),
    Column("event_type", Enum("INSERT", "UPDATE", "USE", native_enum=False), nullable=False),
    Column("created_at", TIMESTAMP, nullable=False),
    **MYSQL,
)

trainable_group = Table(
    "trainable_group",
    metadata,
    Column("trajectory_id", String(_LONGEST), index=True),
    Column("task_id", String(_LONGEST)),
    Column("reward", Double),
    Column("model_version", String(_LONGEST)),
    Column("create_at", TIMESTAMP),
    Column("run_id", String(_LONGEST)),
    **MYSQL,
)


def record_rollouts(
    connection: Connection, new: Sequence[int], changed: Sequence[int], questions: Mapping[str, str]
) -> None:
    """Writes rollouts that a trainer can learn from, by their numbers in the index, with their traces and events.

    A rollout that has lost its reward is taken out.
    """
    for some in at_a_time([*new, *changed]):
        every = _rows(connection, some)
        keys = [_trajectory(row) for row in every]
        there = set(
            _column(connection, select(rollout_run.c.trajectory_id).where(rollout_run.c.trajectory_id.in_(keys)))
        )
        connection.execute(delete(rollout_chunk).where(rollout_chunk.c.trajectory_id.in_(keys)))
        for row in every:
            own = rollout_run.c.trajectory_id == _trajectory(row)
            if row.reward is None:
                connection.execute(delete(rollout_run).where(own))
                continue
            values = _run_values(row, questions)
            is_there = _trajectory(row) in there
            connection.execute(
                update(rollout_run).where(own).values(**values) if is_there else insert(rollout_run).values(**values)
            )
            _insert(connection, rollout_chunk, _chunks(row))
            _insert(connection, dataset_usage_events, [_event(row, "UPDATE" if is_there else "INSERT", 0)])


def record_uses(connection: Connection, some: Sequence[int], delta: int) -> None:
    """Records that rollouts, by their numbers in the index, were taken (``delta`` 1) or given back (-1)."""
    for part in at_a_time(some):
        rows = _rows(connection, part)
        own = rollout_run.c.trajectory_id.in_([_trajectory(row) for row in rows])
        connection.execute(update(rollout_run).where(own).values(used=rollout_run.c.used + delta))
        _insert(
            connection, dataset_usage_events, [_event(row, "USE" if delta > 0 else "UPDATE", delta) for row in rows]
        )


def record_checkpoint(connection: Connection, one: Checkpoint) -> None:
    """Writes a checkpoint."""
    version = one.version if len(one.version) <= _LONGEST_VERSION else key_of(one.version)[:_LONGEST_VERSION]
    own = checkpoint.c.version == version
    now = _time(time.time())
    values = {"name": one.name[:_LONGEST_VERSION], "status": one.status[:20], "path": one.path[:255], "updated_at": now}
    if connection.execute(select(func.count()).select_from(checkpoint).where(own)).scalar():
        connection.execute(update(checkpoint).where(own).values(**values))
    else:
        connection.execute(insert(checkpoint).values(**values, version=version, created_at=now))


def fill_groups(connection: Connection, groups: Iterable[TrainableGroup]) -> None:
    """Writes the groups that are trainable now in the place of those that were."""
    connection.execute(delete(trainable_group))
    for some in at_a_time([one.key for group in groups for one in group.rollouts]):
        names = ("trajectory_id", "task_id", "reward", "model_version", "create_at", "run_id")
        values = [_run_values(row, {}) for row in _rows(connection, some)]
        _insert(connection, trainable_group, [{name: one[name] for name in names} for one in values])


def _rows(connection: Connection, some: Sequence[int]) -> Sequence[Any]:
    """Returns rollouts with what the older tables have of them."""
    rollouts, runs, items, traces = tables.rollouts, tables.runs, tables.items, tables.traces
    number = select(func.count()).where(traces.c.rollout == rollouts.c.id).scalar_subquery().label("traces")
    found = (
        select(rollouts, runs.c.run_id, runs.c.folder, items.c.item_id, tables.checkpoints.c.version, number)
        .join(runs, runs.c.id == rollouts.c.run)
        .join(items, items.c.id == rollouts.c.item)
        .outerjoin(tables.checkpoints, tables.checkpoints.c.id == rollouts.c.checkpoint)
        .where(rollouts.c.id.in_(some))
        .order_by(rollouts.c.id)
    )
    return connection.execute(found).all()


def _trajectory(row: Any) -> str:
    name = f"{row.run_id}/{rollout_id_of(row.item_id, row.number)}"
    return name if len(name) <= _LONGEST_KEY else key_of(name)


def _attempt(row: Any) -> Path:
    return RunFolder(Path(row.folder)).attempt(rollout_id_of(row.item_id, row.number), row.attempt)


def _run_values(row: Any, questions: Mapping[str, str]) -> dict[str, Any]:
    values = {
        "run_id": row.run_id[:_LONGEST],
        "trajectory_id": _trajectory(row),
        "task_id": row.item_id[:_LONGEST],
        "trace_id": f"{_trajectory(row)}/attempt-{row.attempt}",
        "split_dir": str(_attempt(row))[:512],
        "reward": row.reward,
        "num_chunks": row.traces,
        "model_version": (row.version or "")[:_LONGEST],
        "create_at": _time(row.ended or time.time()),
    }
    return values | ({"instruction": questions[row.item_id][:1024]} if row.item_id in questions else {})


def _chunks(row: Any) -> list[dict[str, Any]]:
    """Returns a row for each trace; all of them are in the record of the attempt's calls."""
    attempt = _attempt(row)
    record = attempt / (CALLS_NAME if (attempt / CALLS_NAME).exists() else RECORD_NAME)
    path = str(record)[:512]
    return [{"trajectory_id": _trajectory(row), "chunk_index": at, "json_path": path} for at in range(row.traces)]


def _event(row: Any, kind: str, delta: int) -> dict[str, Any]:
    return {
        "trajectory_id": _trajectory(row),
        "run_id": row.run_id[:_LONGEST],
        "model_version": (row.version or "")[:_LONGEST],
        "used_delta": delta,
        "event_type": kind,
        "created_at": _time(time.time()),
    }


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(min(max(1, seconds), _LATEST), UTC).replace(tzinfo=None, microsecond=0)


def _column(connection: Connection, query: Any) -> list[Any]:
    return list(connection.execute(query).scalars())


def _insert(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    if rows:
        connection.execute(insert(table), [dict(row) for row in rows])
