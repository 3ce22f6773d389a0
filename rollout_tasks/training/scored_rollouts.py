"""The rollouts of a run that count, with their scores as rewards.

A rollout that the infrastructure lost says nothing about the policy: it has no reward and is left out, so that it cannot
shift the mean of its group either. A failure of the agent has the reward 0.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from benchmark.results import VALID
from benchmark.stored_report import scan_report
from rollout_tasks.errors import UserError
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.runs.verdict import rollout_id_of
from rollout_tasks.trajectories.call_reader import CallRecordError
from rollout_tasks.trajectories.reader import TrajectoryError
from rollout_tasks.trajectories.traces import TokensUnknown, TraceError

NO_CALLS, NO_TOKENS, UNREADABLE = "no_calls", "no_tokens", "unreadable"
"""Reasons to leave out a rollout, besides its standing: no model replied in it; its model did not return its tokens; its record
cannot be read, or contradicts itself."""
OTHER_API = "other_api"
"""A further one: its model was asked in an API whose messages the format does not have."""

_BROKEN = (ArithmeticError, AttributeError, LookupError, OSError, RecursionError, TypeError, ValueError)
"""What reading a record raises that somebody changed: a run's folder may come from elsewhere."""

Content = TypeVar("Content")


class NoCalls(Exception):
    """No model replied in a rollout."""


class OtherApi(Exception):
    """A rollout's model was asked in an API whose messages a format does not have: one sentence."""


@dataclass(frozen=True, slots=True)
class ScoredRollout:
    """A rollout that counts."""

    item_id: str
    index: int
    """Which of the item's rollouts, from 0: those of one item are a group."""
    attempt: int
    """The attempt whose result counts."""
    reward: float
    """Its score; each of its traces has it."""
    failure_class: str
    """How the agent failed, such as ``max_turns``; empty if it did not."""
    folder: Path
    """The attempt's folder, which has its record."""


@dataclass(slots=True)
class LeftOut:
    """Rollouts that a trainer cannot learn from."""

    counted: Counter[str] = field(default_factory=Counter)
    """How many, by the reason."""
    first_problem: str = ""
    """What was wrong with the first whose record had no tokens or could not be read: a sentence, or empty."""

    def add(self, reason: str, problem: object = "") -> None:
        """Counts one."""
        self.counted[reason] += 1
        self.first_problem = self.first_problem or str(problem)


def scored(
    folder: RunFolder,
    item_id: str,
    rollouts: Iterable[Mapping[str, Any]],
    read: Callable[[ScoredRollout], Content],
    left_out: LeftOut,
) -> Iterator[Content]:
    """Yields what is read of those rollouts of an item that count, one by one.

    Args:
        folder: The run.
        item_id: The item.
        rollouts: Its rollouts as rows of a report.
        read: Reads a rollout's record. What it raises leaves out that rollout alone.
        left_out: Counts the others.
    """
    for row in rollouts:
        if row["standing"] not in VALID or row["score"] is None:
            left_out.add(str(row["standing"]))
            continue
        try:
            content = read(_found(folder, item_id, row))
        except NoCalls:
            left_out.add(NO_CALLS)
        except OtherApi as error:
            left_out.add(OTHER_API, error)
        except TokensUnknown as error:
            left_out.add(NO_TOKENS, error)
        except (CallRecordError, TrajectoryError, TraceError, UserError) as error:
            left_out.add(UNREADABLE, error)
        except _BROKEN as error:
            rollout_id = rollout_id_of(item_id, int(row["index"]))
            left_out.add(UNREADABLE, f"rollout {rollout_id}: its record is broken: {type(error).__name__}: {error}")
        else:
            yield content


def reported(report: Path) -> list[tuple[str, Sequence[Mapping[str, Any]]]]:
    """Returns the items of a report, each with the rows of its rollouts.

    Raises:
        BenchmarkError: The report is missing, cannot be read, or has rows that no report has.
    """
    found: dict[str, Sequence[Mapping[str, Any]]] = {}

    def take(row: Any) -> None:
        try:
            rollouts = [
                {name: one[name] for name in ("index", "standing", "score", "failure_class")} for one in row["rollouts"]
            ]
            new = (
                type(row["item_id"]) is str
                and row["item_id"] not in found
                and len({one["index"] for one in rollouts}) == len(rollouts)
            )
            if not new or not all(map(_is_valid_row, rollouts)):
                raise TypeError
            found[row["item_id"]] = rollouts
        except (ArithmeticError, LookupError, TypeError):
            raise ValueError("a row is not one of a report") from None

    scan_report(report, take)
    return list(found.items())


def _is_valid_row(row: Mapping[str, Any]) -> bool:
    """Returns whether a rollout's row has what it should have; a whole number that no float can be raises an OverflowError."""
    score = row["score"]
    has_texts = type(row["standing"]) is str and isinstance(row["failure_class"], str | None)
    is_score = score is None or (type(score) in {int, float} and math.isfinite(score))
    return has_texts and type(row["index"]) is int and is_score


def _found(folder: RunFolder, item_id: str, row: Mapping[str, Any]) -> ScoredRollout:
    index = int(row["index"])
    rollout_id = rollout_id_of(item_id, index)
    attempt = (folder.verdict(rollout_id) or folder.final_verdict(rollout_id)).attempt
    if type(attempt) is not int or attempt < 0:  # it is a part of a path
        raise ValueError(f"its attempt is {ascii(attempt)[:50]}")
    failure = str(row["failure_class"] or "")
    return ScoredRollout(item_id, index, attempt, float(row["score"]), failure, folder.attempt(rollout_id, attempt))
