"""What the run store says of a run and of a rollout: values, no behaviour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from benchmark.items import Item

RunState = Literal[
    "submitting", "half_submitted", "running", "draining", "cancelling", "finalizing", "done", "cancelled"
]
StartStatus = Literal[
    "started",
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
class Start:
    """What came of claiming a rollout."""

    status: StartStatus
    attempt: int
    item: Item | None = None
    holder: Mapping[str, Any] | None = None
    silent: float = 0.0
    """Seconds since the holder's last beat, when busy."""
    created: float = 0.0
    """When the run was submitted: another submission under the same id is another run."""


@dataclass(frozen=True, slots=True)
class Commit:
    """What came of offering a verdict."""

    outcome: Literal["ok", "committed", "superseded", "unknown"]
    left: int
    finalize: bool
    """Whether nobody but the caller will ask for the run to be finalised."""


@dataclass(frozen=True, slots=True)
class Cancellation:
    """What came of cancelling a run."""

    found: str
    """The state it was in; ``unknown`` when Redis does not know the run."""
    cancelled: int
    """Rollouts that were committed as cancelled just now: nobody had begun them, or whoever had is gone."""
    left: int
    """Rollouts without a verdict."""
    begun: Sequence[str] = ()
    """Those of them that nobody holds (any more)."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is."""

    run_id: str
    state: RunState
    total: int
    pending: int
    """Rollouts that are stored and have no verdict."""
    committed: int
    """Rollouts with a verdict."""
    running: int
    completed: int
    failed: int
    cancelled: int
    failures: Mapping[str, int]
    score_sum: float
    """Of the rollouts that the environment itself scored."""
    created: float
    queues: tuple[str, ...] = ()
    """Where its rollouts wait for a worker."""
    problem: str = ""
    """Why a run that is over has no report."""

    @property
    def stored(self) -> int:
        """Rollouts that the run store knows; fewer than `total` while, or because, submitting is not over."""
        return self.pending + self.committed
