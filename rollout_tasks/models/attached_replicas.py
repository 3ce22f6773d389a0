"""Keeps servers in a model pool that somebody else runs: asks each whether it works, and gives the sign of life for it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from queue import SimpleQueue

import redis

from rollout_tasks.errors import UserError
from rollout_tasks.models.endpoint_check import problem_of
from rollout_tasks.models.first_answer import FIRST_ANSWER_SECONDS, unanswered
from rollout_tasks.models.pool.membership import BEAT_SECONDS, Membership
from rollout_tasks.models.pool.replicas import Replicas

logger = logging.getLogger(__name__)


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
        self._pool = pool
        self._replicas = Replicas(client, pool)
        self._model = model
        self._memberships = [
            Membership(self._replicas, url, model=model, weight_version=weight_version) for url in base_urls
        ]

    def check(self) -> None:
        """Has every server answer a real request.

        Raises:
            UserError: One does not.
        """
        count = len(self._memberships)
        logger.info("asking %d %s, %g s at most", count, "server" if count == 1 else "servers", FIRST_ANSWER_SECONDS)
        problems: SimpleQueue[str] = SimpleQueue()
        for one in self._memberships:  # a pool of threads would have Ctrl-C wait for their answers
            threading.Thread(
                target=lambda url=one.base_url: problems.put(unanswered(url, self._model)), daemon=True
            ).start()
        for _ in self._memberships:
            if problem := problems.get():
                raise UserError(problem)

    def run(self, stop: threading.Event) -> None:
        """Keeps the servers in the pool until it is asked to stop; then takes them out.

        Raises:
            UserError: Other processes have taken over all of them.
        """
        try:
            with ThreadPoolExecutor(len(self._memberships), "replica") as threads:
                while True:
                    self._look()
                    list(threads.map(self._beat, [one for one in self._memberships if not one.taken_over]))
                    if all(one.taken_over for one in self._memberships):
                        raise UserError(f"other processes keep all these servers in model pool {self._pool} now")
                    if stop.wait(BEAT_SECONDS):
                        return
        finally:
            all(one.leave() for one in self._memberships)  # the first that finds no Redis is the last to look

    def _look(self) -> None:
        with suppress(redis.RedisError):
            now = {replica.instance: replica for replica in self._replicas.all()}
            for one in self._memberships:
                one.take(now)

    def _beat(self, one: Membership) -> None:
        """Gives a sign of life for a server that works; one that does not falls silent, and takes no calls then."""
        if problem := problem_of(one.base_url, "chat"):
            logger.warning("replica %s of model pool %s: the server %s", one.replica_id, self._pool, problem)
        else:
            one.beat()
