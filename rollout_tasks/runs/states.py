"""States and results that the run store returns about runs and rollouts: values, no behaviour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from benchmark.items import Item

RunState = Literal[
    "submitting", "half_submitted", "running", "draining", "cancelling", "finalizing", "done", "cancelled", "unknown"
]
ClaimStatus = Literal[
    "claimed",
    "exhausted",
    "committed",
    "busy",
    "superseded",
    "cancelled",
    "draining",
    "half_submitted",
    "newer",
    "unknown",
]


@dataclass(frozen=True, slots=True)
class Claim:
    """The result of claiming a rollout."""

    status: ClaimStatus
    attempt: int
    item: Item | None = None
    holder: Mapping[str, Any] | None = None
    silent: float = 0.0
    """Seconds since the holder's last beat, when busy."""
    created: float = 0.0
    """When the run was submitted: another submission under the same id is another run."""


@dataclass(frozen=True, slots=True)
class Commit:
    """The result of committing a verdict."""

    outcome: Literal["ok", "committed", "superseded", "unknown"]
    left: int
    finalize: bool
    """Whether the caller must ask for the run to be finalised, because nothing else will."""
    reached_max_cost: bool = False
    """Whether the run has cost as much as it may, so that the caller must cancel the rest."""


@dataclass(frozen=True, slots=True)
class Cancellation:
    """The result of cancelling a run."""

    found: str
    """The run's state before; ``unknown`` when Redis does not know the run."""
    cancelled: int
    """Rollouts committed as cancelled just now: not yet begun, or begun by a worker that is gone."""
    left: int
    """Rollouts without a verdict."""
    begun: Sequence[str] = ()
    """Those of them that were begun and that nobody holds now."""


@dataclass(frozen=True, slots=True)
class Progress:
    """A run's progress."""

    run_id: str
    state: RunState
    """``unknown`` for an incomplete run that only its folder was asked about."""
    total: int
    pending: int
    """Stored rollouts without a verdict."""
    committed: int
    """Rollouts with a verdict."""
    running: int
    completed: int
    failed: int
    cancelled: int
    failures: Mapping[str, int]
    score_sum: float
    """Sum over the rollouts that the environment itself scored."""
    created: float
    cost: float | None = None
    """Dollars for the tokens of rollouts with a verdict; None when their price is not known."""
    queues: tuple[str, ...] = ()
    """The queues where its rollouts wait for a worker."""
    problem: str = ""
    """Why a finished run has no report, else empty."""

    @property
    def stored(self) -> int:
        """Rollouts that the run store knows; fewer than `total` while submitting goes on, or if it broke off."""
        return self.pending + self.committed
