"""Rows as verl trains on them: the fields of its `AgentLoopOutput`, and the key under which its transfer queue has them.

verl/rollouts.parquet   one row for each trace
verl/images/            each picture once, named by its SHA-256
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rollout_tasks.models.served import VersionSpan
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.training.exports.parquet_rows import arrow, output_type, span_type
from rollout_tasks.training.exports.trace_rows import NumberedTrace, RolloutRows, TraceRows
from rollout_tasks.training.scored_rollouts import ScoredRollout
from rollout_tasks.training.token_rows import token_row
from rollout_tasks.trajectories.traces import Output

FOLDER, ROWS_NAME = "verl", "rollouts.parquet"
_GROUPS = uuid.UUID("6d6f8c7e-3f0b-5b0e-9d52-0f6c1f6e6b7a")
"""The namespace of groups' names."""


class Files:
    """The files while they are written."""

    def __init__(self, run: RunFolder, folder: Path) -> None:
        """Opens them.

        Args:
            run: The run that is exported.
            folder: Where to write.

        Raises:
            OSError: They cannot be written.
            UserError: pyarrow is not installed.
        """
        self._run_id = run.path.name
        self._rows = TraceRows(folder / FOLDER, ROWS_NAME, _columns())
        self.counted: Counter[str] = self._rows.counted

    def __enter__(self) -> Files:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._rows.__exit__(kind)

    def read(self, rollout: ScoredRollout) -> RolloutRows:
        """Reads a rollout's traces; raises as `TraceRows.read`."""
        return self._rows.read(rollout, self._row)

    def write(self, content: RolloutRows) -> None:
        """Adds a rollout's rows and pictures; raises as `TraceRows.write`."""
        self._rows.write(content)

    def _row(self, numbered: NumberedTrace) -> dict[str, Any]:
        rollout, trace = numbered.rollout, numbered.trace
        uid = group_name(self._run_id, rollout.item_id)
        row = token_row(trace)
        return {
            "key": f"{uid}_{rollout.index}_{numbered.number}",
            "uid": uid,
            "session_id": rollout.index,
            "index": numbered.number,
            **asdict(row),
            "multi_modal_data": {"images": numbered.images},
            "reward_score": rollout.reward,
            "num_turns": 2 * len(trace.outputs),
            "extra_fields": {
                "run_id": self._run_id,
                "item_id": rollout.item_id,
                "attempt": rollout.attempt,
                "failure_class": rollout.failure_class,
                "model": trace.model,
                "outputs": [_in_response(one, row.prompt_ids) for one in trace.outputs],
                "versions": [_in_response(one, row.prompt_ids) for one in trace.spans],
                "turn_scores": [],
                "tool_rewards": [],
                "reward_extra_info": {"acc": rollout.reward},
            },
        }


def group_name(run_id: str, item_id: str) -> str:
    """Returns verl's `uid` for an item's rollouts in a run; verl takes the text before a key's first ``_`` for it."""
    return str(uuid.uuid5(_GROUPS, json.dumps([run_id, item_id])))


def _columns() -> list[tuple[str, Any]]:
    types = arrow()
    ids, scores = types.list_(types.int32()), types.list_(types.float64())
    extra = [
        ("run_id", types.string()),
        ("item_id", types.string()),
        ("attempt", types.int32()),
        ("failure_class", types.string()),
        ("model", types.string()),
        ("outputs", types.list_(output_type())),
        ("versions", types.list_(span_type())),
        ("turn_scores", scores),
        ("tool_rewards", scores),
        ("reward_extra_info", types.struct([("acc", types.float64())])),
    ]
    return [
        ("key", types.string()),
        ("uid", types.string()),
        ("session_id", types.int32()),
        ("index", types.int32()),
        ("prompt_ids", ids),
        ("response_ids", ids),
        ("response_mask", types.list_(types.int8())),
        ("response_logprobs", scores),
        ("multi_modal_data", types.struct([("images", types.list_(types.string()))])),
        ("reward_score", types.float64()),
        ("num_turns", types.int32()),
        ("extra_fields", types.struct(extra)),
    ]


def _in_response(place: Output | VersionSpan, prompt: list[int]) -> dict[str, Any]:
    """Returns a place in a trace counted from the response's first token."""
    return {**asdict(place), "start": place.start - len(prompt), "end": place.end - len(prompt)}
