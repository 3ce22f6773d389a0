"""Scored runs for an index: real folders, of which each rollout has a reward, or was lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rollout_tasks.errors import FailureClass
from rollout_tasks.runs.finalize import score_run
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.training.index import Index
from rollout_tasks.training.index.trainable import TrainableGroup
from tests.unit.training.ended_rollouts import end, run_of

LOST = None
"""In the place of a reward: the infrastructure lost the rollout."""


def scored(
    path: Path, rewards: Mapping[str, Sequence[float | None]], *, version: str = "7", finished: float = 0.0
) -> RunFolder:
    """A run with the given rewards of each item; the rollouts end one after the other."""
    folder = run_of(path, list(rewards), rollouts_per_item=max(map(len, rewards.values())))
    for item_id, own in rewards.items():
        for number, reward in enumerate(own):
            failure = FailureClass.VM_LOST if reward is LOST else None
            end(folder, f"{item_id}#{number}", reward or 0.0, failure, version=version, finished=finished + number)
    score_run(folder, "exact_match")
    return folder


def shown(groups: Sequence[TrainableGroup]) -> dict[str, list[str]]:
    """Groups by their item: the run and the index of each rollout."""
    return {group.item_id: [f"{one.run_id}#{one.index}" for one in group.rollouts] for group in groups}


def add(index: Index, path: Path, rewards: Mapping[str, Sequence[float | None]], version: str = "7") -> RunFolder:
    """Adds a new run to an index."""
    folder = scored(path, rewards, version=version)
    index.add(folder.path)
    return folder
