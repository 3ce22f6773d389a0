"""A named pool of VMs that programs on many machines share: for lease holders and operators.

Its state is in Redis, and changes only through the scripts in `lua/`. For what hosts tell the pool, see `host_client`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from typing import Any

import redis

from vm_pool import lua_scripts
from vm_pool.errors import AcquireTimeout, PoolError, TransitionRefused, UnknownVM
from vm_pool.gate_login import key_of, token_of
from vm_pool.heartbeat import LeaseHeartbeat
from vm_pool.lease import Lease, endpoint_to_json
from vm_pool.lua_scripts import EVENTS_KEPT, PoolKeys, checked_vm_id
from vm_pool.redis_connection import REPLY_SECONDS, RedisConnection
from vm_pool.snapshot import parse_events, parse_status
from vm_pool.states import Endpoint, Event, PoolStatus, VMState
from vm_pool.waiting import Ask, Grant, Leave, Pop, Request, Step, acquisition

POP_GRACE_SECONDS = 2.0
"""How much later than requested the reply of a blocking pop may come."""


class VMPool:
    """A pool of VMs, by name. Threads may share it; a forked child may continue to use it.

    Args:
        client: Says where Redis is and how to log in.
        name: Letters, digits, ``_``, ``.`` and ``-``, at most 64.
        events_kept: About how many events the stream keeps.
    """

    def __init__(self, client: redis.Redis, name: str = "default", *, events_kept: int = EVENTS_KEPT) -> None:
        self.name = name
        self.keys = PoolKeys(name, events_kept)
        self.redis = RedisConnection(client)
        self._heart: tuple[int, LeaseHeartbeat] | None = None

    # Leases

    def acquire(
        self,
        holder: str,
        *,
        priority: int = 0,
        timeout: float = 1800.0,
        ttl: float = 60.0,
        max_age: float = 6 * 3600.0,
        token: str | None = None,
        heartbeat: bool = True,
        should_stop: Callable[[], bool] | None = None,
        wait_while_empty: bool = False,
    ) -> Lease:
        """Waits for a VM, first come, first served within a priority; each step of priority counts as a day of waiting.

        Args:
            holder: Who wants it; free text for people.
            priority: -100 to 100; higher goes first.
            timeout: Longest wait in seconds, including waiting for Redis to come back or to have memory again.
            ttl: Seconds that the lease lives without renewal.
            max_age: Seconds that the lease lives at most, however often it is renewed.
            token: The request's identity. Repeating it finds a grant whose reply was lost.
            heartbeat: Renew the lease from a thread. Without it, call `Lease.renew` every third of the TTL.
            should_stop: Asked at least once a second; True ends the wait.
            wait_while_empty: Keep the place in the queue however long the pool has no VM at all.

        Raises:
            AcquireTimeout: No VM came in time; `PoolEmpty` when the pool has none at all, after half a minute unless
                `wait_while_empty`.
            AcquireStopped: `should_stop` returned True.
            PoolRefused: Redis refuses for good, as for a wrong password.
        """
        who = Request(holder, priority, timeout, ttl, max_age, should_stop, token, wait_while_empty)
        try:
            grant = self._drive(acquisition(who, self.name))
        except AcquireTimeout as error:
            raise self._with_state(error) from None
        try:
            return Lease(self, who, grant, self._heartbeat() if heartbeat else None)
        except BaseException:  # as of a Ctrl-C: nobody would ever give it back, and the heartbeat may have begun
            with suppress(PoolError):
                self.release(grant.vm_id, grant.fence)
            raise

    def renew(self, leases: Sequence[tuple[str, int]], seconds: float = REPLY_SECONDS) -> list[float | None]:
        """Moves the deadlines of leases.

        Args:
            leases: VM and fence of each.
            seconds: How long Redis may take.

        Returns:
            For each, the new deadline in seconds of `time.monotonic`, or None when it is over.

        Raises:
            PoolUnreachable: Redis did not answer.
        """
        requested_at = time.monotonic()
        words = [word for lease in leases for word in lease]
        now, *deadlines = self._run("renew", *words, seconds=seconds)
        return [requested_at + (deadline - now) / 1_000_000 if deadline else None for deadline in deadlines]

    def release(self, vm_id: str, fence: int) -> bool:
        """Ends a lease; needs its fence, and may be repeated.

        Returns:
            Whether the lease was held until now.
        """
        return bool(self._run("release", vm_id, fence))

    def breaks(self) -> int:
        """Returns how many connections to Redis have broken so far, idle ones included; sends nothing."""
        return self.redis.breaks()

    @property
    def gate_key(self) -> bytes | None:
        """The key for the tokens of its VMs' gates; None when Redis has no password and no key is configured."""
        return key_of(self.redis.password)

    def token_of(self, gate: str) -> str:
        """Returns the token of one of the pool's gates; empty without a secret."""
        key = self.gate_key
        return token_of(key, gate) if key is not None else ""

    def reap(self) -> int:
        """Ends every lease, wait and host that has expired; hosts and waiting clients also do this continually.

        Returns:
            How many it ended.
        """
        return int(self._run("reap"))

    # Status

    def status(self) -> PoolStatus:
        """Returns everything about the pool at one moment."""
        return parse_status(self.name, self._run("status"))

    def events(self, after: str = "-", *, limit: int = 1000) -> list[Event]:
        """Entries of the event stream, oldest first.

        Args:
            after: The last id already seen; ``-`` begins with the oldest entry kept.
            limit: The most entries to return.
        """
        start = after if after == "-" else f"({after}"
        return parse_events(self.redis.call("XRANGE", self.keys.events, start, "+", "COUNT", limit))

    def latest_events(self, limit: int) -> list[Event]:
        """Returns the last entries of the event stream, oldest first."""
        return parse_events(self.redis.call("XREVRANGE", self.keys.events, "+", "-", "COUNT", limit))[::-1]

    # Operations

    def register(self, vm_id: str, endpoint: Endpoint) -> int:
        """Adds a resource to the pool that no host manages and that needs no reset; free at once.

        Returns:
            Its fence.
        """
        words = (checked_vm_id(vm_id), "", endpoint_to_json(endpoint), 0, VMState.FREE.value, 0)
        fence = self._run("register", *words)
        if not isinstance(fence, int):
            raise TransitionRefused(f"{vm_id} of pool {self.name!r} belongs to host {fence}")
        return fence

    def drain(self, vm_id: str) -> VMState:
        """Stops granting this VM; it stops once it is no longer used. A quarantine by an operator goes on.

        Returns:
            Its state now.
        """
        return self._drain(vm_id, "1")

    def undrain(self, vm_id: str) -> VMState:
        """Puts a drained VM back into service; its host boots it, unless it is in quarantine."""
        return self._drain(vm_id, "0")

    def force_release(self, vm_id: str) -> None:
        """Takes a VM from its holder, whose lease is lost.

        Raises:
            TransitionRefused: It is not leased.
        """
        if not self._run("release", checked_vm_id(vm_id), ""):
            state = self._state_of(vm_id)
            raise TransitionRefused(f"{vm_id} of pool {self.name!r} is {state.value}: there is no lease to end")

    def reset(self, vm_id: str) -> VMState:
        """Resets a free VM, or boots a quarantined one afresh.

        Raises:
            TransitionRefused: It is neither free nor quarantined.
        """
        try:
            self.move(vm_id, {VMState.FREE}, VMState.RESETTING)
            return VMState.RESETTING
        except TransitionRefused:
            self.move(vm_id, {VMState.ERROR}, VMState.INITIALIZING)
            return VMState.INITIALIZING

    def quarantine(self, vm_id: str, why: str) -> None:
        """Takes a VM out of use, even from its holder, until `reset`, or until its host starts again and boots all its VMs.

        Raises:
            TransitionRefused: It is stopped.
        """
        self.move(vm_id, set(VMState) - {VMState.STOPPED}, VMState.ERROR, why=f"quarantined by an operator: {why}")

    def remove(self, vm_ids: Sequence[str]) -> int:
        """Removes VMs from the pool for good; their leases are lost. Stops no VM: hosts do.

        Returns:
            How many VMs it removed.
        """
        return int(self._run("remove", *map(checked_vm_id, vm_ids)))

    def delete(self) -> int:
        """Deletes the pool with everything it has in Redis; hosts that still run create it again.

        Returns:
            How many keys it deleted.
        """
        return int(self._run("delete"))

    def move(self, vm_id: str, allowed: set[VMState], to: VMState, *, fence: int | None = None, why: str = "") -> int:
        """Moves a VM outside the cycle of leases, if it is in one of the allowed states.

        Args:
            vm_id: The VM.
            allowed: States it may be in.
            to: The new state.
            fence: The fence it must have.
            why: Kept as its error.

        Returns:
            Its new fence.

        Raises:
            UnknownVM: The pool has no such VM.
            TransitionRefused: It is in another state, or under another fence.
        """
        states = f" {' '.join(sorted(state.value for state in allowed))} "
        words = (checked_vm_id(vm_id), states, to.value, "" if fence is None else fence, why)
        moved, outcome = self._run("move", *words)
        if moved:
            return int(outcome)
        if not outcome:
            raise UnknownVM(f"pool {self.name!r} has no VM {vm_id}")
        raise TransitionRefused(f"{vm_id} of pool {self.name!r} is {outcome}: it cannot become {to.value} now")

    def close(self) -> None:
        """Closes idle connections; leases that are still held continue to be renewed."""
        self.redis.close()

    def _drain(self, vm_id: str, on: str) -> VMState:
        state = self._run("drain", checked_vm_id(vm_id), on)
        if not state:
            raise UnknownVM(f"pool {self.name!r} has no VM {vm_id}")
        return VMState(state)

    def _state_of(self, vm_id: str) -> VMState:
        for vm in self.status().vms:
            if vm.vm_id == vm_id:
                return vm.state
        raise UnknownVM(f"pool {self.name!r} has no VM {vm_id}")

    def _run(self, script: str, *args: str | int, seconds: float = REPLY_SECONDS) -> Any:
        return lua_scripts.run(self.redis, self.keys, script, *args, seconds=seconds)

    def _drive(self, steps: Generator[Step, Any, Grant]) -> Grant:
        """Performs an acquisition's steps on this thread."""
        try:
            step = next(steps)
            while True:
                try:
                    outcome = self._perform(step)
                except BaseException as error:  # noqa: BLE001 (the steps decide what an error means)
                    step = steps.throw(error)
                else:
                    step = steps.send(outcome)
        except StopIteration as done:
            grant: Grant = done.value
            return grant

    def _perform(self, step: Step) -> Any:
        if isinstance(step, Ask):
            return self._run("acquire", *step.args)
        if isinstance(step, Pop):
            message = self.redis.call(
                "BLPOP", self.keys.inbox(step.token), f"{step.seconds:.3f}", seconds=step.seconds + POP_GRACE_SECONDS
            )
            return message[1] if message else None
        if isinstance(step, Leave):
            return self._run("leave", *step.args)
        time.sleep(step.seconds)
        return None

    def _with_state(self, error: AcquireTimeout) -> AcquireTimeout:
        try:
            status = self.status()
        except PoolError:
            return error
        place = f"place {error.place} in the queue of {len(status.waiters) + 1}; " if error.place else ""
        fuller = type(error)(f"{error}; {place}the pool has {status.sentence()}")
        fuller.place = error.place
        return fuller

    def _heartbeat(self) -> LeaseHeartbeat:
        if self._heart is None or self._heart[0] != os.getpid():
            self._heart = (os.getpid(), LeaseHeartbeat(self.renew, self.name, self.breaks))
        return self._heart[1]
