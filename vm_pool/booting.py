"""Progress messages of a host while its VMs boot for the first time."""

from __future__ import annotations

from collections.abc import Sequence

from vm_pool.states import VMState

SAY_EVERY_SECONDS = 5.0


class BootProgress:
    """Decides when a progress message is due; the caller logs it.

    Args:
        now: When the boots began, in seconds of any clock.
    """

    def __init__(self, now: float) -> None:
        self._began = self._said = now
        self.done = False
        """Whether all VMs have been up at the same time."""

    def sentence(self, states: Sequence[VMState], now: float) -> str | None:
        """Returns the progress message that is due now, or None.

        Args:
            states: The state of every VM.
            now: Seconds of the same clock.
        """
        up = sum(state not in (VMState.INITIALIZING, VMState.ERROR) for state in states)
        if self.done or (up < len(states) and now - self._said < SAY_EVERY_SECONDS):
            return None
        self._said = now
        took = f"{now - self._began:.1f} s"
        if up == len(states):
            self.done = True
            return f"all {up} VMs are up after {took}" if up > 1 else f"its VM is up after {took}"
        parts = [f"{up} of {len(states)} VMs are up"]
        for state, words in ((VMState.INITIALIZING, "booting"), (VMState.ERROR, "in quarantine")):
            if number := sum(one is state for one in states):
                parts.append(f"{number} {words}")
        return f"{', '.join(parts)} ({took})"
