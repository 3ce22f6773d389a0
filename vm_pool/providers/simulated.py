"""Simulated VMs: boots, resets and failures take random times. For planning and tests."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat

from vm_pool.states import Endpoint

Share = Annotated[float, Field(ge=0, le=1)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Uniform(_Part):
    """Every time between the two is equally likely."""

    shortest: NonNegativeFloat
    longest: NonNegativeFloat

    def draw(self, chance: random.Random) -> float:
        """Returns seconds."""
        return chance.uniform(self.shortest, self.longest)


class Lognormal(_Part):
    """Mostly around the median, sometimes much longer."""

    median: NonNegativeFloat
    sigma: NonNegativeFloat

    def draw(self, chance: random.Random) -> float:
        """Returns seconds."""
        return self.median * chance.lognormvariate(0, self.sigma)


Seconds = NonNegativeFloat | Uniform | Lognormal
"""A fixed time, or a distribution to draw it from."""


class SimulatedOptions(_Part):
    """How simulated VMs behave."""

    boot_seconds: Seconds = 0.2
    reset_seconds: Seconds = 0.1
    boot_failure: Share = 0.0
    """The share of boots that fail."""
    reset_failure: Share = 0.0
    """The share of resets that fail."""
    fail_resets_while: Path | None = None
    """While a file of this name exists, every reset fails."""
    needs_reset: bool = True
    seed: int = 0
    """The same seed and VM give the same times and failures."""


class SimulatedProvider:
    """The provider `simulated`; its options are `SimulatedOptions`."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = SimulatedOptions.model_validate(dict(options))
        self.needs_reset = self.options.needs_reset
        self._running: dict[str, threading.Event] = {}
        self._calls: Counter[str] = Counter()
        self._lock = threading.Lock()

    def boot(self, vm_id: str) -> Endpoint:
        """Takes `boot_seconds`; fails in the share `boot_failure` of cases."""
        stopped = threading.Event()
        with self._lock:
            self._running[vm_id] = stopped
        self._take(vm_id, "boot", self.options.boot_seconds, self.options.boot_failure, stopped)
        return Endpoint("127.0.0.1")

    def check(self, vm_id: str) -> None:
        """Raises unless the VM was booted and not stopped since."""
        self._stop_of(vm_id)

    def reset(self, vm_id: str) -> Endpoint:
        """Takes `reset_seconds`; fails in the share `reset_failure` of cases, and while `fail_resets_while` exists."""
        options = self.options
        self._take(vm_id, "reset", options.reset_seconds, options.reset_failure, self._stop_of(vm_id))
        if options.fail_resets_while is not None and options.fail_resets_while.exists():
            raise RuntimeError(f"reset of {vm_id} failed, as {options.fail_resets_while.name} exists")
        return Endpoint("127.0.0.1")

    def stop(self, vm_id: str) -> None:
        """Forgets the VM."""
        with self._lock:
            stopped = self._running.pop(vm_id, None)
        if stopped is not None:
            stopped.set()

    def reap_leftovers(self, host_id: str) -> Sequence[str]:  # noqa: ARG002 (part of the contract)
        """Finds nothing: simulated VMs leave nothing behind."""
        return ()

    def _stop_of(self, vm_id: str) -> threading.Event:
        with self._lock:
            stopped = self._running.get(vm_id)
        if stopped is None:
            raise RuntimeError(f"{vm_id} is not running")
        return stopped

    def _take(self, vm_id: str, what: str, seconds: Seconds, failure: float, stopped: threading.Event) -> None:
        with self._lock:
            self._calls[vm_id] += 1
            chance = random.Random(f"{self.options.seed}:{vm_id}:{self._calls[vm_id]}")  # noqa: S311
        time_taken = seconds if isinstance(seconds, float) else seconds.draw(chance)
        if stopped.wait(time_taken):
            raise RuntimeError(f"{vm_id} was stopped during its {what}")
        if chance.random() < failure:
            raise RuntimeError(f"{what} of {vm_id} failed by chance")
