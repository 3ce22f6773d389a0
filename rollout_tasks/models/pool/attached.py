"""Keeps servers in a model pool that somebody else runs: asks each whether it works, and gives the sign of life for it."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from urllib.parse import urlsplit

import redis

from rollout_tasks.config import ModelConfig
from rollout_tasks.errors import RolloutFailure, UserError
from rollout_tasks.models.client import open_model
from rollout_tasks.models.endpoint_check import problem_of
from rollout_tasks.models.pool.replicas import SILENT_SECONDS, Replica, Replicas, ReplicaState, StaleReplica

logger = logging.getLogger(__name__)

BEAT_SECONDS = SILENT_SECONDS / 3
_FIRST_ANSWER_SECONDS = 120.0
"""A server's first reply may take long: it compiles then."""
_FIRST_WORDS = [{"role": "user", "content": "Say yes."}]


class AttachedReplicas:
    """Servers of one model, each a replica of a pool as long as this runs."""

    def __init__(
        self, client: redis.Redis, pool: str, base_urls: Sequence[str], *, model: str, weight_version: str
    ) -> None:
        """Touches nothing yet.

        Args:
            client: The workers' Redis; it decodes replies.
            pool: The pool's name.
            base_urls: The servers' endpoints.
            model: The name of the model that they serve.
            weight_version: The weights that they have.
        """
        self._pool = pool
        self._replicas = Replicas(client, pool)
        self._base_urls = base_urls
        self._model = model
        self._weight_version = weight_version
        self._instance = secrets.token_hex(8)
        self._attached: dict[str, Replica] = {}

    def check(self) -> None:
        """Has every server answer a real request.

        Raises:
            UserError: One does not.
        """
        with ThreadPoolExecutor(len(self._base_urls)) as threads:
            for problem in threads.map(self._unanswered, self._base_urls):
                if problem:
                    raise UserError(problem)

    def run(self, stop: threading.Event) -> None:
        """Keeps the servers in the pool until it is asked to stop; then takes them out."""
        try:
            with ThreadPoolExecutor(len(self._base_urls), "replica") as threads:
                while True:
                    self._look()
                    list(threads.map(self._beat, self._base_urls))
                    if stop.wait(BEAT_SECONDS):
                        return
        finally:
            with suppress(redis.RedisError):  # they fall silent
                for replica in self._attached.values():
                    self._replicas.remove(replica)

    def _look(self) -> None:
        """Sees what others have made of the replicas: their weights, and whether they are drained."""
        with suppress(redis.RedisError):
            now = {replica.instance: replica for replica in self._replicas.all()}
            self._attached |= {url: now[one.instance] for url, one in self._attached.items() if one.instance in now}

    def _beat(self, base_url: str) -> None:
        """Gives a sign of life for a server that works; one that does not falls silent, and takes no calls then."""
        name = id_of(base_url)
        if problem := problem_of(base_url, "chat"):
            logger.warning("replica %s of model pool %s: the server %s", name, self._pool, problem)
            return
        known = self._attached.get(base_url)
        try:
            if known is not None and self._replicas.beat(known):
                return
            made = self._replicas.register(
                name,
                f"{self._instance}.{secrets.token_hex(4)}",
                base_url=base_url,
                model=self._model,
                weight_version=self._weight_version if known is None else known.weight_version,
                host=socket.gethostname(),
                pid=os.getpid(),
            )
            drained = known is not None and known.state is ReplicaState.DRAINING
            state = ReplicaState.DRAINING if drained else ReplicaState.READY
            self._attached[base_url] = self._replicas.change(made, state=state)
            logger.info("replica %s of model pool %s is %s", name, self._pool, state.value)
        except (redis.RedisError, StaleReplica) as error:
            logger.warning("replica %s of model pool %s gives no sign of life: %s", name, self._pool, error)

    def _unanswered(self, base_url: str) -> str:
        config = ModelConfig(name=self._model, max_completion_tokens=16, max_retries=1, timeout=_FIRST_ANSWER_SECONDS)
        try:
            open_model(config, session_id=f"attach/{id_of(base_url)}", base_url=base_url).complete(_FIRST_WORDS, ())
        except RolloutFailure as failure:
            return str(failure)
        return ""


def id_of(base_url: str) -> str:
    """Returns the id of the replica that a server is: its host and port."""
    parts = urlsplit(base_url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return f"{(parts.hostname or '').replace(':', '.')}:{port}"
