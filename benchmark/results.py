"""The values that go into an evaluation and come out of it. No scoring here: that is `benchmark.evaluation`.

Every rollout that was asked for has one of these standings:

========================  ==========================================================  ======  =====  =======
standing                  what happened                                               score   valid  covered
========================  ==========================================================  ======  =====  =======
``scored``                it completed and its answer was scored                      its own  yes    yes
``agent_failure``         it failed by the agent's fault                              0        yes    yes
``infrastructure_loss``   it failed by no fault of the agent's                        0        no     yes
``cancelled``             the run was cancelled before it ended                       0        no     no
``missing``               there is no result                                          0        no     no
``unscored``              it completed, but the metric or the judge gave no score     none     no     no
========================  ==========================================================  ======  =====  =======

Valid ones say something about the agent; covered ones have a verdict that counts. A missing score counts as 0 in the
official average, and the bounds say how much it may be off.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from benchmark.errors import BenchmarkError

Standing = Literal["scored", "agent_failure", "infrastructure_loss", "cancelled", "missing", "unscored"]

VALID: frozenset[Standing] = frozenset({"scored", "agent_failure"})
COVERED: frozenset[Standing] = frozenset({"scored", "agent_failure", "infrastructure_loss"})
ENVIRONMENT = "environment"
"""Stands for the metric where the environment gave the score itself."""
PERFECT = 1.0 - 1e-9
"""A score from here on is a success, for perfect matches and pass@k; the margin is for rounding in partial scores."""


@dataclass(frozen=True, slots=True)
class RolloutResult:
    """How one rollout ended, as the pipeline recorded it."""

    item_id: str
    index: int = 0
    """Which of the item's rollouts, from 0."""
    status: Literal["completed", "failed", "cancelled"] = "completed"
    answer: str = ""
    """The agent's final text."""
    score: float | None = None
    """The environment's own, in [0, 1]; where there is one, no metric is asked."""
    failure_class: str | None = None
    counted_as: Literal["agent", "infrastructure"] | None = None
    """Whose failure it is; a failure that does not say counts as the infrastructure's."""
    error: str | None = None
    """One sentence."""
    seconds: float | None = None
    """Wall time of the attempt that counted."""
    stages: Mapping[str, float] = field(default_factory=dict)
    """Where that time went, in seconds by stage, as far as it is known."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    attempts: int = 1
    task_code: Literal["cell", "worker"] | None = None
    """Where code that came with the item ran: apart in a cell, or in the worker's own process; None where none came."""
    attestation: Literal["attested", "unattested"] | None = None
    """Whether the VM's server is known to be the one that was there at first; None where the score does not rest on that."""

    def __post_init__(self) -> None:
        where = f"result of rollout {self.item_id}#{self.index}"
        if self.status not in {"completed", "failed", "cancelled"}:
            raise BenchmarkError(f"{where}: status must be completed, failed or cancelled, got {self.status!r}")
        if self.score is not None and not (math.isfinite(self.score) and 0.0 <= self.score <= 1.0):
            raise BenchmarkError(f"{where}: score must be between 0 and 1, got {self.score!r}")


@dataclass(frozen=True, slots=True)
class RolloutRow:
    """One rollout in the evaluation."""

    index: int
    standing: Standing
    prediction: str = ""
    score: float | None = 0.0
    metric_name: str | None = None
    """The metric that scored it, or ``environment``; None when nothing did."""
    details: Mapping[str, Any] = field(default_factory=dict)
    failure_class: str | None = None
    error: str | None = None
    seconds: float | None = None
    attempts: int = 0


@dataclass(frozen=True, slots=True)
class ItemRow:
    """One item in the evaluation; with one rollout, prediction and details are that one's, else the first one's."""

    item_id: str
    domain: str | None
    question: str
    ground_truth: str
    prediction: str
    score: float | None
    """Mean over the rollouts, one without a score counting 0; None when none has a score."""
    metric_name: str | None
    details: Mapping[str, Any]
    rollouts: tuple[RolloutRow, ...]


@dataclass(frozen=True, slots=True)
class Losses:
    """Rollouts without a score of their own for one reason."""

    count: int
    counted_as: Literal["agent", "infrastructure"]
    example: str
    """The first one's sentence, with its rollout's id before it."""


@dataclass(frozen=True, slots=True)
class Group:
    """The items of one domain."""

    name: str | None
    total_items: int
    coverage: float
    average_score: float
    valid_mean: float | None
    standard_error: float | None


@dataclass(frozen=True, slots=True)
class Summary:
    """What the whole run says."""

    metric: str
    """What scored the answers; ``environment`` where no metric was asked for any."""
    total_items: int
    evaluated_items: int
    """Items with at least one covered rollout."""
    rollouts_per_item: int
    total_rollouts: int
    standings: Mapping[Standing, int]
    coverage: float
    """Share of rollouts that are covered."""
    average_score: float
    """The official score: the mean over all rollouts asked for, whatever has no score counting 0."""
    valid_items: int
    """Items with at least one valid rollout."""
    valid_mean: float | None
    """Mean over those items of the mean of their valid rollouts."""
    standard_error: float | None
    """Of `valid_mean`, clustered by item."""
    confidence_interval: tuple[float, float] | None
    """95 %, of `valid_mean`."""
    interval_method: str | None
    bounds: tuple[float, float]
    """The average if every rollout that is not valid had scored 0, or 1."""
    max: float
    min: float
    """Highest and lowest item score, nothing counting 0."""
    perfect_matches: int
    """Items whose score is 1."""
    failures: Mapping[str, Losses]
    """Failed and cancelled rollouts by failure class."""
    unscored: Mapping[str, Losses]
    """Completed rollouts that got no score, by the class of what went wrong in scoring."""
    mean_at_n: float
    max_at_n: float
    """Mean over items of the best of their rollouts."""
    pass_at_k: Mapping[int, float]
    seconds: float
    """Wall time of the counted attempts, added up."""
    stages: Mapping[str, float]
    """The same by stage; stages need not add up to the whole."""
    prompt_tokens: int
    completion_tokens: int
    task_code: Mapping[str, int] = field(default_factory=dict)
    """Rollouts by where code that came with their items ran: ``cell`` or ``worker``."""
    attestation: Mapping[str, int] = field(default_factory=dict)
    """Rollouts by whether their VM's server is known to be its own: ``attested`` or ``unattested``."""


@dataclass(frozen=True, slots=True)
class Overview:
    """What a report says besides its rows."""

    groups: tuple[Group, ...]
    """By name; empty when no item has a domain."""
    summary: Summary
    worst: tuple[ItemRow, ...]
    """The items with the lowest scores, lowest first, at most ten; perfect ones are not among them."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Scores of a run: per item, per group, summed up."""

    rows: tuple[ItemRow, ...]
    overview: Overview

    @property
    def groups(self) -> tuple[Group, ...]:
        """Figures by domain."""
        return self.overview.groups

    @property
    def summary(self) -> Summary:
        """Figures of the whole."""
        return self.overview.summary

    def item_scores(self) -> dict[str, float]:
        """Score by item id, none counting 0: what `benchmark.statistics.compare_paired` compares."""
        return {row.item_id: row.score or 0.0 for row in self.rows}
