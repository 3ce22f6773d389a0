"""A finaliser's claim on its run: kept fresh by its own thread, given up once another process has it."""

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
    """A claim from `begin_finalize` to `end_finalize`; a context manager that sends heartbeats while entered."""

    def __init__(self, store: RunStore, run_id: str, token: str, *, interval: float) -> None:
        """Sends nothing yet; heartbeats begin on entry.

        Args:
            store: The finaliser's patient store; a holder silent for longer than its `silent_seconds` is replaced.
            run_id: The run.
            token: The token that the run was claimed with.
            interval: Seconds between two heartbeats.
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
        """Returns if this finaliser still has the run; after a silence it asks Redis first and waits for the answer.

        Raises:
            Superseded: Another process has it.
            redis.RedisError: Redis was unavailable for longer than the store waits.
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
        beat_at = time.monotonic()
        if store.beat_finalize(self._run_id, self._token) == "finalizing":
            self._last_beat = beat_at
        else:
            self._superseded = True
