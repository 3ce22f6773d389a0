"""A Parquet file with a row for each trace, in a folder that has their pictures too: each once, named by its content."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rollout_tasks.training.exports.linked_files import LinkedFiles
from rollout_tasks.training.exports.parquet_rows import BATCH_TOKENS, ParquetRows
from rollout_tasks.training.rewarded_traces import RewardedRollout, rewarded
from rollout_tasks.training.scored_rollouts import ScoredRollout
from rollout_tasks.trajectories.data_urls import KINDS
from rollout_tasks.trajectories.traces import Trace

IMAGES_NAME = "images"


@dataclass(frozen=True, slots=True)
class NumberedTrace:
    """One trace of a rollout."""

    rollout: RewardedRollout
    number: int
    """Which of the rollout's, from 0."""
    trace: Trace
    images: list[str]
    """The names of its pictures in order, as ``images/<SHA-256>.png``."""


@dataclass(frozen=True, slots=True)
class RolloutRows:
    """The rows of one rollout, checked."""

    table: Any
    traces: tuple[Trace, ...]
    images: Mapping[str, Path]
    """The files of its pictures in the run, by their names in the export."""


class TraceRows:
    """The folder while it is filled."""

    def __init__(self, folder: Path, rows_name: str, columns: Sequence[tuple[str, Any]]) -> None:
        """Makes it.

        Args:
            folder: The folder.
            rows_name: The name of the Parquet file.
            columns: Its columns, each with its type of pyarrow.

        Raises:
            OSError: It cannot be written.
            UserError: pyarrow is not installed.
        """
        (folder / IMAGES_NAME).mkdir(parents=True)
        self._folder = folder
        self._linked = LinkedFiles()
        self._rows = ParquetRows(folder / rows_name, columns, most=BATCH_TOKENS)
        self.counted: Counter[str] = Counter(rollouts=0, traces=0, tokens=0, sampled_tokens=0, pictures=0)

    def __enter__(self) -> TraceRows:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._rows.__exit__(kind)

    def read(self, rollout: ScoredRollout, row_of: Callable[[NumberedTrace], Mapping[str, Any]]) -> RolloutRows:
        """Reads a rollout's traces, and writes nothing.

        Args:
            rollout: The rollout.
            row_of: Returns a trace's values, by the names of the columns.

        Raises:
            ArithmeticError: A number is too large for its column.
            TypeError: A value has another type than its column.
            ValueError: A text cannot be written, or a picture's file is not named as one.
            Exception: As `rewarded`.
        """
        found = rewarded(rollout)
        names = {sha256: _image_name(sha256, file) for sha256, file in found.pictures.items()}
        rows = [
            row_of(NumberedTrace(found, number, trace, [names[sha256] for sha256 in trace.pictures]))
            for number, trace in enumerate(found.traces)
        ]
        images = {names[sha256]: found.pictures[sha256] for trace in found.traces for sha256 in trace.pictures}
        return RolloutRows(self._rows.table(rows), found.traces, images)

    def write(self, content: RolloutRows) -> None:
        """Adds a rollout's rows, and those of its pictures that are not there yet.

        Raises:
            OSError: They cannot be written, or a picture cannot be read.
        """
        for name, file in content.images.items():
            self._linked.add_picture(name, file, self._folder / name)
        tokens = sum(len(trace.ids) for trace in content.traces)
        self._rows.add(content.table, tokens)
        self.counted.update(rollouts=1, traces=len(content.traces), tokens=tokens)
        self.counted.update(sampled_tokens=sum(sum(trace.sampled) for trace in content.traces))
        self.counted["pictures"] = self._linked.count


def _image_name(sha256: str, file: Path) -> str:
    kind = file.suffix.removeprefix(".")
    if kind not in KINDS:
        raise ValueError(f"{file.name!r} is not the name of a picture's file")
    return f"{IMAGES_NAME}/{sha256}.{kind}"
