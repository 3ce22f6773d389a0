"""The host's client of its pool: reports on its VMs, and gets their states. Boots nothing itself: that is `host`."""

from __future__ import annotations

import logging
import re
import secrets
from dataclasses import dataclass
from typing import Any

from vm_pool import lua_scripts
from vm_pool.errors import HostSuperseded, HostTaken, TransitionRefused, UnknownVM
from vm_pool.lease import endpoint_to_json
from vm_pool.lua_scripts import checked_vm_id, microseconds
from vm_pool.pool import POP_GRACE_SECONDS, VMPool
from vm_pool.processes import has_ended, machine, this_process
from vm_pool.states import Endpoint, VMState

log = logging.getLogger(__name__)

FRONT_OF_QUEUE = 100
"""How many waiters are checked: those that get a VM next."""

_HOST_ID = re.compile(r"[A-Za-z0-9_.-]{1,100}")


@dataclass(frozen=True, slots=True)
class HostedVM:
    """One of the host's VMs as the pool sees it."""

    vm_id: str
    state: VMState
    fence: int
    drained: bool
    retry_in: float | None
    """Seconds until a quarantined VM may be tried again; None when only an operator can release it."""


@dataclass(frozen=True, slots=True)
class Beat:
    """The pool's answer to a beat."""

    server: str
    """The server process that answered; another one after each restart or failover of Redis."""
    vms: tuple[HostedVM, ...]
    next_timer_in: float
    """Seconds until something in the pool may end."""


class HostClient:
    """The pool as one host sees it.

    Args:
        pool: The pool.
        host_id: The host's name; a process that takes it over later supersedes this object.
        silent_after: Seconds without a beat after which the host's free VMs are no longer granted.
    """

    def __init__(self, pool: VMPool, host_id: str, *, silent_after: float) -> None:
        if not _HOST_ID.fullmatch(host_id):
            raise ValueError(f"{host_id!r} is not a host's id: use 1 to 100 letters, digits, '_', '.' and '-'")
        self.pool = pool
        self.host_id = host_id
        self.silent_after = silent_after
        self._instance = f"{secrets.token_hex(8)} {this_process()}"
        self._trusted = ""
        self._displaced = False

    def beat(self, *, take_over: bool = False) -> Beat:
        """Signals that the host is alive; also ends everything in the pool that is due.

        A process that has ended is replaced; then, too, the server must be trusted again.

        Args:
            take_over: Run the host from now on. Its VMs must be registered again, and the server must be trusted again.

        Raises:
            HostTaken: Another process runs it, was heard from lately, and has not ended as far as this machine can see.
            HostSuperseded: Another process took the host over.
        """
        accepted, *rest = self._beat("1" if take_over else "0")
        # Also without `take_over`: a server that lost its last writes may name a predecessor that was replaced.
        if not accepted and has_ended(_process_of(rest[0])):
            self._trusted, self._displaced = "", True  # what that process registered and offered ended with it
            accepted, *rest = self._beat(rest[0])
        if not accepted and take_over:
            raise self._taken(*rest)
        if not accepted:
            raise HostSuperseded(f"another process speaks for host {self.host_id} of pool {self.pool.name!r} now")
        now, next_timer, server, *rows = rest
        vms = tuple(self._row(row, now) for row in rows)
        return Beat(server, vms, (next_timer - now) / 1_000_000)

    def _beat(self, replaces: str) -> Any:
        words = (self.host_id, self._instance, microseconds(self.silent_after), replaces, self._trusted)
        return self._run("beat", *words)

    def _taken(self, instance: str, alive_until: int) -> HostTaken:
        where, _, rest = _process_of(instance).partition(":")
        here = where and where == machine()
        who = (
            f"process {rest.partition(':')[0]} of this machine" if here else "a process of another machine or container"
        )
        return HostTaken(
            f"host {self.host_id} of pool {self.pool.name!r} is run by another process, {who}:"
            " stop that one, or give this one another id (--host-id)",
            instance,
            alive_until,
        )

    @property
    def trusted(self) -> str:
        """The server process that may grant the host's VMs."""
        return self._trusted

    @property
    def displaced(self) -> bool:
        """Whether another process, which has ended, spoke for the host since a server was trusted last."""
        return self._displaced

    def trust(self, server: str) -> None:
        """Lets a server process grant the host's VMs, from the next beat on.

        Until then it grants none: it may have lost its last writes, and list a leased VM as free. Call this once every
        VM that it may be wrong about has been registered again.
        """
        self._trusted, self._displaced = server, False

    def wait_for_work(self, seconds: float) -> bool:
        """Waits until the pool has work for the host, at most `seconds`; returns whether it has."""
        work = self.pool.keys.work(self.host_id)
        call = self.pool.redis.call
        if call("BLPOP", work, f"{max(seconds, 0.001):.3f}", seconds=seconds + POP_GRACE_SECONDS) is None:
            return False
        call("DEL", work)  # the next beat lists all work
        return True

    def end_the_dead(self) -> int:
        """Ends the leases and waits of processes on this machine that have ended, without waiting for them to expire.

        Returns:
            How many leases and waits it ended.
        """
        if not machine():
            return 0
        leases, waiters = self._run("processes", machine(), FRONT_OF_QUEUE)
        words: list[str] = []
        for vm_id, fence, process in zip(leases[::3], leases[1::3], leases[2::3], strict=True):
            if has_ended(process):
                words += (vm_id, fence)
                log.warning("host %s: the holder of %s has ended; it is taken back", self.host_id, vm_id)
        for token, process in zip(waiters[::2], waiters[1::2], strict=True):
            if has_ended(process):
                words += (token, "")
        return int(self._run("ended", *words)) if words else 0

    def wake(self) -> None:
        """Wakes up `wait_for_work`, from another thread."""
        self.pool.redis.call("RPUSH", self.pool.keys.work(self.host_id), "")

    def register(self, vm_id: str, state: VMState, *, needs_reset: bool, known_fence: int) -> int:
        """Adds a VM to the pool, or takes over its existing entry; a lease of it is lost.

        Args:
            vm_id: The VM.
            state: initializing or resetting.
            needs_reset: Whether it must be reset between leases.
            known_fence: The highest fence that the host remembers, otherwise 0.

        Returns:
            Its fence.

        Raises:
            TransitionRefused: Another live host has a VM of this id.
        """
        endpoint = endpoint_to_json(Endpoint(""))
        words = (checked_vm_id(vm_id), self.host_id, endpoint, int(needs_reset), state.value, known_fence)
        fence = self._run("register", *words)
        if not isinstance(fence, int):
            raise TransitionRefused(f"{vm_id} of pool {self.pool.name!r} belongs to host {fence}")
        return fence

    def ready(self, vm_id: str, fence: int, endpoint: Endpoint) -> bool:
        """Reports that a VM is clean, checked and reachable at this endpoint from now on.

        Args:
            vm_id: The VM.
            fence: The fence under which the boot or reset began.
            endpoint: What the next holder gets; not necessarily the VM's own.

        Returns:
            False when the VM has left that state since.
        """
        return bool(self._run("ready", vm_id, fence, endpoint_to_json(endpoint)))

    def failed(self, vm_id: str, fence: int, why: str, *, first_delay: float, longest_delay: float) -> None:
        """Reports that a boot or reset failed: the VM is quarantined, for longer after each failure."""
        self._run("failed", vm_id, fence, why[:500], microseconds(first_delay), microseconds(longest_delay))

    def try_move(self, vm_id: str, allowed: set[VMState], to: VMState, fence: int) -> None:
        """Moves a VM, as `VMPool.move`, unless its state has changed since."""
        try:
            self.pool.move(vm_id, allowed, to, fence=fence)
        except (TransitionRefused, UnknownVM):
            log.info("host %s: %s moved on by itself", self.host_id, vm_id)

    def retire(self) -> None:
        """Removes the host from the pool; does nothing when another process runs it."""
        self._run("retire", self.host_id, self._instance)

    def _run(self, script: str, *args: str | int) -> Any:
        return lua_scripts.run(self.pool.redis, self.pool.keys, script, *args)

    @staticmethod
    def _row(row: list[Any], now: int) -> HostedVM:
        vm_id, state, fence, drained, retry_at = row
        retry_in = (retry_at - now) / 1_000_000 if retry_at else None
        return HostedVM(vm_id, VMState(state), fence, drained == "1", retry_in)


def _process_of(instance: str) -> str:
    return instance.partition(" ")[2]
