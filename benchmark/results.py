"""The input and output values of an evaluation. Scoring is in `benchmark.scoring`.

Every requested rollout has one of these standings:

========================  ==========================================================  ======  =====  =======
standing                  what happened                                               score   valid  covered
========================  ==========================================================  ======  =====  =======
``scored``                it completed and its answer was scored                      its own  yes    yes
``agent_failure``         it failed because of the agent                              0        yes    yes
``infrastructure_loss``   it failed, but not because of the agent                     0        no     yes
``cancelled``             the run was cancelled before it ended                       0        no     no
``missing``               there is no result                                          0        no     no
``unscored``              it completed, but the metric or the judge gave no score     none     no     no
========================  ==========================================================  ======  =====  =======

Valid rollouts say something about the agent; covered rollouts have a verdict that counts. A missing score counts as 0
in the official average, and the bounds show how far off the average may be.
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
"""Used as the metric's name when the environment gave the score itself."""
PERFECT = 1.0 - 1e-9
"""Lowest score that counts as success, for perfect matches and pass@k; the margin allows for rounding."""


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
    """The environment's own score, in [0, 1]; if set, no metric is used."""
    failure_class: str | None = None
    counted_as: Literal["agent", "infrastructure"] | None = None
    """Who caused the failure; None counts as the infrastructure."""
    error: str | None = None
    """One sentence."""
    seconds: float | None = None
    """Wall time of the attempt that counted."""
    stages: Mapping[str, float] = field(default_factory=dict)
    """That time by stage, in seconds, as far as it is known."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = None
    """Dollars for those tokens; None when their price is not known."""
    attempts: int = 1
    task_code: Literal["cell", "worker"] | None = None
    """Where the item's own code ran: in a separate cell, or in the worker's process; None when it has no code."""
    attestation: Literal["attested", "unattested"] | None = None
    """Whether the VM's server is known to be the original one; None when the score does not depend on that."""
    record_problem: str = ""
    """Why a trainer cannot use its record: one sentence; empty if that is not known, or it can."""

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
    """The metric that scored it, or ``environment``; None when it was not scored."""
    details: Mapping[str, Any] = field(default_factory=dict)
    failure_class: str | None = None
    error: str | None = None
    seconds: float | None = None
    attempts: int = 0


@dataclass(frozen=True, slots=True)
class ItemRow:
    """One item in the evaluation; prediction and details are those of its first rollout."""

    item_id: str
    domain: str | None
    question: str
    ground_truth: str
    prediction: str
    score: float | None
    """Mean over the rollouts, where a missing score counts 0; None when no rollout has a score."""
    metric_name: str | None
    details: Mapping[str, Any]
    rollouts: tuple[RolloutRow, ...]


@dataclass(frozen=True, slots=True)
class Losses:
    """Rollouts that have no score of their own, for one reason."""

    count: int
    counted_as: Literal["agent", "infrastructure"]
    example: str
    """The id of the first such rollout, and its error."""


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
    """The figures of the whole run."""

    metric: str
    """The metric that scored the answers; ``environment`` when no metric was used."""
    total_items: int
    evaluated_items: int
    """Items with at least one covered rollout."""
    rollouts_per_item: int
    total_rollouts: int
    standings: Mapping[Standing, int]
    coverage: float
    """Share of rollouts that are covered."""
    average_score: float
    """The official score: the mean over all requested rollouts, where a missing score counts 0."""
    valid_items: int
    """Items with at least one valid rollout."""
    valid_mean: float | None
    """Mean over those items of the mean of their valid rollouts."""
    standard_error: float | None
    """Standard error of `valid_mean`, clustered by item."""
    confidence_interval: tuple[float, float] | None
    """95 % interval of `valid_mean`."""
    interval_method: str | None
    bounds: tuple[float, float]
    """The average if every invalid rollout had scored 0, or 1."""
    max: float
    min: float
    """Highest and lowest item score; a missing score counts 0."""
    perfect_matches: int
    """Items whose score is 1."""
    failures: Mapping[str, Losses]
    """Failed and cancelled rollouts by failure class."""
    unscored: Mapping[str, Losses]
    """Completed rollouts without a score, by failure class of the scoring."""
    mean_at_n: float
    max_at_n: float
    """Mean over items of the best of their rollouts."""
    pass_at_k: Mapping[int, float]
    seconds: float
    """Total wall time of the counted attempts."""
    stages: Mapping[str, float]
    """The same by stage; the stages need not add up to the total."""
    prompt_tokens: int
    completion_tokens: int
    cost: float | None = None
    """Dollars for those tokens, as far as their price is known; None when it is not known for any."""
    task_code: Mapping[str, int] = field(default_factory=dict)
    """Number of rollouts by where their items' own code ran: ``cell`` or ``worker``."""
    attestation: Mapping[str, int] = field(default_factory=dict)
    """Number of rollouts by whether their VM's server is known to be the original: ``attested`` or ``unattested``."""
    record_problems: int = 0
    """Number of rollouts whose records a trainer cannot use, although their tokens were asked for."""
    first_record_problem: str = ""
    """What is wrong with the first of them: one sentence."""


@dataclass(frozen=True, slots=True)
class Overview:
    """The content of a report besides its rows."""

    groups: tuple[Group, ...]
    """By name; empty when no item has a domain."""
    summary: Summary
    worst: tuple[ItemRow, ...]
    """At most ten items with the lowest scores, lowest first; perfect items are left out."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Scores of a run: per item, per group and in total."""

    rows: tuple[ItemRow, ...]
    overview: Overview

    @property
    def groups(self) -> tuple[Group, ...]:
        """Figures by domain."""
        return self.overview.groups

    @property
    def summary(self) -> Summary:
        """Figures of the whole run."""
        return self.overview.summary

    def item_scores(self) -> dict[str, float]:
        """Returns scores by item id, for `benchmark.statistics.compare_paired`; a missing score counts 0."""
        return {row.item_id: row.score or 0.0 for row in self.rows}
