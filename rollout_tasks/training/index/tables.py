"""The tables of the index, for SQLite, PostgreSQL, MySQL and MariaDB.

Texts of any length are unique by their SHA-256, as no database takes them all into a unique key. Times are seconds since the epoch.
"""

from __future__ import annotations

import hashlib
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Double,
    ForeignKey,
    Index,
    Insert,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

FORMAT = 1
"""The tables' version: one that is not known is refused."""

# By default, MariaDB takes texts for equal that differ in their case, and has no character beyond 16 bits.
MYSQL: dict[str, Any] = {"mysql_engine": "InnoDB", "mysql_charset": "utf8mb4", "mysql_collate": "utf8mb4_bin"}
_ID = BigInteger().with_variant(Integer(), "sqlite")  # SQLite numbers only INTEGER by itself

metadata = MetaData()

formats = Table(
    "index_format",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("format", Integer, nullable=False),
    **MYSQL,
)
"""One row. Whoever writes locks it first, so that writers take turns."""

runs = Table(
    "runs",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("key", String(64), nullable=False, unique=True),
    Column("run_id", Text, nullable=False),
    Column("folder", Text, nullable=False),
    Column("items_sha256", String(64), nullable=False),
    Column("added", Double, nullable=False),
    **MYSQL,
)

items = Table(
    "items",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("key", String(64), nullable=False, unique=True),
    Column("item_id", Text, nullable=False),
    Column("solved_streak", Integer, nullable=False, default=0),  # see `counts`
    Column("last_claim", BigInteger, nullable=False, default=0),
    **MYSQL,
)

checkpoints = Table(
    "checkpoints",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("key", String(64), nullable=False, unique=True),
    Column("version", Text, nullable=False),
    Column("step", BigInteger, nullable=False, index=True),
    Column("name", Text, nullable=False),
    Column("path", Text, nullable=False),
    Column("status", String(50), nullable=False),
    Column("created", Double, nullable=False),
    **MYSQL,
)

claims = Table(
    "claims",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("taken_by", Text, nullable=False),
    Column("taken", Double, nullable=False),
    Column("given_back", Double),
    **MYSQL,
)

rollouts = Table(
    "rollouts",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("run", ForeignKey("runs.id"), nullable=False),
    Column("item", ForeignKey("items.id"), nullable=False),
    Column("number", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("reward", Double),
    Column("left_out", String(50), nullable=False),
    Column("failure_class", String(50), nullable=False),
    Column("checkpoint", ForeignKey("checkpoints.id")),
    Column("step", BigInteger),
    Column("ended", Double, nullable=False),
    Column("claim", ForeignKey("claims.id"), index=True),
    UniqueConstraint("run", "item", "number"),
    Index("rollouts_of_item", "item", "claim", "checkpoint"),
    Index("rollouts_of_checkpoint", "checkpoint", "item"),
    **MYSQL,
)
"""`reward` is null where `left_out` says why a trainer cannot learn from the rollout; `claim` is who has it now.

`step` is its checkpoint's: rollouts are ordered by it, and MariaDB reads all of a version if it must join them for that."""

traces = Table(
    "traces",
    metadata,
    Column("rollout", ForeignKey("rollouts.id"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("model", Text, nullable=False),
    Column("tokens", Integer, nullable=False),
    Column("sampled_tokens", Integer, nullable=False),
    Column("pictures", Integer, nullable=False),
    **MYSQL,
)

uses = Table(
    "uses",
    metadata,
    Column("claim", ForeignKey("claims.id"), primary_key=True),
    Column("rollout", ForeignKey("rollouts.id"), primary_key=True),
    Column("pooled", Boolean, nullable=False),
    **MYSQL,
)

unused = Table(
    "unused",
    metadata,
    Column("checkpoint", ForeignKey("checkpoints.id"), primary_key=True, autoincrement=False),
    Column("item", ForeignKey("items.id"), primary_key=True, autoincrement=False),
    Column("rollouts", Integer, nullable=False),
    **MYSQL,
)
"""How many unused rollouts of an item have a version; see `counts`."""


def key_of(text: str) -> str:
    """Returns the key by which a text is unique."""
    return hashlib.sha256(text.encode()).hexdigest()


def insert_one(connection: Connection, statement: Insert) -> int:
    """Inserts one row, and returns the id that the database gave it."""
    new: Any = connection.execute(statement).inserted_primary_key
    return int(new[0])
