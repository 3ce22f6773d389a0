"""The states of a VM, and a pool's status at one moment; no behaviour."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class VMState(StrEnum):
    """The state of a VM. Every transition is in docs/states-vm.md."""

    INITIALIZING = "initializing"
    """Booting."""
    FREE = "free"
    """Clean and checked."""
    LEASED = "leased"
    """Held under a fence until a deadline."""
    RESETTING = "resetting"
    """Being reverted by its host."""
    ERROR = "error"
    """Quarantined: a boot or reset failed, or an operator requested it."""
    STOPPED = "stopped"
    """Drained, and no longer running."""


SILENT = "silent"
"""What a VM counts as when its host gives no sign of life, unless it is leased, quarantined or stopped: it is not granted, and
nobody boots or resets it.
"""
_LOOKED_AFTER = frozenset({VMState.INITIALIZING, VMState.FREE, VMState.RESETTING})


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a VM answers."""

    address: str
    """Host name or IP address."""
    ports: Mapping[str, int] = field(default_factory=dict)
    """Port by purpose: ``control``, ``chromium``, ``vnc``, ``vlc``."""
    gate: str = ""
    """The name of the gate there, which needs a token; empty where no token is needed."""
    certificate: str = ""
    """The hash of the gate's certificate; empty where it does not use TLS."""
    token: str = field(default="", repr=False)
    """The gate's token. Made by each holder of the VM, and never stored."""


@dataclass(frozen=True, slots=True)
class VM:
    """One VM of a pool at one moment. Times are seconds since the epoch, of the server's clock."""

    vm_id: str
    state: VMState
    host: str
    """The host's name; empty for a VM that no host manages."""
    host_heard: bool
    """Whether the host sent a beat lately, and to this very server process: after a restart of Redis it must check
    its VMs first. The free VMs of other hosts are not granted.
    """
    endpoint: Endpoint
    needs_reset: bool
    fence: int
    """The number of the current lease, or of the work on the VM; it only grows."""
    since: float
    """When it entered its state."""
    drained: bool
    """Not granted any longer; stops once it is no longer used."""
    grants: int
    resets: int
    failures: int
    """Boots and resets that failed in a row."""
    error: str
    """Why it is quarantined; otherwise empty."""
    retry_at: float | None
    """When its host tries again; None when only an operator can release it."""
    holder: str
    """Who has leased it; otherwise empty."""
    deadline: float | None
    """When the lease ends unless renewed; None when not leased."""


@dataclass(frozen=True, slots=True)
class Waiter:
    """A client that waits for a VM."""

    token: str
    holder: str
    priority: int
    place: int
    """1 is next."""
    since: float
    """Seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class PoolStatus:
    """A pool at one moment."""

    name: str
    at: float
    """Seconds since the epoch, of the server's clock."""
    vms: tuple[VM, ...]
    waiters: tuple[Waiter, ...]
    counters: Mapping[str, int]
    """How often each event has happened since the pool was created."""

    def counts(self) -> dict[str, int]:
        """Returns how many VMs are in each state, or `SILENT`; leaves out states without VMs."""
        silent = [vm.state in _LOOKED_AFTER and not vm.host_heard for vm in self.vms]
        return dict(Counter(SILENT if is_ else vm.state.value for vm, is_ in zip(self.vms, silent, strict=True)))

    def sentence(self) -> str:
        """Returns the states' counts as text, such as ``2 leased, 1 resetting``."""
        counts = self.counts()
        words = [
            f"{counts[state]} {state}" for state in (*(state.value for state in VMState), SILENT) if state in counts
        ]
        silent = sorted({vm.host for vm in self.vms if not vm.host_heard})
        said = ", ".join(words) if words else "no VMs"
        return f"{said} (no sign of life from {', '.join(silent)})" if silent else said


@dataclass(frozen=True, slots=True)
class Event:
    """One entry of a pool's event stream."""

    id: str
    """Position in the stream; its first part is milliseconds since the epoch."""
    event: str
    """granted, released, expired, revoked, returned, registered, booted, boot_begun, reset_begun, reset_done, quarantined,
    stopped, removed, or host_silent."""
    vm_id: str
    fence: int
    holder: str
    """The lease's holder; for events about the VM alone, its host."""

    @property
    def at(self) -> float:
        """Seconds since the epoch."""
        return int(self.id.split("-", 1)[0]) / 1000
