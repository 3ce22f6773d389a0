"""A finaliser's claim on its run: kept fresh by a thread of its own, given up as soon as somebody else has it."""

from __future__ import annotations

import logging
import threading
import time
from typing import Self

import redis

from rollout_tasks.redis_client import connect
from rollout_tasks.runs.store import RunStore

logger = logging.getLogger(__name__)


class Superseded(Exception):
    """Another process finalises the run now."""


class FinalizerClaim:
    """What a finaliser holds between `begin_finalize` and `end_finalize`; a context manager that beats while it is entered."""

    def __init__(self, store: RunStore, run_id: str, token: str, *, interval: float) -> None:
        """Begins to beat when entered.

        Args:
            store: The finaliser's own, patient one; a holder that is silent for longer than its `silent_seconds` is replaced.
            run_id: The run.
            token: What the run was claimed with.
            interval: Seconds between two beats.
        """
        self._store = store
        self._run_id = run_id
        self._token = token
        self._interval = interval
        self._over = threading.Event()
        self._superseded = False
        self._last_beat = time.monotonic()
        self._thread = threading.Thread(target=self._keep_fresh, name="finalizer-claim", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()

    def check(self) -> None:
        """Returns when the run is still this finaliser's; after a silence it asks first, and waits for Redis to answer.

        Raises:
            Superseded: Somebody else has it.
            redis.RedisError: Redis stayed away longer than patience lasts.
        """
        if not self._superseded and time.monotonic() - self._last_beat > self._store.silent_seconds:
            self._beat(self._store)
        if self._superseded:
            raise Superseded(f"run {self._run_id}: another process finalises it now")

    def _keep_fresh(self) -> None:
        client = connect(tries=1, socket_timeout=max(self._interval, 2.0))
        store = RunStore(client)
        while not self._superseded and not self._over.wait(self._interval):
            try:
                self._beat(store)
            except redis.RedisError as error:
                logger.warning("finalising run %s: Redis does not answer: %s", self._run_id, error)
        client.close()

    def _beat(self, store: RunStore) -> None:
        asked = time.monotonic()
        if store.beat_finalize(self._run_id, self._token) == "finalizing":
            self._last_beat = asked
        else:
            self._superseded = True
