"""Which replica of a model pool gets a session's next call.

A session sticks to its replica, which has the session's prompt in its cache. A new session goes to the replica with the
fewest requests in flight, and an old one moves there once its own replica has more than `MARGIN` more. Each call is picked for
(`pick`), and released when its answer is there (`release`); both may be repeated after a lost reply and count once.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import redis

from rollout_tasks.models.pool.replicas import Replica, parse_replica
from rollout_tasks.models.pool.store_format import SCRIPTS, checked_id, checked_text, pool_key
from rollout_tasks.models.served import Served
from rollout_tasks.models.session_ids import LONGEST_SESSION_ID
from vm_pool.lua_scripts import microseconds

MARGIN = 12
"""A session moves when its replica has more than this many requests more in flight than the least loaded one.

A move costs the whole prompt's computation at the other replica. With a margin of 2, sessions moved so often that consistent
hashing had the shorter calls; with 12, it has not at any load of `scripts/bench/balancing.py`.
"""
CALL_SECONDS = 900.0
"""How long a call counts as in flight if nobody releases it; longer than a call may take, retries not included."""
SESSION_SECONDS = 3600.0
"""How long a session that makes no call sticks to its replica."""

_ENDED_SECONDS = 60.0
"""How long a pick is known after its end, for a command that arrives late."""


@dataclass(frozen=True, slots=True)
class Pick:
    """The replica that one call goes to."""

    token: str
    """Names this pick."""
    replica: Replica
    """As it was when the call began: its weight version is the one at the call's start."""


@dataclass(frozen=True, slots=True)
class NoReplica:
    """No replica takes calls now; as text, a sentence that says why. Each number counts replicas."""

    pool: str
    starting: int
    draining: int
    dead: int
    failed: int
    """Those that are ready, but just failed the caller."""
    silent: int
    """Those that fell silent within the last hour, and did not come back."""
    silent_seconds: float
    """How long ago the last of them was heard."""

    def __str__(self) -> str:
        """Why no replica could be picked."""
        states = {"starting": self.starting, "draining": self.draining, "dead": self.dead}
        found = [f"{count} {'is' if count == 1 else 'are'} {state}" for state, count in states.items() if count]
        if self.failed:
            found.append(f"{self.failed} just failed this call")
        if self.silent:
            which = "" if self.silent == 1 else "the last one "
            found.append(f"{self.silent} fell silent, {which}{self.silent_seconds:.0f} s ago")
        if not found:
            return f"model pool {self.pool} has no replica: none is registered"
        return f"model pool {self.pool} has no replica that takes calls: {', '.join(found)}"


class Balancer:
    """Spreads the calls of sessions over the replicas of one pool."""

    def __init__(self, client: redis.Redis, pool: str = "default", *, margin: int = MARGIN) -> None:
        """Sends nothing yet.

        Args:
            client: A client that decodes replies.
            pool: The pool's name.
            margin: When sessions move, as `MARGIN` has it.
        """
        self.pool = pool
        self._margin = margin
        self._client = client
        self._key = pool_key(pool)

    def pick(
        self, session: str, *, failed: Collection[str] = (), seconds: float = CALL_SECONDS, token: str | None = None
    ) -> Pick | NoReplica:
        """Picks the replica for a session's next call, and counts the call there.

        Args:
            session: The session's id.
            failed: Ids of replicas that just failed this call, and are left out.
            seconds: How long the call counts as in flight if nobody releases it.
            token: Names this pick. The same token again finds the same pick.

        Returns:
            The pick, or why there is none.

        Raises:
            ValueError: The session's id is not valid, or the token's pick was released before.
        """
        name = checked_id(token, "a pick's token") if token is not None else secrets.token_hex(16)
        words = [
            name,
            checked_text(session, "a session's id", longest=LONGEST_SESSION_ID),
            microseconds(seconds),
            microseconds(SESSION_SECONDS),
            microseconds(_ENDED_SECONDS),
            self._margin,
            *failed,
        ]
        status, *rest = SCRIPTS.run(self._client, "pick", [self._key], words)
        if status == "released":
            raise ValueError(f"pick {name} of model pool {self.pool} was released before: a call needs a new one")
        if status == "none":
            starting, draining, dead, failing, silent, silent_for = map(int, rest)
            return NoReplica(self.pool, starting, draining, dead, failing, silent, silent_for / 1e6)
        return Pick(name, parse_replica(rest[0]))

    def release(self, pick: Pick) -> Served:
        """Ends a call, whether it was answered or not; may be repeated.

        Returns:
            What answered it, if it was answered. Its version at the end is empty if it is not known: the replica's process was
                gone by then.
        """
        version: Any = SCRIPTS.run(self._client, "release", [self._key], [pick.token, microseconds(_ENDED_SECONDS)])
        return Served(pick.replica.replica_id, pick.replica.weight_version, version or "")
