"""Writes a run in one of the formats: reads its rollouts one by one, and counts what is left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmark.results import VALID
from rollout_tasks.errors import UserError
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.training.exports.formats import FORMATS, Kind
from rollout_tasks.training.exports.target_folder import replacing
from rollout_tasks.training.scored_rollouts import LeftOut, reported, scored


def export_run(
    folder: RunFolder, report: Path, target: Path, kind: Kind = Kind.PARQUET, *, min_reward: float | None = None
) -> dict[str, Any]:
    """Writes a run; files of the same names are replaced once all are complete.

    Args:
        folder: The run.
        report: The JSON report whose scores are the rewards.
        target: The folder to write to; made if there is none.
        kind: The format.
        min_reward: Leaves out rollouts with a lower reward.

    Returns:
        How many ``rollouts`` and, by the format, ``traces``, ``pictures`` and more were written; how many rollouts were
        ``left_out``, by the reason; and the first ``problem`` with their records, or an empty text.

    Raises:
        BenchmarkError: The report is missing or cannot be read.
        OSError: The target cannot be written, or a picture cannot be read.
        UserError: No rollout has a record that can be read; another export writes there; or a package is missing.
    """
    chosen, left_out = FORMATS[kind], LeftOut()
    items = [(item_id, _at_least(rows, min_reward)) for item_id, rows in reported(report)]
    files_class = chosen.files()
    with replacing(target, chosen.names) as made:
        with files_class(folder, made) as files:
            for item_id, rows in items:
                for content in scored(folder, item_id, rows, files.read, left_out):
                    files.write(content)
        if left_out.first_problem and not files.counted["rollouts"]:
            raise UserError(left_out.first_problem)
    return {**files.counted, "left_out": dict(left_out.counted), "problem": left_out.first_problem}


def _at_least(rows: Sequence[Mapping[str, Any]], min_reward: float | None) -> list[Mapping[str, Any]]:
    """Returns the rows of an item's rollouts; those that count with a lower reward are left out for that."""
    if min_reward is None:
        return list(rows)
    return [
        {**row, "standing": "below_min_reward"}
        if row["standing"] in VALID and row["score"] is not None and row["score"] < min_reward
        else row
        for row in rows
    ]
