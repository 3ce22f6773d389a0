"""Writes rewarded traces as Parquet files, which Hugging Face's datasets, pandas and trainers read.

traces.parquet     one row for each trace
pictures.parquet   each picture once, by its SHA-256
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmark.whole_file import sync_folder
from rollout_tasks.errors import UserError
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.training.rewarded_traces import RewardedTrace, rewarded_traces
from rollout_tasks.trajectories.sampled_calls import picture_files

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetWriter

TRACES_NAME, PICTURES_NAME = "traces.parquet", "pictures.parquet"
_BATCH_TOKENS = 4_000_000
"""Tokens in memory before they are written."""
_BATCH_BYTES = 64 << 20
"""The same for pictures."""


def export_parquet(folder: RunFolder, target: Path) -> dict[str, Any]:
    """Writes a run's traces and their pictures; files of the same name are replaced once both are complete.

    Args:
        folder: A run that has been scored.
        target: The folder to write to; made if there is none.

    Returns:
        How many ``rollouts``, ``traces``, ``tokens``, ``sampled_tokens`` and ``pictures`` were written, and how many
        rollouts were ``left_out``, by the reason.

    Raises:
        OSError: The target cannot be written.
        UserError: As for `rewarded_traces`, or pyarrow is not installed, or a picture is missing.
    """
    target.mkdir(parents=True, exist_ok=True)
    temporary = {name: target / f".{name}.part" for name in (TRACES_NAME, PICTURES_NAME)}
    try:
        with _Files(folder.path.name, temporary[TRACES_NAME], temporary[PICTURES_NAME]) as files:
            left_out = rewarded_traces(folder, files.add)
        for name, path in temporary.items():
            path.replace(target / name)
    finally:
        for path in temporary.values():
            path.unlink(missing_ok=True)
    sync_folder(target)
    return {**files.counted, "left_out": dict(left_out)}


class _Files:
    """The two files while they are written."""

    def __init__(self, run_id: str, traces: Path, pictures: Path) -> None:
        try:
            import pyarrow as arrow  # here, because it is optional
            from pyarrow import parquet
        except ImportError as error:
            raise UserError("Parquet files need the package pyarrow: uv pip install pyarrow") from error
        self._arrow = arrow
        span = arrow.struct([("version", arrow.string()), ("start", arrow.int32()), ("end", arrow.int32())])
        traces_schema = arrow.schema(
            [
                ("run_id", arrow.string()),
                ("item_id", arrow.string()),
                ("rollout", arrow.int32()),
                ("attempt", arrow.int32()),
                ("trace", arrow.int32()),
                ("reward", arrow.float64()),
                ("ids", arrow.list_(arrow.int32())),
                ("sampled", arrow.list_(arrow.bool_())),
                ("logprobs", arrow.list_(arrow.float64())),
                ("pictures", arrow.list_(arrow.string())),
                ("versions", arrow.list_(span)),
            ]
        )
        pictures_schema = arrow.schema(
            [("sha256", arrow.string()), ("kind", arrow.string()), ("bytes", arrow.large_binary())]
        )
        self._run_id = run_id
        self._traces: ParquetWriter = parquet.ParquetWriter(traces, traces_schema, compression="zstd")
        self._pictures: ParquetWriter = parquet.ParquetWriter(pictures, pictures_schema, compression="none")
        self._rows: list[dict[str, Any]] = []
        self._shown: list[dict[str, Any]] = []
        self._waiting_tokens = self._waiting_bytes = 0
        self._known: set[str] = set()
        self.counted: Counter[str] = Counter(rollouts=0, traces=0, tokens=0, sampled_tokens=0, pictures=0)

    def __enter__(self) -> _Files:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._write_rows()
                self._write_pictures()
        finally:
            self._traces.close()
            self._pictures.close()

    def add(self, found: list[RewardedTrace]) -> None:
        """Adds the traces of a rollout."""
        self.counted["rollouts"] += 1
        files = picture_files(found[0].directory)
        for one in found:
            trace = one.trace
            self.counted.update(traces=1, tokens=len(trace.ids), sampled_tokens=sum(trace.sampled))
            self._rows.append(
                {
                    "run_id": self._run_id,
                    "item_id": one.item_id,
                    "rollout": one.rollout,
                    "attempt": one.attempt,
                    "trace": one.number,
                    "reward": one.reward,
                    "ids": trace.ids,
                    "sampled": trace.sampled,
                    "logprobs": trace.logprobs or None,
                    "pictures": trace.pictures,
                    "versions": [
                        {"version": span.version, "start": span.start, "end": span.end} for span in trace.spans
                    ],
                }
            )
            self._waiting_tokens += len(trace.ids)
            for name in trace.pictures:
                if name not in files:
                    raise UserError(f"{one.directory}: the picture {name} is missing")
                self._show(name, files[name])
        if self._waiting_tokens >= _BATCH_TOKENS:
            self._write_rows()

    def _show(self, name: str, file: Path) -> None:
        if name in self._known:
            return
        self._known.add(name)
        self.counted["pictures"] += 1
        content = file.read_bytes()
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
