"""What picks and releases of a model pool do, as plain Python on small values. Time is not there: whoever plays the clock says
which pick's deadline has passed, which session is forgotten and which replica fell silent.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from rollout_tasks.models.pool.replicas import ReplicaState

MARGIN = 2
"""Smaller than the usual one, so that sessions move in a few calls."""


@dataclass
class ReplicaModel:
    """One replica."""

    instance: str
    state: ReplicaState
    version: int
    in_flight: set[str] = field(default_factory=set)
    """Tokens."""
    last_pick: int = 0
    """The number of the pick that chose it last."""


@dataclass
class PickModel:
    """One pick."""

    replica_id: str
    instance: str
    ended: int | None = None
    """The version at its end; 0 if that was not known."""


@dataclass
class BalancingModel:
    """A pool."""

    replicas: dict[str, ReplicaModel] = field(default_factory=dict)
    replaced: dict[str, str] = field(default_factory=dict)
    """Id -> the instance before the one that serves now."""
    silent: set[str] = field(default_factory=set)
    sessions: dict[str, str] = field(default_factory=dict)
    picks: dict[str, PickModel] = field(default_factory=dict)
    number: int = 0

    # Replicas

    def register(self, replica_id: str, instance: str, state: ReplicaState, version: int) -> bool:
        """False when another process has taken over."""
        if self.replaced.get(replica_id) == instance:
            return False
        before = self.replicas.get(replica_id)
        if before is None or before.instance != instance:
            self.replaced[replica_id] = before.instance if before else ""
            self.replicas[replica_id] = ReplicaModel(instance, state, version)
            self.silent.discard(replica_id)
        return True

    def serves(self, replica_id: str, instance: str) -> bool:
        """Whether a process serves as the replica: it may beat and be removed."""
        return replica_id in self.replicas and self.replicas[replica_id].instance == instance

    def forget(self, replica_id: str) -> None:
        """It was removed, or fell silent."""
        del self.replicas[replica_id]
        self.replaced.pop(replica_id, None)

    def change(self, replica_id: str, state: ReplicaState, version: int) -> bool:
        """False when it is dead, and would come alive."""
        replica = self.replicas[replica_id]
        if (state, version) == (replica.state, replica.version):
            return True
        if replica.state is ReplicaState.DEAD:
            return False
        replica.state, replica.version = state, version
        if state is ReplicaState.DEAD:
            replica.in_flight.clear()
        return True

    # Calls

    def pick(self, token: str, session: str, failed: Collection[str]) -> str:
        """The replica's id; `released`, or empty when there is none."""
        before = self.picks.get(token)
        if before is not None:
            if before.ended is not None:
                return "released"
            replica = self.replicas.get(before.replica_id)
            if replica is not None and token in replica.in_flight:
                if before.replica_id not in failed:
                    return before.replica_id
                replica.in_flight.remove(token)
        loads = self.rotation(failed)
        if not loads:
            return ""
        least = min(loads, key=lambda one: (loads[one], self.replicas[one].last_pick, one))
        own = self.sessions.get(session, "")
        chosen = own if own in loads and loads[own] - loads[least] <= MARGIN else least
        self.number += 1
        replica = self.replicas[chosen]
        replica.last_pick = self.number
        replica.in_flight.add(token)
        self.sessions[session] = chosen
        self.picks[token] = PickModel(chosen, replica.instance)
        return chosen

    def rotation(self, failed: Collection[str]) -> dict[str, int]:
        """The replicas that may be picked, and how many requests each has in flight."""
        ready = {one: is_ for one, is_ in self.replicas.items() if is_.state is ReplicaState.READY}
        return {one: len(is_.in_flight) for one, is_ in ready.items() if one not in failed}

    def release(self, token: str) -> int:
        """The version at the call's end; 0 if it is not known."""
        pick = self.picks[token]
        if pick.ended is None:
            replica = self.replicas.get(pick.replica_id)
            if replica is not None:
                replica.in_flight.discard(token)
            same = replica is not None and replica.instance == pick.instance
            pick.ended = replica.version if replica is not None and same else 0
        return pick.ended

    def refusal(self, failed: Collection[str]) -> dict[str, int]:
        """How many replicas are out of rotation, and why."""
        found = dict.fromkeys(("starting", "draining", "dead", "failed"), 0) | {"silent": len(self.silent)}
        for replica_id, replica in self.replicas.items():
            found["failed" if replica.state is ReplicaState.READY else replica.state.value] += 1
            assert replica.state is not ReplicaState.READY or replica_id in failed
        return found
