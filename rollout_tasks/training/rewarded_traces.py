"""The traces of a rollout with its reward: what a trainer learns from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rollout_tasks.training.scored_rollouts import NoCalls, ScoredRollout
from rollout_tasks.trajectories.checked_traces import read_traces
from rollout_tasks.trajectories.traces import Trace


@dataclass(frozen=True, slots=True)
class RewardedRollout(ScoredRollout):
    """A rollout with its traces."""

    traces: tuple[Trace, ...]
    pictures: Mapping[str, Path]
    """The files of the traces' pictures, by SHA-256."""


def rewarded(rollout: ScoredRollout) -> RewardedRollout:
    """Reads a rollout's traces.

    Raises:
        CallRecordError: Its record cannot be read.
        NoCalls: No model replied in it.
        TokensUnknown: Its model did not return its tokens.
        TraceError: Its record contradicts itself.
        TrajectoryError: As `CallRecordError`.
    """
    traces, pictures = read_traces(rollout.folder)
    if not traces:
        raise NoCalls
    return RewardedRollout(
        rollout.item_id,
        rollout.index,
        rollout.attempt,
        rollout.reward,
        rollout.failure_class,
        rollout.folder,
        tuple(traces),
        pictures,
    )
