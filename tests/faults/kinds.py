"""The kinds of faults that a request to Redis can meet, and which requests each kind can happen to."""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache

import redis

from tests.cluster import LEASE_TTL

LATE_SECONDS = LEASE_TTL + 1.0
"""How late an answer comes: later than a lease that nobody renews lives."""


class Kind(StrEnum):
    """What goes wrong with one request."""

    REPLY_LOST = "reply-lost"
    """Redis carries it out; the connection is reset in place of the answer."""
    COMMAND_LOST = "command-lost"
    """Redis never hears of it; the connection is closed in place of the answer."""
    RESET = "reset"
    """Redis never hears of it; every connection of the sending process is reset."""
    FROZEN = "frozen"
    """From here on the connection swallows what either side says, and stays open."""
    LATE = "late"
    """Redis carries it out; the answer comes after the lease's time."""
    OOM = "oom"
    """Redis has no memory left while it carries this out."""
    READONLY = "readonly"
    """Redis is a replica for this request: it refuses to write."""
    RESTART = "server-restart"
    """Redis carries it out and is killed before the answer; it comes back with all its data."""
    LOSS = "server-loss"
    """As `RESTART`, but it comes back without what it wrote in its last second."""
    KILL_BEFORE = "kill-before"
    """The sending process is killed (-9) before Redis hears of it."""
    KILL_AFTER = "kill-after"
    """Redis carries it out; the sending process is killed (-9) before it hears the answer."""


AFTER_THE_ANSWER = frozenset({Kind.REPLY_LOST, Kind.LATE, Kind.RESTART, Kind.LOSS, Kind.KILL_AFTER})
"""Those that need Redis to have carried the request out."""


def applies(kind: Kind, commands: frozenset[str], *, answered: bool, flags: Flags) -> bool:
    """Whether a kind can happen to a request.

    Args:
        kind: The kind.
        commands: The Redis commands that the request may carry out, in small letters.
        answered: Whether the request is known by its answer, as a blocking pop that got something is.
        flags: What the server says of its commands.
    """
    if answered:
        return kind in AFTER_THE_ANSWER
    if kind is Kind.OOM:
        return bool(commands & flags.refused_without_memory)
    if kind is Kind.READONLY:
        return bool(commands & flags.writing)
    return True


class Flags:
    """What a server says of its commands."""

    def __init__(self, client: redis.Redis) -> None:
        described: dict[str, dict[str, list[str]]] = client.command()  # type: ignore[assignment]
        flags = {name: {_text(flag) for flag in entry["flags"]} for name, entry in described.items()}
        self.refused_without_memory = frozenset(name for name, known in flags.items() if "denyoom" in known)
        self.writing = frozenset(name for name, known in flags.items() if "write" in known)


@lru_cache(maxsize=512)
def _text(flag: bytes | str) -> str:
    return flag.decode() if isinstance(flag, bytes) else flag
