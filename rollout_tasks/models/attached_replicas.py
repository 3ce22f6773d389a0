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
from queue import SimpleQueue
from urllib.parse import urlsplit

import redis

from rollout_tasks.config import ModelConfig
from rollout_tasks.errors import RolloutFailure, UserError
from rollout_tasks.models.base import ContextOverflow
from rollout_tasks.models.client import open_model
from rollout_tasks.models.endpoint_check import problem_of
from rollout_tasks.models.pool.replicas import SILENT_SECONDS, Replica, Replicas, ReplicaState, StaleReplica, TakenOver
from rollout_tasks.models.pool.store_format import checked_id, checked_text

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
        """Sends nothing yet.

        Args:
            client: The workers' Redis; it decodes replies.
            pool: The pool's name.
            base_urls: The servers' endpoints.
            model: The name of the model that they serve.
            weight_version: The weights that they have.

        Raises:
            ValueError: One of these cannot be stored; says which.
        """
        checked_text(model, "--model")
        checked_text(weight_version, "--weight-version")
        for url in base_urls:
            checked_id(id_of(url), "a replica's id")
        self._pool = pool
        self._replicas = Replicas(client, pool)
        self._base_urls = base_urls
        self._model = model
        self._weight_version = weight_version
        self._instance = secrets.token_hex(8)
        self._attached: dict[str, Replica] = {}
        """By base URL, as the one below."""
        self._taken_over: set[str] = set()

    def check(self) -> None:
        """Has every server answer a real request.

        Raises:
            UserError: One does not.
        """
        count = len(self._base_urls)
        logger.info("asking %d %s, %g s at most", count, "server" if count == 1 else "servers", _FIRST_ANSWER_SECONDS)
        problems: SimpleQueue[str] = SimpleQueue()
        for url in self._base_urls:  # a pool of threads would have Ctrl-C wait for their answers
            threading.Thread(target=lambda url=url: problems.put(self._unanswered(url)), daemon=True).start()
        for _ in self._base_urls:
            if problem := problems.get():
                raise UserError(problem)

    def run(self, stop: threading.Event) -> None:
        """Keeps the servers in the pool until it is asked to stop; then takes them out.

        Raises:
            UserError: Other processes have taken over all of them.
        """
        try:
            with ThreadPoolExecutor(len(self._base_urls), "replica") as threads:
                while True:
                    self._look()
                    list(threads.map(self._beat, [url for url in self._base_urls if url not in self._taken_over]))
                    if len(self._taken_over) == len(self._base_urls):
                        raise UserError(f"other processes keep all these servers in model pool {self._pool} now")
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
        except TakenOver as error:
            logger.warning("%s, which keeps the server in the pool from now on", error)
            self._taken_over.add(base_url)
        except (redis.RedisError, StaleReplica) as error:
            logger.warning("replica %s of model pool %s gives no sign of life: %s", name, self._pool, error)

    def _unanswered(self, base_url: str) -> str:
        config = ModelConfig(name=self._model, max_completion_tokens=16, max_retries=1, timeout=_FIRST_ANSWER_SECONDS)
        try:
            open_model(config, session_id=f"attach/{id_of(base_url)}", base_url=base_url).complete(_FIRST_WORDS, ())
        except (RolloutFailure, UserError, ContextOverflow) as failure:
            return str(failure)
        except Exception as error:  # noqa: BLE001 - whoever waits for the answer is to end
            return f"{id_of(base_url)} cannot be asked: {error!r}"
        return ""


def id_of(base_url: str) -> str:
    """Returns the id of the replica that a server is: its host and port."""
    parts = urlsplit(base_url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return f"{(parts.hostname or '').replace('%', '.')}:{port}"
