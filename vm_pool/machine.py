"""One VM of a host: booted, reset and checked through its provider, proved clean, and lent out through a gate."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

from vm_pool.canary import CleanState, Fingerprint
from vm_pool.gate import Gate, Gates
from vm_pool.providers.base import Provider, TakesFingerprints, connect, purposes
from vm_pool.states import Endpoint


class Machine:
    """What the host itself knows of one VM, and does with it.

    Args:
        vm_id: The VM.
        provider: Where it comes from.
        gates: Where its gates are opened.
        clean: What VMs of this provider are like when they are clean.
    """

    def __init__(self, vm_id: str, provider: Provider, gates: Gates, clean: CleanState) -> None:
        self.vm_id = vm_id
        self.fence = 0
        """The highest one the pool said."""
        self.job: Future[None] | None = None
        self.booted = False
        self.checked_at = 0.0
        """In seconds of `time.monotonic`."""
        self._provider = provider
        self._gates = gates
        self._gate: Gate | None = None
        self._gate_fence = 0
        self._clean = clean

    @property
    def busy(self) -> bool:
        """Whether something is being done with it."""
        return self.job is not None and not self.job.done()

    def boot(self, fence: int) -> Endpoint:
        """Starts the VM anew and proves it ready.

        Args:
            fence: Under which this is done.

        Returns:
            What the next holder gets.

        Raises:
            Exception: Whatever the provider raises; the VM is of no use then.
        """
        self.close_gate()
        self._provider.stop(self.vm_id)  # what a failed boot or reset left
        self.booted = False
        endpoint = self._provider.boot(self.vm_id)
        self.booted = True
        self._provider.check(self.vm_id)
        if isinstance(self._provider, TakesFingerprints):
            self._clean.learn(self._fingerprint_of(self._provider))
        return self._open_gate(endpoint, fence)

    def reset(self, fence: int) -> Endpoint:
        """Reverts the VM, and proves it ready and clean. Arguments and results as `boot`'s."""
        self.close_gate()
        endpoint = self._provider.reset(self.vm_id)
        self._provider.check(self.vm_id)
        if isinstance(self._provider, TakesFingerprints):
            self._clean.expect(self._fingerprint_of(self._provider))
        return self._open_gate(endpoint, fence)

    def check(self) -> None:
        """Raises unless the VM is ready for use."""
        self._provider.check(self.vm_id)

    def stop(self) -> None:
        """Ends the VM."""
        self.close_gate()
        self.booted = False
        self._provider.stop(self.vm_id)

    def close_gate(self, *, before: int | None = None) -> None:
        """Ends every connection to the VM, and makes sure that no other comes through.

        Args:
            before: Only a gate that was opened under a lower fence than this.
        """
        gate = self._gate
        if gate is not None and (before is None or self._gate_fence < before):
            gate.close()
            self._gate = None

    def _fingerprint_of(self, provider: TakesFingerprints) -> Callable[[], Fingerprint]:
        return lambda: provider.fingerprint(self.vm_id)

    def _open_gate(self, endpoint: Endpoint, fence: int) -> Endpoint:
        """A VM without ports, as a simulated one, has no gate."""
        if not endpoint.ports:
            return endpoint
        self._gate_fence = fence
        self._gate = self._gates.open(
            purposes(self._provider, endpoint), lambda purpose: connect(self._provider, self.vm_id, purpose, endpoint)
        )
        return self._gate.endpoint
