"""A run's rollouts for the index, read from the run's folder: rewards, versions, and how large their traces are."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmark.results import VALID
from rollout_tasks.errors import UserError
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.runs.verdict import rollout_id_of
from rollout_tasks.training.index.versions import UNKNOWN
from rollout_tasks.training.rewarded_traces import RewardedRollout, rewarded
from rollout_tasks.training.scored_rollouts import LeftOut, reported, scored
from rollout_tasks.unicode_text import storable

_LONGEST_ID = 1_000
_LONGEST_WORD = 50
_MOST = 1 << 31
_LATEST = 1e11
"""The latest time that a record may have, in seconds since the epoch."""

Rows = Sequence[tuple[str, Sequence[Mapping[str, Any]]]]
"""Items with the rows of their rollouts, as `reported` returns them."""


@dataclass(frozen=True, slots=True)
class FoundRollout:
    """A rollout, as its run's folder has it."""

    item_id: str
    index: int
    reward: float | None
    """None if a trainer cannot learn from it."""
    left_out: str
    """Why not; empty if it can."""
    failure_class: str
    attempt: int = 0
    ended: float = 0.0
    """In seconds since the epoch; 0 if its record does not tell."""
    version: str = UNKNOWN
    traces: tuple[Mapping[str, Any], ...] = ()
    """For each, its number, model, and how many tokens and pictures it has."""


def checked_rows(report: Path) -> Rows:
    """Returns the items of a report with the rows of their rollouts.

    Raises:
        BenchmarkError: The report is missing or cannot be read.
        UserError: It has an id or a score that none can have.
    """
    rows = reported(report)
    for item_id, own in rows:
        if not isinstance(item_id, str) or not 0 < len(item_id) <= _LONGEST_ID or storable(item_id) != item_id:
            raise UserError(f"{report}: {ascii(item_id)[:50]} is not an item's id")
        for row in own:
            rollout_id = rollout_id_of(item_id, row["index"])
            if not 0 <= row["index"] < _MOST:
                raise UserError(f"{report}: {rollout_id} is not a rollout's id")
            if row["score"] is not None and not 0 <= row["score"] <= 1:
                raise UserError(
                    f"{report}: rollout {rollout_id} has the score {row['score']:g}, which is not in [0, 1]"
                )
    return rows


def find(
    folder: RunFolder, item_id: str, row: Mapping[str, Any], known_reward: float | None, problems: LeftOut
) -> FoundRollout | None:
    """Reads a rollout.

    Args:
        folder: The run.
        item_id: The rollout's item.
        row: The rollout in a report.
        known_reward: The reward that the index has of it.
        problems: Takes the first problem with a record.

    Returns:
        The rollout; None if the index has it so: a verdict never changes, and neither do its traces.
    """
    if known_reward is not None and known_reward == row["score"] and row["standing"] in VALID:
        return None
    left_out = LeftOut()
    found = next(scored(folder, item_id, [row], rewarded, left_out), None)
    problems.first_problem = problems.first_problem or left_out.first_problem
    if found is None:
        return FoundRollout(
            item_id, row["index"], None, _word(next(iter(left_out.counted))), _word(row["failure_class"])
        )
    return FoundRollout(
        item_id,
        found.index,
        found.reward,
        "",
        _word(found.failure_class),
        found.attempt,
        _ended(folder, found),
        _version(found),
        _sizes(found),
    )


def _ended(folder: RunFolder, found: RewardedRollout) -> float:
    verdict = folder.verdict(rollout_id_of(found.item_id, found.index))
    ended = verdict.finished if verdict else 0.0
    return float(ended) if type(ended) in {int, float} and math.isfinite(ended) and 0 <= ended < _LATEST else 0.0


def _version(found: RewardedRollout) -> str:
    """Returns the version at a rollout's beginning, which is its oldest: weights only go forward."""
    spans = [span for trace in found.traces for span in trace.spans]
    return spans[0].version if spans else UNKNOWN


def _sizes(found: RewardedRollout) -> tuple[Mapping[str, Any], ...]:
    return tuple(
        {
            "number": number,
            "model": trace.model,
            "tokens": len(trace.ids),
            "sampled_tokens": sum(trace.sampled),
            "pictures": len(trace.pictures),
        }
        for number, trace in enumerate(found.traces)
    )


def _word(text: Any) -> str:
    return storable(str(text or ""))[:_LONGEST_WORD]
