"""The traces of a run with their rewards: what a trainer learns from.

A rollout that the infrastructure lost says nothing about the policy: it has no reward and is left out, so that it cannot
shift the mean of its group either. A failure of the agent has the reward 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmark.results import VALID
from benchmark.stored_report import scan_report
from rollout_tasks.errors import UserError
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.runs.verdict import rollout_id_of
from rollout_tasks.trajectories.call_reader import CallRecordError
from rollout_tasks.trajectories.reader import TrajectoryError
from rollout_tasks.trajectories.sampled_calls import sampled_calls
from rollout_tasks.trajectories.traces import Trace, TraceError, check_traces, traces_of


@dataclass(frozen=True, slots=True)
class RewardedTrace:
    """One trace of a rollout."""

    item_id: str
    rollout: int
    """Which of the item's rollouts, from 0: those of one item are a group."""
    attempt: int
    """The attempt whose result counts."""
    number: int
    """Which of the rollout's traces, from 0."""
    reward: float
    """The rollout's score, the same for all of its traces."""
    trace: Trace
    directory: Path
    """The attempt's folder, in which the trace's pictures are."""


def rewarded_traces(folder: RunFolder, take: Callable[[list[RewardedTrace]], None]) -> Counter[str]:
    """Reads the traces of a run that has been scored, rollout by rollout.

    Args:
        folder: The run.
        take: Gets the traces of each rollout, at least one.

    Returns:
        How many rollouts were left out, by the reason.

    Raises:
        BenchmarkError: The report cannot be read.
        UserError: The run has no report, or a record cannot be read or contradicts itself.
    """
    if not folder.has_report():
        raise UserError(
            f"run {folder.path.name} has no scores yet, and they are the rewards: rollouts rescore gives it some"
        )
    left_out: Counter[str] = Counter()

    def take_item(row: Mapping[str, Any]) -> None:
        for rollout in row["rollouts"]:
            if rollout["standing"] not in VALID or rollout["score"] is None:
                left_out[str(rollout["standing"])] += 1
                continue
            found = _traces(folder, str(row["item_id"]), int(rollout["index"]), float(rollout["score"]))
            if found:
                take(found)
            else:
                left_out["no_calls"] += 1

    scan_report(folder.evaluation, take_item)
    return left_out


def _traces(folder: RunFolder, item_id: str, index: int, reward: float) -> list[RewardedTrace]:
    rollout_id = rollout_id_of(item_id, index)
    verdict = folder.final_verdict(rollout_id)
    directory = folder.attempt(rollout_id, verdict.attempt)
    try:
        calls = sampled_calls(directory)
        traces = traces_of(calls)
        check_traces(traces, calls)
    except (CallRecordError, TrajectoryError) as error:
        raise UserError(str(error)) from error
    except TraceError as error:
        raise UserError(f"{directory}: {error}") from error
    return [
        RewardedTrace(item_id, index, verdict.attempt, number, reward, trace, directory)
        for number, trace in enumerate(traces)
    ]
