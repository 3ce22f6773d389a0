"""Renews a process's leases of one pool from one thread, which runs only while there are leases to renew."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from vm_pool.errors import PoolError

log = logging.getLogger(__name__)

IDLE_SECONDS = 30.0
"""How long the thread waits for another lease before it ends."""
LOOK_SECONDS = 0.5
"""How often to check whether the connection to Redis has ended: Redis may have come back without the lease."""
RETRY_SECONDS = 1.0
"""Longest pause after a renewal that Redis did not answer."""


Renew = Callable[[Sequence[tuple[str, int]], float], list[float | None]]
"""Takes (VM, fence) pairs and how many seconds the reply may take; returns the local deadlines, None where refused."""


class Renewed(Protocol):
    """What is renewed: a `lease.Lease`."""

    vm_id: str
    fence: int
    ttl: float
    """Seconds."""
    deadline: float
    """When it ends unless it is renewed, in seconds of `time.monotonic`."""

    def extend(self, deadline: float | None) -> None:
        """Takes the result of a renewal: the new deadline, or None when it was refused."""

    def lose(self, why: str) -> None:
        """Says that it is over."""


class LeaseHeartbeat:
    """The thread that renews a pool's leases in this process.

    Args:
        renew: Renews leases.
        pool: The pool's name.
        breaks: How many connections to Redis have broken so far; when it grows, all leases are renewed at once.
    """

    def __init__(self, renew: Renew, pool: str, breaks: Callable[[], int] = lambda: 0) -> None:
        self._renew = renew
        self._pool = pool
        self._breaks = breaks
        self._breaks_seen = 0
        self._due: dict[Renewed, float] = {}
        self._changed = threading.Condition()
        self._wakes_at = 0.0
        self._busy_at = 0.0
        self._shortest = IDLE_SECONDS
        self._running = False
        self._away = False

    def watch(self, lease: Renewed) -> None:
        """Renews the lease every third of its TTL until `unwatch`."""
        now, interval = time.monotonic(), lease.ttl / 3
        due = now + interval
        with self._changed:
            self._due[lease] = due
            self._shortest = min(self._shortest, interval)
            self._busy_at = now
            if not self._running:
                self._wakes_at = due
                threading.Thread(target=self._run, name=f"leases of {self._pool}", daemon=True).start()
                self._running = True  # not before: there may be no room for another thread
            elif due < self._wakes_at:
                self._changed.notify()

    def unwatch(self, lease: Renewed) -> None:
        """Stops renewing the lease."""
        with self._changed:
            self._due.pop(lease, None)

    def _run(self) -> None:
        while (leases := self._next_due()) is not None:
            if leases:
                self._beat(leases)

    def _next_due(self) -> list[Renewed] | None:
        """Waits until some leases are due; returns None when the thread has been idle for long and must end."""
        with self._changed:
            now = time.monotonic()
            if self._due and (breaks := self._breaks()) != self._breaks_seen:
                self._breaks_seen = breaks
                self._due = dict.fromkeys(self._due, now)
            # Leases that are nearly due are renewed too: wake-ups stay few however many leases there are.
            leases = [lease for lease, due in self._due.items() if due <= now + _early(lease)]
            if leases:
                return leases
            if self._due:
                self._wakes_at = min(*self._due.values(), now + LOOK_SECONDS)
            elif now - self._busy_at >= IDLE_SECONDS:
                self._running = False
                return None
            else:
                # In time for whatever is added meanwhile, so a series of short leases needs no wake-up.
                self._wakes_at = now + min(self._shortest, LOOK_SECONDS)
            self._changed.wait(self._wakes_at - now)
            return []

    def _beat(self, leases: list[Renewed]) -> None:
        interval = min(lease.ttl for lease in leases) / 3
        try:
            deadlines = self._renew([(lease.vm_id, lease.fence) for lease in leases], min(5.0, interval))
        except Exception as error:  # anything but a PoolError is a bug, but this thread must go on serving all leases
            if not self._away:
                defect = None if isinstance(error, PoolError) else error
                log.warning("pool %s: leases cannot be renewed, still trying: %s", self._pool, error, exc_info=defect)
            self._away = True
            self._breaks_seen = self._breaks()  # this failure is known: `_all_due` follows once it is over
            self._after_failure(leases, min(RETRY_SECONDS, interval / 2))
            return
        if self._away:
            log.warning("pool %s: leases are renewed again", self._pool)
            self._all_due()
        self._away = False
        now = time.monotonic()
        with self._changed:
            for lease, deadline in zip(leases, deadlines, strict=True):
                if lease in self._due:
                    lease.extend(deadline)
                    if deadline is None:
                        del self._due[lease]
                    else:
                        self._due[lease] = now + lease.ttl / 3

    def _all_due(self) -> None:
        now = time.monotonic()
        with self._changed:
            self._due = dict.fromkeys(self._due, now)

    def _after_failure(self, leases: list[Renewed], pause: float) -> None:
        now = time.monotonic()
        with self._changed:
            for lease in leases:
                if lease not in self._due:
                    continue
                if now >= lease.deadline:
                    lease.lose("Redis could not be reached until its deadline")
                    del self._due[lease]
                else:
                    self._due[lease] = min(now + pause + _early(lease), lease.deadline)
                    if self._due[lease] <= now + _early(lease):  # this was its last try; its deadline is awaited
                        self._due[lease] = lease.deadline + _early(lease)


def _early(lease: Renewed) -> float:
    """Returns how many seconds before it is due a lease may be renewed, together with others."""
    return lease.ttl / 30
