"""Rows as prime-rl's orchestrator sends them to its trainer: those fields of its `TrainingSample` that rollouts determine.

prime-rl/samples.parquet   one row for each trace
prime-rl/images/           each picture once, named by its SHA-256

The orchestrator, too, fills the other fields later: advantages and temperatures, and what a processor makes of the pictures.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rollout_tasks.registry import environment_name
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.training.exports.parquet_rows import arrow, output_type, span_type
from rollout_tasks.training.exports.trace_rows import NumberedTrace, RolloutRows, TraceRows
from rollout_tasks.training.scored_rollouts import ScoredRollout

FOLDER, ROWS_NAME = "prime-rl", "samples.parquet"


class Files:
    """The files while they are written."""

    def __init__(self, run: RunFolder, folder: Path) -> None:
        """Opens them.

        Args:
            run: The run that is exported.
            folder: Where to write.

        Raises:
            OSError: They cannot be written.
            UserError: pyarrow is not installed, or the run's description cannot be read.
        """
        self._run_id = run.path.name
        config = run.description.config()
        self._environments = {item.id: environment_name(item, config) for item in run.description.each_item()}
        self._rows = TraceRows(folder / FOLDER, ROWS_NAME, _columns())
        self.counted: Counter[str] = self._rows.counted

    def __enter__(self) -> Files:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._rows.__exit__(kind)

    def read(self, rollout: ScoredRollout) -> RolloutRows:
        """Reads a rollout's traces.

        Raises:
            LookupError: The run has no such item.
            Exception: As `TraceRows.read`.
        """
        return self._rows.read(rollout, self._row)

    def write(self, content: RolloutRows) -> None:
        """Adds a rollout's rows and pictures; raises as `TraceRows.write`."""
        self._rows.write(content)

    def _row(self, numbered: NumberedTrace) -> dict[str, Any]:
        rollout, trace = numbered.rollout, numbered.trace
        return {
            "token_ids": trace.ids,
            "mask": trace.sampled,
            "logprobs": trace.logprobs or None,
            "env_name": self._environments[rollout.item_id],
            "reward": rollout.reward,
            "images": numbered.images,
            "run_id": self._run_id,
            "item_id": rollout.item_id,
            "rollout": rollout.index,
            "attempt": rollout.attempt,
            "trace": numbered.number,
            "failure_class": rollout.failure_class,
            "model": trace.model,
            "outputs": [asdict(one) for one in trace.outputs],
            "versions": [asdict(one) for one in trace.spans],
        }


def _columns() -> list[tuple[str, Any]]:
    types = arrow()
    return [
        ("token_ids", types.list_(types.int32())),
        ("mask", types.list_(types.bool_())),
        ("logprobs", types.list_(types.float64())),
        ("env_name", types.string()),
        ("reward", types.float64()),
        ("images", types.list_(types.string())),
        ("run_id", types.string()),
        ("item_id", types.string()),
        ("rollout", types.int32()),
        ("attempt", types.int32()),
        ("trace", types.int32()),
        ("failure_class", types.string()),
        ("model", types.string()),
        ("outputs", types.list_(output_type())),
        ("versions", types.list_(span_type())),
    ]
