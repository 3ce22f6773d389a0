"""Token traces as Parquet files, which Hugging Face's datasets, pandas and trainers read.

traces.parquet     one row for each trace
pictures.parquet   each picture once, by its SHA-256
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rollout_tasks.errors import UserError
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.training.rewarded_traces import RewardedRollout, rewarded
from rollout_tasks.training.scored_rollouts import ScoredRollout
from rollout_tasks.trajectories.sampled_calls import read_picture

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetWriter

TRACES_NAME, PICTURES_NAME = "traces.parquet", "pictures.parquet"
_BATCH_TOKENS = 1_000_000
"""Tokens in memory before they are written."""
_BATCH_BYTES = 64 << 20
"""The same for pictures."""


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
        try:
            import pyarrow as arrow  # here, because it is optional
            from pyarrow import parquet
        except ImportError as error:
            raise UserError("Parquet files need the package pyarrow: uv pip install pyarrow") from error
        self._arrow = arrow
        span = arrow.struct([("version", arrow.string()), ("start", arrow.int32()), ("end", arrow.int32())])
        output = arrow.struct(
            [
                ("call", arrow.int32()),
                ("start", arrow.int32()),
                ("end", arrow.int32()),
                ("finish_reason", arrow.string()),
            ]
        )
        traces_schema = arrow.schema(
            [
                ("run_id", arrow.string()),
                ("item_id", arrow.string()),
                ("rollout", arrow.int32()),
                ("attempt", arrow.int32()),
                ("trace", arrow.int32()),
                ("reward", arrow.float64()),
                ("failure_class", arrow.string()),
                ("model", arrow.string()),
                ("ids", arrow.list_(arrow.int32())),
                ("sampled", arrow.list_(arrow.bool_())),
                ("logprobs", arrow.list_(arrow.float64())),
                ("pictures", arrow.list_(arrow.string())),
                ("outputs", arrow.list_(output)),
                ("versions", arrow.list_(span)),
            ]
        )
        pictures_schema = arrow.schema(
            [("sha256", arrow.string()), ("kind", arrow.string()), ("bytes", arrow.large_binary())]
        )
        self._run_id = run.path.name
        self._traces: ParquetWriter = parquet.ParquetWriter(folder / TRACES_NAME, traces_schema, compression="zstd")
        self._pictures: ParquetWriter = parquet.ParquetWriter(
            folder / PICTURES_NAME, pictures_schema, compression="none"
        )
        self._rows: list[dict[str, Any]] = []
        self._shown: list[dict[str, Any]] = []
        self._waiting_tokens = self._waiting_bytes = 0
        self._known: set[str] = set()
        self.counted: Counter[str] = Counter(rollouts=0, traces=0, tokens=0, sampled_tokens=0, pictures=0)

    def __enter__(self) -> Files:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._write_rows()
                self._write_pictures()
        finally:
            self._traces.close()
            self._pictures.close()

    def read(self, rollout: ScoredRollout) -> RewardedRollout:
        """Reads a rollout's traces; raises as `rewarded`."""
        return rewarded(rollout)

    def write(self, rollout: RewardedRollout) -> None:
        """Adds a rollout's traces, and those of its pictures that are not there yet."""
        self.counted["rollouts"] += 1
        for number, trace in enumerate(rollout.traces):
            self.counted.update(traces=1, tokens=len(trace.ids), sampled_tokens=sum(trace.sampled))
            self._rows.append(
                {
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
            )
            self._waiting_tokens += len(trace.ids)
            for name in trace.pictures:
                self._show(name, rollout.pictures[name])
        if self._waiting_tokens >= _BATCH_TOKENS:
            self._write_rows()

    def _show(self, name: str, file: Path) -> None:
        if name in self._known:
            return
        self._known.add(name)
        self.counted["pictures"] += 1
        content = read_picture(file)
        self._shown.append({"sha256": name, "kind": file.suffix.removeprefix("."), "bytes": content})
        self._waiting_bytes += len(content)
        if self._waiting_bytes >= _BATCH_BYTES:
            self._write_pictures()

    def _write_rows(self) -> None:
        self._traces.write_table(self._arrow.Table.from_pylist(self._rows, schema=self._traces.schema))
        self._rows, self._waiting_tokens = [], 0

    def _write_pictures(self) -> None:
        self._pictures.write_table(self._arrow.Table.from_pylist(self._shown, schema=self._pictures.schema))
        self._shown, self._waiting_bytes = [], 0
