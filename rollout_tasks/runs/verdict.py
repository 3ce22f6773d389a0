"""A verdict: how one rollout ended. It is written to the rollout's folder and committed once in the run store."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from benchmark.items import Item
from benchmark.results import RolloutResult
from rollout_tasks.errors import FailureClass
from rollout_tasks.models.base import Usage
from rollout_tasks.unicode_text import storable

Status = Literal["completed", "failed", "cancelled"]


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """Which VM an attempt held, and when (seconds since the epoch)."""

    vm_id: str
    fence: int
    waited: float
    allocated: float
    released: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a rollout ended, and what it used."""

    rollout_id: str
    attempt: int
    status: Status
    answer: str = ""
    score: float | None = None
    """The environment's own score in [0, 1]; None when the answer is still to be compared."""
    failure_class: FailureClass | None = None
    error: str = ""
    ending: str = ""
    turns: int = 0
    usage: Usage = field(default_factory=Usage)
    cost: float | None = None
    """Dollars for the attempt's tokens; None when their price is not known."""
    earlier_cost: float | None = None
    """Dollars for the rollout's earlier attempts, as far as they are known."""
    stages: Mapping[str, float] = field(default_factory=dict)
    """Seconds in the environment's ``setup``, ``acting`` and ``evaluation``, and waiting for the ``model``."""
    task_code: Literal["cell", "worker"] | None = None
    """Where the item's own code ran: in a separate cell or in the worker's own process; None if there was none."""
    attestation: Literal["attested", "unattested"] | None = None
    """Whether the VM's server is known to be the original one; None if the score does not depend on that."""
    record_problem: str = ""
    """Why a trainer cannot use the attempt's record, although its tokens were asked for: a sentence that says where."""
    worker: str = ""
    started: float = 0.0
    finished: float = 0.0
    lease: LeaseRecord | None = None

    def as_dict(self) -> dict[str, Any]:
        """Returns plain values without empty ones; text that files or Redis do not accept is replaced."""
        values = _values(self) | {"usage": _values(self.usage)}
        values |= {name: storable(values[name]) for name in ("answer", "error", "record_problem")}
        if self.lease is not None:
            values["lease"] = _values(self.lease)
        return {key: value for key, value in values.items() if value not in (None, "", {})}

    def as_json(self, **more: Any) -> str:
        """Returns one line of JSON."""
        return json.dumps(self.as_dict() | more, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str, *, rollout_id: str | None = None) -> Verdict:
        """Parses the result of `as_json`."""
        return cls.from_dict(json.loads(text), rollout_id=rollout_id)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], *, rollout_id: str | None = None) -> Verdict:
        """Parses the result of `as_dict`; unknown keys are ignored, so that older runs stay readable."""
        values = {"lease": values.get("lending"), **values}  # the name in runs of earlier versions
        values = _known(cls, values)
        if rollout_id is not None:
            values["rollout_id"] = rollout_id
        if "usage" in values:
            values["usage"] = Usage(**_known(Usage, values["usage"]))
        if values.get("failure_class"):
            values["failure_class"] = FailureClass(values["failure_class"])
        if values.get("lease"):
            values["lease"] = LeaseRecord(**_known(LeaseRecord, values["lease"]))
        return cls(**values)

    @property
    def worth_repeating(self) -> bool:
        """Whether a resumed run should try this rollout again, because the verdict says nothing about the agent."""
        return self.failure_class is not None and self.failure_class.counted_as == "infrastructure"

    @property
    def total_cost(self) -> float | None:
        """Dollars for all the rollout's attempts; None when nothing is known of them."""
        known = [cost for cost in (self.earlier_cost, self.cost) if cost is not None]
        return sum(known) if known else None

    def as_result(self) -> RolloutResult:
        """Returns the verdict in the benchmark's form."""
        item_id, index = split_rollout_id(self.rollout_id)
        return RolloutResult(
            item_id=item_id,
            index=index,
            status=self.status,
            answer=self.answer,
            score=self.score,
            failure_class=self.failure_class.value if self.failure_class else None,
            counted_as=self.failure_class.counted_as if self.failure_class else None,
            error=self.error or None,
            seconds=max(0.0, self.finished - self.started),
            stages=({"vm": round(self.lease.waited, 3)} if self.lease else {}) | dict(self.stages),
            prompt_tokens=self.usage.prompt_tokens,
            completion_tokens=self.usage.completion_tokens,
            cost=self.total_cost,
            attempts=self.attempt,
            task_code=self.task_code,
            attestation=self.attestation,
            record_problem=self.record_problem,
        )


_FIELDS = {record: tuple(entry.name for entry in fields(record)) for record in (Verdict, Usage, LeaseRecord)}
"""The names of each record's fields."""


def _known(record: type[Verdict | Usage | LeaseRecord], values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values that this version knows: a newer one may have stored more."""
    return {key: value for key, value in values.items() if key in _FIELDS[record]}


def _values(record: Verdict | Usage | LeaseRecord) -> dict[str, Any]:
    """Like `dataclasses.asdict`, without its deep copies."""
    return {name: getattr(record, name) for name in _FIELDS[type(record)]}


def cancelled_verdict(rollout_id: str, why: str) -> Verdict:
    """Returns the verdict of a rollout that was cancelled before it began."""
    return Verdict(rollout_id, 0, "cancelled", failure_class=FailureClass.CANCELLED, error=why)


def rollout_id_of(item_id: str, index: int) -> str:
    """Returns ``<item id>#<index>``."""
    return f"{item_id}#{index}"


def split_rollout_id(rollout_id: str) -> tuple[str, int]:
    """Returns item id and index of a rollout id; the item's id may itself contain ``#``."""
    item_id, _, index = rollout_id.rpartition("#")
    return item_id, int(index)


def rollout_ids(items: Iterable[Item], rollouts_per_item: int) -> list[str]:
    """Returns every rollout id of a run: first each item's first, then each item's second, and so on."""
    names = [item.id for item in items]
    return [rollout_id_of(name, index) for index in range(rollouts_per_item) for name in names]
