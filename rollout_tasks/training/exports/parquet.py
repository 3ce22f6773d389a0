"""Token traces as Parquet files, which Hugging Face's datasets, pandas and trainers read.

traces.parquet     one row for each trace
pictures.parquet   each picture once, by its SHA-256
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.training.exports.parquet_rows import BATCH_TOKENS, ParquetRows, arrow, output_type, span_type
from rollout_tasks.training.rewarded_traces import RewardedRollout, rewarded
from rollout_tasks.training.scored_rollouts import ScoredRollout
from rollout_tasks.trajectories.sampled_calls import read_picture
from rollout_tasks.trajectories.traces import Trace

TRACES_NAME, PICTURES_NAME = "traces.parquet", "pictures.parquet"
_BATCH_BYTES = 64 << 20
"""Of pictures in memory before they are written."""


@dataclass(frozen=True, slots=True)
class RolloutRows:
    """A rollout, and the rows of its traces, checked."""

    rollout: RewardedRollout
    table: Any


class Files:
    """The two files while they are written."""

    def __init__(self, run: RunFolder, folder: Path) -> None:
        """Opens them.

        Args:
            run: The run that is exported.
            folder: Where to write.

        Raises:
            UserError: pyarrow is not installed.
        """
        types = arrow()
        columns = [
            ("run_id", types.string()),
            ("item_id", types.string()),
            ("rollout", types.int32()),
            ("attempt", types.int32()),
            ("trace", types.int32()),
            ("reward", types.float64()),
            ("failure_class", types.string()),
            ("model", types.string()),
            ("ids", types.list_(types.int32())),
            ("sampled", types.list_(types.bool_())),
            ("logprobs", types.list_(types.float64())),
            ("pictures", types.list_(types.string())),
            ("outputs", types.list_(output_type())),
            ("versions", types.list_(span_type())),
        ]
        pictures = [("sha256", types.string()), ("kind", types.string()), ("bytes", types.large_binary())]
        self._run_id = run.path.name
        self._traces = ParquetRows(folder / TRACES_NAME, columns, most=BATCH_TOKENS)
        self._pictures = ParquetRows(folder / PICTURES_NAME, pictures, most=_BATCH_BYTES, compression="none")
        self._known: set[str] = set()
        self.counted: Counter[str] = Counter(rollouts=0, traces=0, tokens=0, sampled_tokens=0, pictures=0)

    def __enter__(self) -> Files:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self._traces.__exit__(kind)
        finally:
            self._pictures.__exit__(kind)

    def read(self, rollout: ScoredRollout) -> RolloutRows:
        """Reads a rollout's traces.

        Raises:
            ArithmeticError: A number is too large for its column.
            ValueError: A text cannot be written.
            Exception: As `rewarded`.
        """
        found = rewarded(rollout)
        rows = [self._row(found, number, trace) for number, trace in enumerate(found.traces)]
        return RolloutRows(found, self._traces.table(rows))

    def write(self, content: RolloutRows) -> None:
        """Adds a rollout's traces, and those of its pictures that are not there yet.

        Raises:
            OSError: They cannot be written, or a picture cannot be read.
        """
        self.counted["rollouts"] += 1
        for trace in content.rollout.traces:
            self.counted.update(traces=1, tokens=len(trace.ids), sampled_tokens=sum(trace.sampled))
            for name in trace.pictures:
                self._show(name, content.rollout.pictures[name])
        self._traces.add(content.table, sum(len(trace.ids) for trace in content.rollout.traces))

    def _row(self, rollout: RewardedRollout, number: int, trace: Trace) -> dict[str, Any]:
        return {
            "run_id": self._run_id,
            "item_id": rollout.item_id,
            "rollout": rollout.index,
            "attempt": rollout.attempt,
            "trace": number,
            "reward": rollout.reward,
            "failure_class": rollout.failure_class,
            "model": trace.model,
            "ids": trace.ids,
            "sampled": trace.sampled,
            "logprobs": trace.logprobs or None,
            "pictures": trace.pictures,
            "outputs": [asdict(one) for one in trace.outputs],
            "versions": [asdict(span) for span in trace.spans],
        }

    def _show(self, name: str, file: Path) -> None:
        if name in self._known:
            return
        self._known.add(name)
        self.counted["pictures"] += 1
        content = read_picture(file)
        row = {"sha256": name, "kind": file.suffix.removeprefix("."), "bytes": content}
        self._pictures.add(self._pictures.table([row]), len(content))
