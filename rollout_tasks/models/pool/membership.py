"""One server's place in a model pool: registered once it works, kept by signs of life, given up at the end."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from urllib.parse import urlsplit

import redis

from rollout_tasks.models.pool.replicas import SILENT_SECONDS, Replica, Replicas, ReplicaState, StaleReplica, TakenOver
from rollout_tasks.models.pool.store_format import checked_id, checked_text

logger = logging.getLogger(__name__)

BEAT_SECONDS = SILENT_SECONDS / 3


class Membership:
    """A server as a replica of a pool, from its first sign of life until `leave`."""

    def __init__(
        self,
        replicas: Replicas,
        base_url: str,
        *,
        model: str,
        weight_version: str,
        gpu: str | None = None,
        checkpoint: str | None = None,
        drained: bool = False,
    ) -> None:
        """Sends nothing yet.

        Args:
            replicas: The pool.
            base_url: The server's endpoint.
            model: The name of the model that it serves.
            weight_version: The weights that it has.
            gpu: The GPUs that it has.
            checkpoint: What it has loaded, if this project runs it.
            drained: Whether it is to take no calls at first, as a server before it did.

        Raises:
            ValueError: One of these cannot be stored; says which.
        """
        checked_text(model, "--model")
        checked_text(weight_version, "--weight-version")
        self.replica_id = checked_id(id_of(base_url), "a replica's id")
        self.base_url = base_url
        self.taken_over = False
        """Whether another process keeps the server in the pool now."""
        self._replicas = replicas
        self._model, self._weight_version, self._gpu, self._checkpoint = model, weight_version, gpu, checkpoint
        self._instance = secrets.token_hex(8)
        self._drained = drained
        self._replica: Replica | None = None
        self._begun: str | None = None
        """The instance of a registration that Redis may have carried out, or not: it is said again."""
        self._changing = threading.Lock()
        """Held while the replica is looked at or changed: what was seen before a change must not replace it."""

    @property
    def replica(self) -> Replica | None:
        """The replica as it was seen last; None before its first sign of life."""
        return self._replica

    @property
    def drained(self) -> bool:
        """Whether it is to take no calls, when `look` saw it last."""
        return self._drained if self._replica is None else self._replica.state is ReplicaState.DRAINING

    @property
    def dead(self) -> bool:
        """Whether somebody has found that the server is of no use any more, when `look` saw it last."""
        return self._replica is not None and self._replica.state is ReplicaState.DEAD

    def look(self) -> None:
        """Sees what others have made of the replica: its weights, and whether it is drained."""
        with self._changing, suppress(redis.RedisError):
            self.take({replica.instance: replica for replica in self._replicas.all()})

    def take(self, now: Mapping[str, Replica]) -> None:
        """See `look`, of which this is the part without a request: the pool's replicas by their instances are given."""
        if self._replica is not None:
            self._replica = now.get(self._replica.instance, self._replica)

    def change(
        self, *, state: ReplicaState | None = None, weight_version: str | None = None, checkpoint: str | None = None
    ) -> None:
        """Changes the replica, whatever others have made of it meanwhile.

        Raises:
            StaleReplica: It is not in the pool any more, is dead, or another process has its place.
            redis.RedisError: Redis does not answer.
        """
        with self._changing:
            for last in (False, False, False, True):
                replica = self._replica
                if replica is None:
                    raise StaleReplica(
                        f"replica {self.replica_id} of model pool {self._replicas.pool} is not registered"
                    )
                try:
                    self._replica = self._replicas.change(
                        replica, state=state, weight_version=weight_version, checkpoint=checkpoint
                    )
                except StaleReplica:
                    if last:
                        raise
                    self.take({one.instance: one for one in self._replicas.all()})
                else:
                    return

    def beat(self) -> None:
        """Gives a sign of life for a server that works; registers it where the pool does not have it."""
        with self._changing:
            self._beat()

    def _beat(self) -> None:
        known = self._replica
        try:
            if known is not None and self._begun is None and self._replicas.beat(known):
                return
            self._begun = self._begun or f"{self._instance}.{secrets.token_hex(4)}"
            made = self._replicas.register(
                self.replica_id,
                self._begun,
                base_url=self.base_url,
                model=self._model,
                weight_version=self._weight_version if known is None else known.weight_version,
                host=socket.gethostname(),
                gpu=self._gpu,
                pid=os.getpid(),
                checkpoint=self._checkpoint if known is None else known.checkpoint,
                last_checkpoint=None if known is None else known.last_checkpoint,
            )
            state = ReplicaState.DRAINING if self.drained else ReplicaState.READY
            self._replica = self._replicas.change(made, state=state)
            self._begun = None
            logger.info("replica %s of model pool %s is %s", self.replica_id, self._replicas.pool, state.value)
        except TakenOver as error:
            logger.warning("%s, which keeps the server in the pool from now on", error)
            self.taken_over = True
        except (redis.RedisError, StaleReplica) as error:
            logger.warning(
                "replica %s of model pool %s gives no sign of life: %s", self.replica_id, self._replicas.pool, error
            )

    def leave(self) -> bool:
        """Takes the server out of the pool; returns whether Redis answered: without it, the server falls silent."""
        try:
            if self._replica is not None:
                self._replicas.remove(self._replica)
        except redis.RedisError:
            return False
        return True


def id_of(base_url: str) -> str:
    """Returns the id of the replica that a server is: its host and port."""
    parts = urlsplit(base_url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return f"{(parts.hostname or '').replace('%', '.')}:{port}"
