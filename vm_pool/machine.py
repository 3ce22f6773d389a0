"""One VM of a host: boots, resets and checks it through its provider, proves it clean, and opens its gate."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

from vm_pool.canary import CleanState, Fingerprint
from vm_pool.gate import Gate, Gates
from vm_pool.providers.base import Provider, TakesFingerprints, checked_endpoint, connect, purposes
from vm_pool.states import Endpoint


class Machine:
    """What the host knows about one VM, and its operations on it.

    Args:
        vm_id: The VM.
        provider: Boots, resets and stops it.
        gates: Opens its gates.
        clean: What clean VMs of this provider look like.
    """

    def __init__(self, vm_id: str, provider: Provider, gates: Gates, clean: CleanState) -> None:
        self.vm_id = vm_id
        self.fence = 0
        """The highest fence that the pool has given."""
        self.job: Future[None] | None = None
        self.booted = False
        self.may_run = True
        """Whether anything of it may run: until a first stop has succeeded, as of a predecessor's, and from a boot to a stop."""
        self.checked_at = 0.0
        """In seconds of `time.monotonic`; so is the next one."""
        self.stop_at = 0.0
        """When it may be stopped again, if a stop has failed."""
        self._provider = provider
        self._gates = gates
        self._gate: Gate | None = None
        self._gate_fence = 0
        self._clean = clean

    @property
    def busy(self) -> bool:
        """Whether a job for it is running."""
        return self.job is not None and not self.job.done()

    def boot(self, fence: int) -> Endpoint:
        """Starts the VM afresh and makes sure that it is ready.

        Args:
            fence: The fence under which this is done.

        Returns:
            What the next holder gets.

        Raises:
            Exception: Any error of the provider; the VM is then unusable.
        """
        self.close_gate()
        self.may_run = True
        self._provider.stop(self.vm_id)  # what a failed boot or reset left
        self.booted = False
        endpoint = checked_endpoint(self._provider.boot(self.vm_id), self._provider, "boot")
        self.booted = True
        self._provider.check(self.vm_id)
        if isinstance(self._provider, TakesFingerprints):
            self._clean.learn(self._fingerprint_of(self._provider))
        return self._open_gate(endpoint, fence)

    def reset(self, fence: int) -> Endpoint:
        """Reverts the VM, and makes sure that it is ready and clean. Arguments and results as for `boot`."""
        self.close_gate()
        endpoint = checked_endpoint(self._provider.reset(self.vm_id), self._provider, "reset")
        self._provider.check(self.vm_id)
        if isinstance(self._provider, TakesFingerprints):
            self._clean.expect(self._fingerprint_of(self._provider))
        return self._open_gate(endpoint, fence)

    def check(self) -> None:
        """Raises unless the VM is ready for use."""
        self._provider.check(self.vm_id)

    def stop(self) -> None:
        """Stops the VM, also where its gate does not close."""
        try:
            self.close_gate()
        finally:
            self.booted = False
            self._provider.stop(self.vm_id)
            self.may_run = False

    def close_gate(self, *, before: int | None = None) -> None:
        """Closes every connection to the VM, and lets no other through.

        Args:
            before: Close only a gate that was opened under a lower fence.

        Raises:
            TimeoutError: The thread of all gates is stuck; this may be repeated.
        """
        gate = self._gate
        if gate is not None and (before is None or self._gate_fence < before):
            gate.close()
            self._gate = None

    def _fingerprint_of(self, provider: TakesFingerprints) -> Callable[[], Fingerprint]:
        return lambda: provider.fingerprint(self.vm_id)

    def _open_gate(self, endpoint: Endpoint, fence: int) -> Endpoint:
        """Opens the gate. A VM without ports, such as a simulated one, has none."""
        if not endpoint.ports:
            return endpoint
        self._gate_fence = fence
        self._gate = self._gates.open(
            purposes(self._provider, endpoint), lambda purpose: connect(self._provider, self.vm_id, purpose, endpoint)
        )
        return self._gate.endpoint
