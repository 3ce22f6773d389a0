"""The traces of a run with their rewards: what a trainer learns from.

A rollout that the infrastructure lost says nothing about the policy: it has no reward and is left out, so that it cannot
shift the mean of its group either. A failure of the agent has the reward 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
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
from rollout_tasks.trajectories.sampled_calls import read_sampled
from rollout_tasks.trajectories.traces import TokensUnknown, Trace, TraceError, check_traces, traces_of

NO_CALLS, NO_TOKENS = "no_calls", "no_tokens"
"""Reasons to leave out a rollout, besides its standing: no model replied in it; its model did not return its tokens."""


@dataclass(frozen=True, slots=True)
class RewardedRollout:
    """A rollout with its traces."""

    item_id: str
    index: int
    """Which of the item's rollouts, from 0: those of one item are a group."""
    attempt: int
    """The attempt whose result counts."""
    reward: float
    """Its score; each of its traces has it."""
    traces: tuple[Trace, ...]
    pictures: Mapping[str, Path]
    """The files of the traces' pictures, by SHA-256."""


def read_rollout(folder: RunFolder, item_id: str, index: int, reward: float) -> RewardedRollout:
    """Reads a rollout that has ended; it has no traces if no model replied in it.

    Raises:
        TokensUnknown: Its model did not return its tokens.
        UserError: Its record cannot be read, or what that says cannot be true.
    """
    rollout_id = rollout_id_of(item_id, index)
    attempt = folder.final_verdict(rollout_id).attempt
    directory = folder.attempt(rollout_id, attempt)
    try:
        episode = read_sampled(directory)
        traces = traces_of(episode.calls)
        check_traces(traces, episode.calls)
    except (CallRecordError, TrajectoryError) as error:
        raise UserError(f"rollout {rollout_id}: {error}") from error
    except TokensUnknown as error:
        raise TokensUnknown(f"{directory}: {error}") from error
    except TraceError as error:
        raise UserError(f"{directory}: {error}") from error
    return RewardedRollout(item_id, index, attempt, reward, tuple(traces), episode.pictures)


class RewardedRollouts:
    """The rollouts of a run that a trainer can learn from, in the order of its report; read one by one."""

    def __init__(self, folder: RunFolder, report: Path) -> None:
        """Reads the scores.

        Args:
            folder: The run.
            report: The JSON report whose scores are the rewards.

        Raises:
            BenchmarkError: The report is missing or cannot be read.
        """
        self.left_out: Counter[str] = Counter()
        """How many rollouts were left out so far, by the reason."""
        self.first_without_tokens = ""
        """Where it was first seen that a model did not return its tokens: a sentence, or empty."""
        self._folder = folder
        self._scored: list[tuple[str, int, float]] = []
        scan_report(report, self._take_item)

    def __iter__(self) -> Iterator[RewardedRollout]:
        """Yields them.

        Raises:
            UserError: A record cannot be read, or what it says cannot be true.
        """
        for item_id, index, reward in self._scored:
            try:
                found = read_rollout(self._folder, item_id, index, reward)
            except TokensUnknown as error:
                self.first_without_tokens = self.first_without_tokens or str(error)
                self.left_out[NO_TOKENS] += 1
                continue
            if found.traces:
                yield found
            else:
                self.left_out[NO_CALLS] += 1

    def _take_item(self, row: Mapping[str, Any]) -> None:
        for rollout in row["rollouts"]:
            if rollout["standing"] in VALID and rollout["score"] is not None:
                self._scored.append((str(row["item_id"]), int(rollout["index"]), float(rollout["score"])))
            else:
                self.left_out[str(rollout["standing"])] += 1
