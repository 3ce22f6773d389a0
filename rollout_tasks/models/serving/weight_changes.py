"""The changes of a running server's weights: each begins when it is asked for, and what it made of the server is kept."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import redis

from rollout_tasks.models.pool.membership import Membership
from rollout_tasks.models.pool.reloads import Reload, Reloads
from rollout_tasks.models.serving.replica_reload import Outcome, ReplicaReload, Weights


@dataclass(slots=True)
class ServerState:
    """What a server's next process begins with."""

    weights: Weights
    seen: float = 0.0
    """When the last change of weights was asked for that this server has carried out, or tried to: none is tried twice."""
    drained: bool = False
    untold: Outcome | None = None
    """How the last change ended, if Redis was away when it did."""


class WeightChanges:
    """The changes of a running server's weights, one after the other, as they are asked for."""

    def __init__(
        self, state: ServerState, reloads: Reloads, membership: Membership, start: Callable[[Reload], ReplicaReload]
    ) -> None:
        """Starts nothing yet.

        Args:
            state: Is kept up to date.
            reloads: Where they are asked for.
            membership: The replica.
            start: Begins one.
        """
        self._state, self._reloads, self._membership, self._start = state, reloads, membership, start
        self._current: ReplicaReload | None = None
        self._failed = False

    def look(self) -> None:
        """Begins the change that is asked for, if there is a new one; keeps the turn of the one that is under way."""
        if self._current is not None:
            self._current.keep_turn()
            return
        with suppress(redis.RedisError):
            if (untold := self._state.untold) is not None:
                self._reloads.tell(untold.reload, self._membership.replica_id, untold.stage, untold.text)
                self._state.untold = None
            wanted = self._reloads.wanted()
            if wanted is not None and wanted.asked > self._state.seen and self._membership.replica is not None:
                self._current = self._start(wanted)

    def step(self) -> str:
        """Notes what has become of the one that was under way; returns why the server is of no use any more, if so."""
        if self._current is None or not self._current.over:
            return ""
        over, self._current = self._current, None
        self._note(over)
        self._state.seen = over.reload.asked
        self._failed = bool(over.failure)
        return over.failure

    def stop(self, *, for_good: bool) -> None:
        """Ends the one that is under way, because the server is to end, perhaps for good, or has ended."""
        if self._current is not None:
            self._current.stop(for_good=for_good)
            self._note(self._current)
            if self._current.touched:
                self._state.seen = self._current.reload.asked
        elif not self._failed and not self._membership.dead:
            self._state.drained = self._membership.drained

    def _note(self, change: ReplicaReload) -> None:
        self._state.weights = change.weights or self._state.weights
        self._state.drained = self._membership.drained if change.drained is None else change.drained
        self._state.untold = change.untold or self._state.untold
