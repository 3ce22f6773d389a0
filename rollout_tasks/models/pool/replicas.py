"""The replicas of a served model, in Redis: who registered, who gives signs of life, and what each one serves now.

A replica is a server that answers the calls of one model. Whoever runs its process registers it, and says that it is
alive at least every third of `SILENT_SECONDS`. One that was not heard of for that long takes no calls from that moment
on, and the next script that looks at it removes it. Every method may be repeated after a lost reply.

Nothing secret is stored: an address with a user or password is refused, the key of the servers is in the environment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import redis

from rollout_tasks.config_fields import check_url
from rollout_tasks.models.pool.store_format import LONGEST_PATH, SCRIPTS, checked_id, checked_text, pool_key
from vm_pool.lua_scripts import microseconds

SILENT_SECONDS = 15.0
"""How long a replica counts as alive after a sign of life."""


class ReplicaState(StrEnum):
    """Whether a replica takes calls."""

    STARTING = "starting"
    """It does not answer yet."""
    READY = "ready"
    """It takes calls, as long as it gives signs of life."""
    DRAINING = "draining"
    """It finishes the calls that it has, and gets no others."""
    DEAD = "dead"
    """It is of no use any more, as after a failed change of its weights; another process may register under its id."""


class StaleReplica(Exception):
    """A replica is no longer what the caller saw: look again."""


class TakenOver(StaleReplica):
    """Another process serves under the replica's id now."""


@dataclass(frozen=True, slots=True)
class Replica:
    """A replica as it was at one moment."""

    replica_id: str
    instance: str
    """Names the process that serves as the replica; another process under the same id has another one."""
    fence: int
    """Grows with each registration and each change; a change needs the current one."""
    base_url: str
    """Where its OpenAI-compatible endpoint is, as in ``http://host:8000/v1``."""
    model: str
    """The name under which it serves the model."""
    weight_version: str
    """The weights that it serves: a checkpoint, or a step of a training."""
    checkpoint: str | None
    """The checkpoint that these are from, for a server that this project runs; None for others."""
    last_checkpoint: str | None
    """The one before, if it had another one."""
    host: str
    gpu: str | None
    """The GPUs that it has, as in ``0,1``."""
    pid: int | None
    state: ReplicaState
    started: float
    """When its process registered, in seconds since 1970 by Redis's clock."""
    heartbeat: float
    """The last sign of life, in seconds since 1970 by Redis's clock."""
    in_flight: int
    """How many requests it has: picked for it, not released, and before their deadlines."""


class Replicas:
    """The replicas of one pool."""

    def __init__(self, client: redis.Redis, pool: str = "default", *, silent_seconds: float = SILENT_SECONDS) -> None:
        """Sends nothing yet.

        Args:
            client: A client that decodes replies.
            pool: The pool's name: letters, digits, ``_``, ``.`` and ``-``, at most 64.
            silent_seconds: How long a replica counts as alive after each sign of life that is sent from here.
        """
        self.pool = pool
        self._client = client
        self._key = pool_key(pool)
        self._silent = microseconds(silent_seconds)

    def register(
        self,
        replica_id: str,
        instance: str,
        *,
        base_url: str,
        model: str,
        weight_version: str,
        host: str,
        gpu: str | None = None,
        pid: int | None = None,
        checkpoint: str | None = None,
        last_checkpoint: str | None = None,
        state: ReplicaState = ReplicaState.STARTING,
    ) -> Replica:
        """Puts a replica into the pool, instead of the process that served under its id before.

        Args:
            replica_id: Its id in the pool: letters, digits, ``_``, ``.``, ``:`` and ``-``, at most 128.
            instance: Names this process, and no other one ever; registering it again changes nothing while it is there.
            base_url: Its endpoint, without user, password or query.
            model: The name under which it serves the model.
            weight_version: The weights that it serves.
            host: The machine that it is on.
            gpu: The GPUs that it has.
            pid: Its process.
            checkpoint: What its server has loaded, if it is one that this project runs.
            last_checkpoint: What it had loaded before.
            state: Starting or ready.

        Returns:
            The replica as it is in the pool now.

        Raises:
            TakenOver: Another process has taken over the id from this one.
            ValueError: One of the values cannot be stored; says which.
        """
        checked_id(replica_id, "a replica's id")
        if state not in (ReplicaState.STARTING, ReplicaState.READY):
            raise ValueError(f"a replica registers as starting or ready, not as {state}")
        try:
            url = check_url(base_url)
        except ValueError as error:
            raise ValueError(f"the base URL of replica {replica_id!r} {error}") from None
        row = self._run(
            "register",
            replica_id,
            checked_id(instance, "a replica's instance"),
            self._silent,
            state.value,
            url,
            checked_text(model, "a replica's model"),
            checked_text(weight_version, "a replica's weight version"),
            checked_text(host, "a replica's host"),
            "" if gpu is None else checked_text(gpu, "a replica's GPU"),
            "" if pid is None else pid,
            _path(checkpoint),
            _path(last_checkpoint),
        )
        if not row:
            raise TakenOver(self._about(replica_id, _REFUSALS["replaced"]))
        return parse_replica(row)

    def beat(self, replica: Replica) -> bool:
        """Says that a replica's process is alive.

        Returns:
            False if the pool does not have it, as after a silence or a loss of Redis's data: then register it again.

        Raises:
            TakenOver: Another process serves under its id now.
        """
        answer = self._run("beat", replica.replica_id, replica.instance, self._silent)
        if answer == "replaced":
            raise TakenOver(self._about(replica.replica_id, _REFUSALS[answer]))
        return bool(answer == "heard")

    def change(
        self,
        replica: Replica,
        *,
        state: ReplicaState | None = None,
        weight_version: str | None = None,
        checkpoint: str | None = None,
    ) -> Replica:
        """Changes a replica's state, its weights, or both at once.

        Args:
            replica: The replica as it was seen last.
            state: The new state; None leaves it.
            weight_version: The new weights; None leaves them.
            checkpoint: The checkpoint that these are from; None leaves it.

        Returns:
            The replica as it is now. If it was like that already, nothing was changed.

        Raises:
            StaleReplica: It is gone, dead, another process, or was changed since it was seen.
        """
        version = "" if weight_version is None else checked_text(weight_version, "a replica's weight version")
        wanted = "" if state is None else state.value
        found = self._run(
            "change", replica.replica_id, replica.instance, replica.fence, wanted, version, _path(checkpoint)
        )
        if isinstance(found, str):
            raise StaleReplica(self._about(replica.replica_id, _REFUSALS[found]))
        return parse_replica(found)

    def remove(self, replica: Replica) -> bool:
        """Takes a replica out of the pool, unless another process has taken over its id.

        Returns:
            Whether it was there.
        """
        return bool(self._run("remove", replica.replica_id, replica.instance))

    def all(self) -> tuple[Replica, ...]:
        """Returns the pool's replicas, by their ids."""
        return tuple(map(parse_replica, self._run("list")))

    def ready(self) -> tuple[Replica, ...]:
        """Returns those that take calls."""
        return tuple(replica for replica in self.all() if replica.state is ReplicaState.READY)

    def silent(self) -> tuple[str, ...]:
        """Returns the ids of those that fell silent within the last hour and did not come back."""
        self.all()  # notices those that are silent by now
        ids: Any = self._client.zrange(f"{self._key}:silent", 0, -1)
        return tuple(sorted(ids))

    def in_flight(self, replica: Replica) -> int:
        """Returns how many requests a replica's process has; 0 if it is gone."""
        return next((one.in_flight for one in self.all() if one.instance == replica.instance), 0)

    def _about(self, replica_id: str, what: str) -> str:
        return f"replica {replica_id} of model pool {self.pool} {what}"

    def _run(self, script: str, *args: str | int) -> Any:
        return SCRIPTS.run(self._client, script, [self._key], list(args))


_REFUSALS: Mapping[str, str] = {
    "gone": "is not registered any more",
    "replaced": "was taken over by another process",
    "changed": "was changed by somebody else",
    "dead": "is dead: only another process can take its place",
}


def _path(checkpoint: str | None) -> str:
    return "" if checkpoint is None else checked_text(checkpoint, "a replica's checkpoint", longest=LONGEST_PATH)


def parse_replica(row: list[Any]) -> Replica:
    """Returns the replica that a script's row describes."""
    replica_id, instance, fence, url, model, version, host, gpu, pid, state, started, heartbeat, *rest = row
    checkpoint, last_checkpoint, in_flight = rest
    return Replica(
        replica_id=replica_id,
        instance=instance,
        fence=int(fence),
        base_url=url,
        model=model,
        weight_version=version,
        checkpoint=checkpoint or None,
        last_checkpoint=last_checkpoint or None,
        host=host,
        gpu=gpu or None,
        pid=int(pid) if pid else None,
        state=ReplicaState(state),
        started=int(started) / 1e6,
        heartbeat=int(heartbeat) / 1e6,
        in_flight=int(in_flight),
    )
