"""The jobs of a host on its VMs, each in its own thread, and how each reports its result to the pool."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress

from vm_pool.errors import PoolError, PoolRefused, PoolUnreachable
from vm_pool.host_client import HostClient
from vm_pool.machine import Machine
from vm_pool.states import Endpoint, VMState

log = logging.getLogger(__name__)

REPEAT_SECONDS = 0.1
"""Pause before a report is repeated when Redis is away."""
STOP_AGAIN_SECONDS = 10.0
"""Pause before a VM that could not be stopped is stopped again."""
END_AGAIN_SECONDS = 0.5
"""How long a job may continue after its VM was stopped before the VM is stopped again."""


class Jobs:
    """Runs the jobs of a host, with one thread for each VM.

    Args:
        side: The pool as the host sees it.
        num_vms: How many VMs the host has.
        retry_after: Seconds before a quarantined VM is tried again: the first time, and at most.
    """

    def __init__(self, side: HostClient, num_vms: int, retry_after: tuple[float, float]) -> None:
        self.stop = threading.Event()
        """Set once the host stops: nothing is reported from then on."""
        self._side = side
        self._retry_after = retry_after
        self._threads = ThreadPoolExecutor(num_vms, thread_name_prefix=f"vm of {side.host_id}")

    def prepare(self, machine: Machine, fence: int, work: Callable[[int], Endpoint]) -> None:
        """Boots or resets a VM; a VM that fails is stopped and quarantined.

        Args:
            machine: The VM.
            fence: The fence under which this begins.
            work: The machine's `boot` or `reset`.
        """
        self._start(machine, lambda: self._prepare(machine, fence, work))

    def check(self, machine: Machine, fence: int) -> None:
        """Checks a free VM; one that fails is reset, unless it was leased since."""
        self._start(machine, lambda: self._check(machine, fence))

    def end(self, machine: Machine) -> None:
        """Stops a VM; where that fails, `Machine.stop_at` says when to try again."""
        self._start(machine, lambda: self._end(machine))

    def end_for_good(self, machines: Iterable[Machine]) -> None:
        """Stops VMs, and returns when no job can start them again."""
        threads = [threading.Thread(target=self._end_for_good, args=(machine,)) for machine in machines]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def wait(self) -> None:
        """Returns when all jobs have ended."""
        self._threads.shutdown(wait=True)

    def _start(self, machine: Machine, work: Callable[[], None]) -> None:
        machine.job = self._threads.submit(work)
        machine.job.add_done_callback(lambda _job: self._look_again())

    def _look_again(self) -> None:
        """Wakes up the host: it did not act on the VM's state while the VM was busy."""
        if not self.stop.is_set():
            with suppress(PoolError):
                self._side.wake()

    def _prepare(self, machine: Machine, fence: int, work: Callable[[int], Endpoint]) -> None:
        vm_id = machine.vm_id
        if self.stop.is_set():
            return
        try:
            endpoint = work(fence)
        except Exception as error:  # noqa: BLE001 (the border to providers: a broken VM is quarantined)
            why = f"{type(error).__name__}: {error}"
            if not self.stop.is_set():
                log.warning("host %s: %s is quarantined: %s", self._side.host_id, vm_id, why)
            self._end(machine)
            first, longest = self._retry_after
            self._report(lambda: self._side.failed(vm_id, fence, why, first_delay=first, longest_delay=longest))
            return
        machine.checked_at = time.monotonic()
        self._report(lambda: self._side.ready(vm_id, fence, endpoint))

    def _check(self, machine: Machine, fence: int) -> None:
        machine.checked_at = time.monotonic()
        try:
            machine.check()
        except Exception as error:  # noqa: BLE001 (the border to providers)
            log.warning("host %s: %s failed its check and is reset: %s", self._side.host_id, machine.vm_id, error)
            self._report(lambda: self._side.try_move(machine.vm_id, {VMState.FREE}, VMState.RESETTING, fence))

    def _end(self, machine: Machine) -> None:
        try:
            machine.stop()
        except Exception as error:  # the boundary to providers: the other VMs must still be stopped
            if machine.may_run:
                machine.stop_at = time.monotonic() + STOP_AGAIN_SECONDS
                log.exception("host %s: %s could not be stopped", self._side.host_id, machine.vm_id)
            else:
                log.warning("host %s: %s is stopped, but %s", self._side.host_id, machine.vm_id, error)

    def _end_for_good(self, machine: Machine) -> None:
        """Stops the VM again after any running job: the job may have started it."""
        while True:
            over = not machine.busy
            self._end(machine)
            if over or machine.job is None:
                return
            wait([machine.job], timeout=END_AGAIN_SECONDS)

    def _report(self, say: Callable[[], object]) -> None:
        """Reports to the pool, repeating as often as needed: fences make outdated reports harmless."""
        while not self.stop.is_set():
            try:
                say()
                return
            except (PoolUnreachable, PoolRefused):
                self.stop.wait(REPEAT_SECONDS)
