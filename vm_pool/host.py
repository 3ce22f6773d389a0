"""The VM host: boots the VMs of one machine, resets released ones, checks free ones, and stops them all at the end.

The pool says which state each VM is in; the host acts on it. It does not poll: it sleeps on its work list until
something changes, a timer ends, or its next beat is due. It survives Redis: it waits when Redis is away, and registers
its VMs again when Redis lost its data.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable

from vm_pool.booting import SAY_EVERY_SECONDS, BootProgress
from vm_pool.canary import CleanState
from vm_pool.descriptor_limit import raise_descriptor_limit
from vm_pool.errors import (
    PASSING,
    HostSuperseded,
    HostTaken,
    PoolError,
    PoolRefused,
    PoolUnreachable,
    VMsInUse,
)
from vm_pool.gate import Gates
from vm_pool.host_client import Beat, HostClient, HostedVM
from vm_pool.images import image_name, publish_image
from vm_pool.jobs import Jobs
from vm_pool.machine import Machine
from vm_pool.pool import VMPool
from vm_pool.providers.base import Provider
from vm_pool.states import VMState

log = logging.getLogger(__name__)

SLICE_SECONDS = 0.5
"""Longest sleep before the host checks whether to stop, and whether lease holders on this machine have ended."""
LOOK_SHARE = 0.05
"""Share of its time for finding holders that have ended: in a large pool it looks less often."""
TAKE_OVER_SECONDS = 0.25
"""Pause before the next try to take over a host whose previous process may have ended."""
RECONNECT_SECONDS = (0.1, 1.0)
"""First and longest pause before the next try when Redis is away. Until a host is back, its VMs are not granted."""


class VMHost:
    """Runs `num_vms` VMs of one provider in one pool.

    Args:
        pool: The pool that leases them.
        provider: Boots, resets and stops them.
        num_vms: How many VMs.
        host_id: The host's name; default: the machine's. A second live host of the same name is refused.
        silent_after: Seconds without a beat after which the pool stops granting this host's free VMs.
        check_every: Seconds between checks of a free VM.
        retry_after: Seconds before a quarantined VM is tried again: the first time, and at most.
        gate_address: This machine's address for clients to connect to; the default serves this machine only.
        facts: What is known of the VMs' image, published in the pool.
    """

    def __init__(
        self,
        pool: VMPool,
        provider: Provider,
        *,
        num_vms: int,
        host_id: str | None = None,
        silent_after: float = 15.0,
        check_every: float = 30.0,
        retry_after: tuple[float, float] = (1.0, 300.0),
        gate_address: str = "127.0.0.1",
        facts: str = "",
    ) -> None:
        if num_vms < 1:
            raise ValueError(f"num_vms is {num_vms}: a host has at least one VM")
        self.host_id = host_id or socket.gethostname()
        self.pool = pool
        self._provider = provider
        self._facts = facts
        self._side = HostClient(pool, self.host_id, silent_after=silent_after)
        self._gates = Gates(gate_address, key=pool.gate_key)
        clean = CleanState()
        vm_ids = [f"{self.host_id}-{number}" for number in range(num_vms)]
        self._machines = {vm_id: Machine(vm_id, provider, self._gates, clean) for vm_id in vm_ids}
        self._check_every = check_every
        self._speaks = self._joined = False
        self._dead_looked_for = 0.0
        self._quarantined: set[str] = set()
        self._progress = BootProgress(time.monotonic())
        self._stop = threading.Event()
        self._jobs = Jobs(self._side, num_vms, retry_after)

    def run(self, stop: threading.Event | None = None) -> None:
        """Runs until stopped, then stops every VM. Raises this process's limit of open files.

        Args:
            stop: Ends the run, as `stop()` does.

        Raises:
            HostTaken: Another live process has the host's name.
            VMsInUse: Another process on this machine has the name in another pool.
            HostSuperseded: Another process took the host over while this one was silent; that process keeps the VMs.
            PoolRefused: Redis refused the host at its start, as for a wrong password.
            GateError: The gates' address is not one of this machine's.
        """
        raise_descriptor_limit()
        self._gates.check()
        self._stop = self._jobs.stop = stop or self._stop
        superseded = False
        try:
            self._serve_until_stopped()
        except HostSuperseded:
            superseded = True
            raise
        finally:
            self._stop.set()
            self._shut_down(superseded)

    def stop(self) -> None:
        """Makes `run` end; returns at once."""
        self._stop.set()

    def _serve_until_stopped(self) -> None:
        pause, longest = RECONNECT_SECONDS
        away = False
        while not self._stop.is_set():
            try:
                sleep = self._serve_once()
                if away:
                    log.warning("host %s: Redis answers again", self.host_id)
                away, pause = False, RECONNECT_SECONDS[0]
                self._sleep(sleep)
            except (PoolUnreachable, PoolRefused) as error:
                if not self._joined and not isinstance(error, PASSING):
                    raise  # most likely a wrong password
                if not away:
                    log.warning("host %s: waiting for Redis: %s", self.host_id, error)
                away = True
                self._stop.wait(pause)
                pause = min(pause * 2, longest)

    def _serve_once(self) -> float:
        """Attends to every VM once; returns how many seconds nothing will be due."""
        if not self._joined and not self._join():
            return 0.0
        busy = {vm_id for vm_id, machine in self._machines.items() if machine.busy}
        beat = self._side.beat()
        if beat.server != self._side.trusted:
            self._distrust(beat)
            beat = self._side.beat()
        self._register_missing({vm.vm_id for vm in beat.vms})
        self._tell_progress([vm.state for vm in beat.vms])
        self._suspect_all({vm.vm_id for vm in beat.vms if vm.state is VMState.ERROR})
        waits = [self._side.silent_after / 3, max(beat.next_timer_in, 0.01)]
        gates_close = True  # where one does not, none does, and each takes its time
        for vm in beat.vms:
            machine = self._machines.get(vm.vm_id)
            if machine is None:
                continue
            if vm.state not in (VMState.FREE, VMState.LEASED) and gates_close:
                gates_close = self._close_gate(machine, before=vm.fence)  # also when busy: the lease is over
            if vm.vm_id in busy:
                continue  # its job may have ended since, so the beat's state may be outdated
            machine.fence = max(machine.fence, vm.fence)
            waits.append(self._attend(machine, vm))
        return min(waits) if self._progress.done else min(*waits, SAY_EVERY_SECONDS)

    def _suspect_all(self, quarantined: set[str]) -> None:
        """Has the free VMs checked at once when one is quarantined anew: all of them may come from a service that ended."""
        if quarantined - self._quarantined:
            for machine in self._machines.values():
                machine.checked_at = float("-inf")
        self._quarantined = quarantined

    def _tell_progress(self, states: list[VMState]) -> None:
        if (sentence := self._progress.sentence(states, time.monotonic())) is not None:
            log.info("host %s: %s", self.host_id, sentence)

    def _sleep(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._stop.is_set() and (left := until - time.monotonic()) > 0:
            if time.monotonic() >= self._dead_looked_for:
                self._end_the_dead()
            if self._side.wait_for_work(min(left, SLICE_SECONDS)):
                return

    def _end_the_dead(self) -> None:
        began = time.monotonic()
        self._side.end_the_dead()
        now = time.monotonic()
        self._dead_looked_for = now + max(SLICE_SECONDS, (now - began) / LOOK_SHARE)

    def _join(self) -> bool:
        """Takes the host over, and ends what a killed predecessor left; returns False when stopped."""
        beat = self._take_over()
        if beat is None:
            return False
        self._reap_leftovers()
        self._remove_strangers(beat)
        for machine in self._machines.values():
            self._register(machine, VMState.INITIALIZING)
        self._side.trust(beat.server)
        self._joined = True
        self._publish_image()
        if self.pool.gate_key is None:
            log.warning("host %s: Redis has no password, so leased VMs listen at ports without a login", self.host_id)
        log.info("host %s: booting %d VMs for pool %s", self.host_id, len(self._machines), self.pool.name)
        return True

    def _reap_leftovers(self) -> None:
        try:
            leftovers = self._provider.reap_leftovers(self.host_id)
        except VMsInUse:
            self._speaks = False  # so at its own end it does not end VMs that it must not end here
            self._tell_at_the_end(self._side.retire)
            raise
        except Exception as error:  # noqa: BLE001 (the border to providers: a VM that cannot be ended will not boot)
            why = f"{type(error).__name__}: {error}"
            log.warning("host %s: what a predecessor left could not be ended: %s", self.host_id, why)
            return
        if leftovers:
            log.warning("host %s: ended VMs a predecessor left running: %s", self.host_id, ", ".join(leftovers))

    def _take_over(self) -> Beat | None:
        """Returns the first beat, after giving a possibly dead predecessor time to beat again; None when stopped."""
        first: HostTaken | None = None
        while not self._stop.is_set():
            try:
                beat = self._side.beat(take_over=True)
                self._speaks = True
                return beat
            except HostTaken as taken:
                if first is None or taken.instance != first.instance:
                    log.info("host %s: waiting to see whether another process still runs it", self.host_id)
                    first = taken
                elif taken.alive_until > first.alive_until:
                    raise
            self._stop.wait(TAKE_OVER_SECONDS)
        return None

    def _remove_strangers(self, beat: Beat) -> None:
        """Removes VMs that an earlier process registered and this one does not have."""
        for vm in beat.vms:
            if vm.vm_id not in self._machines:
                self.pool.remove([vm.vm_id])

    def _distrust(self, beat: Beat) -> None:
        """Compares what the pool says with what the host knows, as another process has spoken for it, or Redis is another."""
        if self._side.displaced:
            self._boot_all_anew(beat)
        else:
            self._compare_with_server(beat)
        self._publish_image()  # as Redis may have lost it, or it was the other process's
        self._side.trust(beat.server)

    def _boot_all_anew(self, beat: Beat) -> None:
        """Registers the VMs anew: those of this process were ended by another one, whose own ended with it."""
        self._remove_strangers(beat)
        for vm in beat.vms:
            machine = self._machines.get(vm.vm_id)
            if machine is not None and vm.state not in (VMState.ERROR, VMState.STOPPED):
                self._register(machine, VMState.INITIALIZING)
        log.warning("host %s: another process spoke for it until it ended; its VMs are booted anew", self.host_id)

    def _compare_with_server(self, beat: Beat) -> None:
        """Compares what a new server process says with what the host knows: the server may have lost its last writes.

        It may list a leased VM as free, treat a lease that was over as current, or miss a reset and the grant after it.
        All those VMs are reset, which begins with closing the gate. Only a lease without later work known to the host
        is kept: a later grant would have needed a reset.
        """
        for vm in beat.vms:
            machine = self._machines.get(vm.vm_id)
            if machine is None:
                continue
            behind = vm.fence < machine.fence or not self._provider.needs_reset
            if behind or vm.state not in (VMState.LEASED, VMState.ERROR, VMState.STOPPED):
                self._register(machine, VMState.RESETTING if machine.booted else VMState.INITIALIZING)
        log.warning(
            "host %s: Redis is another process than before; its VMs were compared with what it says", self.host_id
        )

    def _publish_image(self) -> None:
        if name := image_name(self._provider):
            try:
                publish_image(self.pool, self.host_id, name, self._facts)
            except PoolError as error:  # no VM depends on it
                log.warning("host %s: the pool does not know what its VMs are made from: %s", self.host_id, error)

    def _register_missing(self, known: set[str]) -> None:
        for vm_id, machine in self._machines.items():
            if vm_id not in known:
                log.warning("host %s: the pool has lost %s; registering it anew", self.host_id, vm_id)
                self._register(machine, VMState.RESETTING if machine.booted else VMState.INITIALIZING)

    def _register(self, machine: Machine, state: VMState) -> None:
        needs_reset = self._provider.needs_reset
        known = machine.fence
        machine.fence = self._side.register(machine.vm_id, state, needs_reset=needs_reset, known_fence=known)

    def _attend(self, machine: Machine, vm: HostedVM) -> float:
        """Starts the work that the VM's state requires; returns in how many seconds to look again."""
        if vm.state in (VMState.INITIALIZING, VMState.RESETTING):
            if vm.drained:
                self._side.try_move(vm.vm_id, {vm.state}, VMState.STOPPED, vm.fence)
            elif vm.state is VMState.RESETTING and machine.booted:
                self._jobs.prepare(machine, vm.fence, machine.reset)
            else:
                self._jobs.prepare(machine, vm.fence, machine.boot)
        elif vm.state is VMState.ERROR and vm.retry_in is not None and vm.retry_in <= 0:
            self._side.try_move(vm.vm_id, {VMState.ERROR}, VMState.INITIALIZING, vm.fence)
        elif vm.state in (VMState.STOPPED, VMState.ERROR):
            waits = [self._check_every]
            if machine.may_run:  # a VM out of use must do nothing more, least of all on the internet
                due_in = machine.stop_at - time.monotonic()
                if due_in > 0:
                    waits.append(due_in)
                else:
                    self._jobs.end(machine)
            if vm.state is VMState.ERROR and vm.retry_in is not None:
                waits.append(vm.retry_in)
            return min(waits)
        elif vm.state is VMState.FREE:
            due_in = machine.checked_at + self._check_every - time.monotonic()
            if due_in > 0:
                return due_in
            self._jobs.check(machine, vm.fence)
        return self._check_every

    def _shut_down(self, superseded: bool) -> None:
        """Ends the grants, then the VMs, then the host's entry."""
        ours = self._speaks and not superseded
        if ours:
            self._tell_at_the_end(lambda: self.pool.remove(list(self._machines)))
        self._close_gates()
        if ours:  # otherwise the VMs of these ids are another process's
            self._jobs.end_for_good(self._machines.values())
        self._jobs.wait()
        self._close_gates()  # of a boot that has just finished
        self._gates.close()
        if ours:
            self._tell_at_the_end(self._side.retire)

    def _close_gates(self) -> None:
        for machine in self._machines.values():
            if not self._close_gate(machine):
                return

    def _close_gate(self, machine: Machine, *, before: int | None = None) -> bool:
        """Closes a gate, and returns whether it did: no VM is reset or booted before its gate has closed."""
        try:
            machine.close_gate(before=before)
        except TimeoutError as error:
            log.warning("host %s: %s: %s", self.host_id, machine.vm_id, error)
            return False
        return True

    def _tell_at_the_end(self, say: Callable[[], object]) -> None:
        try:
            say()
        except PoolError as error:
            log.warning("host %s: left its entries in the pool: %s", self.host_id, error)
