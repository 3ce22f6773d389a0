"""Acquiring a VM: ask, wait in the queue, take the VM that is handed over, or leave. Sends nothing itself.

`acquisition` is a generator that yields the next step and is sent its result, so that threads and coroutines
share one logic. See `VMPool.acquire` for a driver.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

from vm_pool.errors import PASSING, AcquireStopped, AcquireTimeout, PoolEmpty, PoolError
from vm_pool.lua_scripts import microseconds
from vm_pool.processes import this_process

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 10.0
"""Longest time for which a waiter that stopped asking keeps its place: it may be handed a VM until then."""
PATIENCE_BEYOND_TTL_SECONDS = 2.0
"""How much longer than its TTL it keeps it: with an untaken grant's time and a reset, that is below TTL + 5 s."""
REFRESH_SECONDS = PATIENCE_SECONDS / 3
SLICE_SECONDS = 1.0
"""Longest wait before `should_stop` is asked again."""
LONGEST_HOLDER = 256
"""Characters of a text that says who wants a VM."""
EMPTY_SECONDS = 30.0
"""How long a pool may have no VM at all before waiting is pointless: hosts register again sooner."""
PRIORITY_SECONDS = 24 * 3600.0
"""How much longer a waiter must have waited to go before a waiter of the next higher priority."""
PRIORITIES = range(-100, 101)


class Request:
    """A request for a VM; see `VMPool.acquire` for the arguments."""

    __slots__ = (
        *("asked_before", "holder", "max_age", "priority", "should_stop", "timeout", "token", "ttl"),
        "wait_while_empty",
    )

    def __init__(
        self,
        holder: str,
        priority: int,
        timeout: float,
        ttl: float,
        max_age: float,
        should_stop: Callable[[], bool] | None = None,
        token: str | None = None,
        wait_while_empty: bool = False,
    ) -> None:
        if priority not in PRIORITIES:
            raise ValueError(f"priority {priority} is not between {PRIORITIES[0]} and {PRIORITIES[-1]}")
        if not 0 < len(holder) <= LONGEST_HOLDER or "\n" in holder:
            raise ValueError(f"holder must say who wants the VM, in one line of at most {LONGEST_HOLDER} characters")
        if not (ttl > 0 and max_age > 0 and timeout >= 0):
            raise ValueError("ttl and max_age must be above 0 seconds, timeout at least 0")
        self.holder = holder
        self.priority = priority
        self.timeout = timeout
        self.ttl = ttl
        self.max_age = max_age
        self.should_stop = should_stop
        self.wait_while_empty = wait_while_empty
        self.asked_before = token is not None
        """Whether the token may already have a VM."""
        self.token = token if token is not None else os.urandom(12).hex()

    @property
    def patience(self) -> float:
        """How long its place is kept after its last request."""
        return min(PATIENCE_SECONDS, self.ttl + PATIENCE_BEYOND_TTL_SECONDS)

    @property
    def refresh(self) -> float:
        """How often it asks again."""
        return min(REFRESH_SECONDS, self.patience / 3)

    def words(self, ticket: int, again: bool) -> tuple[str | int, ...]:
        """Returns the arguments of acquire.lua."""
        return (
            self.token,
            microseconds(self.ttl),
            microseconds(self.max_age),
            microseconds(self.priority * PRIORITY_SECONDS),
            microseconds(self.patience),
            ticket,
            self.priority,
            self.holder,
            int(again),
            this_process(),
        )


@dataclass(frozen=True, slots=True)
class Grant:
    """A VM leased to a request."""

    vm_id: str
    fence: int
    deadline: float
    """When the lease ends unless renewed, on this process's monotonic clock; never later than on the server's."""
    endpoint: str
    """As JSON."""
    waited: float
    """Seconds."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Run acquire.lua with these arguments and send its reply."""

    args: tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Pop:
    """Block on the token's inbox for this long and send the message, or None."""

    token: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Sleep:
    """Wait this long: Redis cannot be reached, or refuses for now."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Leave:
    """Run leave.lua with these arguments and send its reply."""

    args: tuple[str, str]


Step = Ask | Pop | Sleep | Leave


def acquisition(
    request: Request, pool: str, clock: Callable[[], float] = time.monotonic
) -> Generator[Step, Any, Grant]:
    """Yields the steps of one acquisition; returns the grant.

    Args:
        request: The request.
        pool: The pool's name, for messages.
        clock: Monotonic seconds.

    Raises:
        AcquireTimeout: No VM came in time. `PoolEmpty` when the pool has none at all, also before that time is over unless the
            request waits while it is empty.
        AcquireStopped: `should_stop` returned True.
    """
    return _Acquisition(request, pool, clock).steps()


class _Acquisition:
    def __init__(self, request: Request, pool: str, clock: Callable[[], float]) -> None:
        self.request, self.pool, self.clock = request, pool, clock
        self.started = self.last_vm_seen = clock()
        self.end = self.started + request.timeout
        self.ticket = 0
        self.again = request.asked_before
        self.vms: int | None = None
        self.pause = 0.05
        self.trouble: PoolError | None = None
        self.said_empty = False

    def steps(self) -> Generator[Step, Any, Grant]:
        try:
            while True:
                grant = yield from self._ask_and_wait()
                if grant is not None:
                    return grant
        except AcquireTimeout as timeout:
            left = self.clock()
            reply = yield from self._leave(give_back=False)
            if reply[0] == 1:
                return _granted(reply, left, self.started, self.clock())
            timeout.place = reply[1]
            raise
        except GeneratorExit:
            raise  # no further step would be taken
        except BaseException:
            yield from self._leave(give_back=True)
            raise

    def _ask_and_wait(self) -> Generator[Step, Any, Grant | None]:
        requested_at, again, self.again = self.clock(), self.again, True
        try:
            reply = yield Ask(self.request.words(self.ticket, again))
        except PASSING as error:
            self.trouble = error
            self._may_go_on()
            yield Sleep(min(self.pause, max(self.end - self.clock(), 0.0)))
            self.pause = min(self.pause * 2, SLICE_SECONDS)
            return None
        was_away = self.trouble is not None
        self.trouble, self.pause = None, 0.05
        if reply[0] == 1:
            return _granted(reply, requested_at, self.started, self.clock())
        _, self.ticket, server_then, self.vms = reply
        if self.vms or was_away:  # hosts register again with a Redis that lost its data
            self.last_vm_seen, self.said_empty = requested_at, False
        refresh_at = requested_at + self.request.refresh
        while (now := self.clock()) < refresh_at:
            self._may_go_on()
            longest = SLICE_SECONDS if self.request.should_stop is not None else self.request.refresh
            seconds = max(min(longest, refresh_at - now, self.end - now), 0.001)
            try:
                message = yield Pop(self.request.token, seconds)
            except PASSING:
                return None
            if message is not None:
                return self._handed_over(message, requested_at, server_then)
        return None

    def _may_go_on(self) -> None:
        now, request = self.clock(), self.request
        if request.should_stop is not None and request.should_stop():
            raise AcquireStopped(f"{request.holder} stopped waiting for a VM of pool {self.pool!r}")
        if now - self.last_vm_seen > EMPTY_SECONDS and self.trouble is None:
            empty = (
                f"pool {self.pool!r} has had no VM for {now - self.last_vm_seen:.0f} s: is a VM host running for it?"
            )
            if not request.wait_while_empty:
                raise PoolEmpty(empty)
            if not self.said_empty:
                log.warning("%s still waits: %s", request.holder, empty)
                self.said_empty = True
        if now >= self.end:
            timeout = PoolEmpty if self.vms == 0 else AcquireTimeout
            trouble = f"; {self.trouble}" if self.trouble else ""
            raise timeout(f"{request.holder} got no VM of pool {self.pool!r} within {request.timeout:g} s{trouble}")

    def _handed_over(self, message: str, requested_at: float, server_then: int) -> Grant | None:
        """Returns the grant; None when half of its time has passed unused: asking again then restarts its time."""
        fence, deadline, vm_id, endpoint = message.split(" ", 3)
        now, local = self.clock(), requested_at + (int(deadline) - server_then) / 1_000_000
        if local - now < min(self.request.ttl, self.request.max_age) / 2:
            return None
        return Grant(vm_id, int(fence), local, endpoint, now - self.started)

    def _leave(self, *, give_back: bool) -> Generator[Step, Any, list[Any]]:
        try:
            reply: list[Any] = yield Leave((self.request.token, "1" if give_back else "0"))
        except PoolError:
            return [0, 0]  # the place in the queue, and a grant that is not renewed, expire by themselves
        return reply


def _granted(reply: list[Any], requested_at: float, started: float, now: float) -> Grant:
    _, vm_id, fence, deadline, server_then, endpoint = reply
    return Grant(vm_id, int(fence), requested_at + (deadline - server_then) / 1_000_000, endpoint, now - started)
