"""A lease: the right to use one VM until a deadline, as its holder sees it."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from types import TracebackType
from typing import Protocol, Self

from vm_pool.errors import PASSING, LeaseLost, PoolError, PoolUnreachable
from vm_pool.heartbeat import LeaseHeartbeat
from vm_pool.states import Endpoint
from vm_pool.waiting import Grant, Request

log = logging.getLogger(__name__)

RELEASE_SECONDS = 5.0
"""How long a release keeps trying to reach Redis; then the lease is left to expire."""


_lost_lock = threading.RLock()  # a signal handler may check a lease that is being checked


class LeaseKeeper(Protocol):
    """What a lease needs from its pool."""

    name: str

    def renew(self, leases: Sequence[tuple[str, int]], seconds: float = ...) -> list[float | None]:
        """Renews (VM, fence) pairs; returns local deadlines, None where refused."""

    def release(self, vm_id: str, fence: int) -> bool:
        """Ends the lease; returns whether it was held until now."""

    def breaks(self) -> int:
        """Returns how many connections to Redis have broken so far."""

    def token_of(self, gate: str) -> str:
        """Returns the token of one of the pool's gates; empty without a secret."""


class Lease:
    """The lease of one VM, held under a fence. A context manager that releases it.

    Call `check` before every use of the VM: it raises as soon as the lease is known to be over, and at the latest at
    the local deadline, which is never later than the server's. A renewal that Redis did not answer does not end the
    lease.
    """

    __slots__ = (
        "_breaks_seen",
        "_endpoint",
        "_heartbeat",
        "_keeper",
        "_lost",
        "_released",
        "_why_lost",
        "deadline",
        "fence",
        "holder",
        "token",
        "ttl",
        "vm_id",
        "waited",
    )

    def __init__(self, keeper: LeaseKeeper, request: Request, grant: Grant, heartbeat: LeaseHeartbeat | None) -> None:
        self._keeper = keeper
        self._heartbeat = heartbeat
        self._endpoint = grant.endpoint
        self._released = False
        self._breaks_seen = -1
        self._why_lost = ""
        self.vm_id = grant.vm_id
        self.fence = grant.fence
        self.holder = request.holder
        self.token = request.token
        self.ttl = request.ttl
        self.waited = grant.waited
        """Seconds from the request to the grant."""
        self.deadline = grant.deadline
        """When it ends unless renewed, in seconds of `time.monotonic`."""
        self._lost: threading.Event | None = None
        if heartbeat is not None:
            heartbeat.watch(self)

    @property
    def lost(self) -> threading.Event:
        """Set once the lease is known to be over without being released."""
        with _lost_lock:  # made on first use: most leases never need it
            if self._lost is None:
                self._lost = threading.Event()
                if self._why_lost:
                    self._lost.set()
            return self._lost

    @property
    def endpoint(self) -> Endpoint:
        """Where the VM is reached, with the token that opens its gate."""
        endpoint = endpoint_from_json(self._endpoint)
        return replace(endpoint, token=self._keeper.token_of(endpoint.gate)) if endpoint.gate else endpoint

    @property
    def address(self) -> str:
        """Host name or IP address to connect to."""
        return endpoint_from_json(self._endpoint).address

    @property
    def ports(self) -> Mapping[str, int]:
        """Port by purpose: ``control``, ``chromium``, ``vnc``, ``vlc``."""
        return endpoint_from_json(self._endpoint).ports

    @property
    def doubtful(self) -> bool:
        """Whether to renew at once: a connection to Redis broke, so it may have come back without the lease.

        For holders with their own heartbeat; sends nothing.
        """
        return not (self._why_lost or self._released) and self._keeper.breaks() != self._breaks_seen

    @property
    def ended_early(self) -> bool:
        """Whether a released lease was over before its release, so that another holder may have had the VM.

        Where Redis gave no clear answer to the release, the local deadline decides.
        """
        return bool(self._why_lost)

    def check(self) -> None:
        """Makes sure that the VM may be used right now.

        Raises:
            LeaseLost: It may not.
        """
        if time.monotonic() >= self.deadline and not self._released:
            self.lose("it was not renewed before its deadline")
        if self._released or self._why_lost:
            raise LeaseLost(self._sentence())

    def renew(self) -> None:
        """Moves the deadline; for holders with their own heartbeat.

        Raises:
            LeaseLost: The lease is over.
            PoolUnreachable: Redis did not answer; the lease lives until its deadline, so try again. The same holds for
                `PoolRefusedForNow`.
        """
        self.check()
        breaks = self._keeper.breaks()
        self.extend(self._keeper.renew([(self.vm_id, self.fence)], min(5.0, self.ttl / 3))[0])
        self._breaks_seen = breaks
        self.check()

    def release(self) -> bool:
        """Gives the VM back; may be repeated, or called when the lease is over.

        Returns:
            Whether the lease was held until now. False also when Redis could not be reached: then the lease expires.
        """
        if self._released:
            return False
        self._released = True
        if self._heartbeat is not None:
            self._heartbeat.unwatch(self)
        began = time.monotonic()
        if began >= self.deadline:
            self.lose("it was not renewed before its deadline")
        give_up_at = began + RELEASE_SECONDS
        unanswered = False
        while True:
            try:
                held = self._keeper.release(self.vm_id, self.fence)
                if not held and not unanswered:  # otherwise the first try may have released it
                    self.lose("it had expired or been taken back when it was released")
                return held
            except PASSING as error:
                unanswered = unanswered or isinstance(error, PoolUnreachable)
                if time.monotonic() >= min(give_up_at, self.deadline):
                    log.warning("%s of pool %s is left to expire: %s", self.vm_id, self._keeper.name, error)
                    return False
                time.sleep(0.1)
            except PoolError as error:
                log.warning("%s of pool %s is left to expire: %s", self.vm_id, self._keeper.name, error)
                return False

    def extend(self, deadline: float | None) -> None:
        """Takes the result of a renewal; for heartbeats.

        Args:
            deadline: The new local deadline, or None when the renewal was refused.
        """
        if deadline is None and self._released:
            return  # its release came first
        if deadline is None:
            self.lose("its renewal was refused: it expired, was taken back or reached its maximum age")
        else:
            self.deadline = deadline

    def lose(self, why: str) -> None:
        """Records that the lease is over; for heartbeats."""
        with _lost_lock:
            if not self._why_lost:
                self._why_lost = why
                if self._lost is not None:
                    self._lost.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def _sentence(self) -> str:
        why = "it was released" if self._released and not self._why_lost else self._why_lost
        return f"the lease of {self.vm_id} in pool {self._keeper.name!r} by {self.holder} is over: {why}"


@lru_cache(maxsize=4096)
def endpoint_from_json(text: str) -> Endpoint:
    """Parses an endpoint as hosts write it into the pool."""
    value = json.loads(text) if text else {}
    ports = {str(purpose): int(port) for purpose, port in value.get("ports", {}).items()}
    gate, certificate = str(value.get("gate", "")), str(value.get("certificate", ""))
    return Endpoint(str(value.get("address", "")), ports, gate, certificate)


def endpoint_to_json(endpoint: Endpoint) -> str:
    """The reverse of `endpoint_from_json`."""
    value: dict[str, object] = {"address": endpoint.address, "ports": dict(endpoint.ports)}
    value |= {name: said for name in ("gate", "certificate") if (said := getattr(endpoint, name))}
    return json.dumps(value, sort_keys=True)
