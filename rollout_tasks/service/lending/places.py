"""Which place sessions have in the queue of their pool; one look at the pool serves all who ask within a second."""

from __future__ import annotations

import threading
import time

from rollout_tasks.redis_client import connect
from vm_pool.errors import PoolError
from vm_pool.pool import VMPool

_FRESH_SECONDS = 1.0


class WaitingPlaces:
    """The queue of one pool. Threads may share it."""

    def __init__(self, pool: str) -> None:
        """Looks at nothing yet."""
        self._pool = VMPool(connect(tries=0), pool)
        self._lock = threading.Lock()
        self._seen_at = float("-inf")
        self._places: dict[str, int] = {}
        self._waiting: int | None = None
        self._vms: int | None = None

    def place(self, session_id: str) -> tuple[int | None, int | None]:
        """Returns the place of a session, from 1, and how many wait; None for what is not known."""
        with self._lock:
            self._look_if_stale()
            return self._places.get(session_id), self._waiting

    def vms(self) -> int | None:
        """Returns how many VMs the pool has; None if that is not known."""
        with self._lock:
            self._look_if_stale()
            return self._vms

    def close(self) -> None:
        """Closes the connections."""
        self._pool.close()

    def _look_if_stale(self) -> None:
        if time.monotonic() - self._seen_at <= _FRESH_SECONDS:
            return
        self._seen_at = time.monotonic()
        try:
            status = self._pool.status()
        except PoolError:
            self._places, self._waiting, self._vms = {}, None, None
            return
        waiters, self._vms = status.waiters, len(status.vms)
        # A session's process says at the end of its holder's name which session it is.
        self._places = {one.holder.rpartition(" ")[2]: one.place for one in waiters}
        self._waiting = len(waiters)
