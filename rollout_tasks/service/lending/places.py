"""Which place sessions have in the queue of their pool; one look at the pool serves all who ask within a second."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

from rollout_tasks.redis_client import connect
from vm_pool.errors import PoolError
from vm_pool.pool import VMPool
from vm_pool.states import PoolStatus

_FRESH_SECONDS = 1.0
_LOOK_SECONDS = 2.0
"""How long a reply waits for what Redis says; then it goes without."""


class WaitingPlaces:
    """The queue of one pool. Used in one event loop; one thread of its own looks, so that a Redis that hangs takes no others'."""

    def __init__(self, pool: str) -> None:
        """Looks at nothing yet."""
        self._pool = VMPool(connect(tries=0), pool)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="places")
        self._look: asyncio.Future[PoolStatus] | None = None
        self._seen_at = float("-inf")
        self._places: dict[str, int] = {}
        self._waiting: int | None = None
        self._vms: int | None = None

    async def place(self, session_id: str) -> tuple[int | None, int | None]:
        """Returns the place of a session, from 1, and how many wait; None for what is not known."""
        await self._look_if_stale()
        return self._places.get(session_id), self._waiting

    async def vms(self) -> int | None:
        """Returns how many VMs the pool has; None if that is not known."""
        await self._look_if_stale()
        return self._vms

    def close(self) -> None:
        """Closes the connections."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._pool.close()

    async def _look_if_stale(self) -> None:
        if time.monotonic() - self._seen_at <= _FRESH_SECONDS:
            return
        if self._look is None:
            self._look = asyncio.get_running_loop().run_in_executor(self._thread, self._pool.status)
        look = self._look
        await asyncio.wait({look}, timeout=_LOOK_SECONDS)
        if look is self._look:  # others may have waited for it, too
            self._take(look)

    def _take(self, look: asyncio.Future[PoolStatus]) -> None:
        self._places, self._waiting, self._vms = {}, None, None
        self._seen_at = time.monotonic()  # also if it is not known: nobody waits for that again at once
        if not look.done():
            return
        self._look = None
        try:
            status = look.result()
        except PoolError:
            return
        # A session's process says at the end of its holder's name which session it is.
        self._places = {one.holder.rpartition(" ")[2]: one.place for one in status.waiters}
        self._waiting, self._vms = len(status.waiters), len(status.vms)
