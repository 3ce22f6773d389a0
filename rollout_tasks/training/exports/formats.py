"""The formats of exports, by name; a format's module is imported when it is used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

if TYPE_CHECKING:
    from rollout_tasks.runs.folder import RunFolder
    from rollout_tasks.training.scored_rollouts import ScoredRollout


class Kind(StrEnum):
    """The formats' names."""

    PARQUET = "parquet"
    VERL = "verl"
    PRIME_RL = "prime-rl"
    SEED = "seed"
    OPENAI = "openai"
    SHAREGPT = "sharegpt"
    ATIF = "atif"
    OSWORLD = "osworld"


class ExportedFiles(Protocol):
    """The files of one format while they are written; they are complete when the context has ended."""

    counted: Counter[str]
    """What was written: ``rollouts`` and more."""

    def __enter__(self) -> Self:
        """Opens what is written."""

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Completes the files, unless the body failed."""

    def read(self, rollout: ScoredRollout) -> Any:
        """Reads what the format has of a rollout, and writes nothing.

        Raises:
            Exception: One that `scored` knows: the rollout is left out.
        """

    def write(self, content: Any) -> None:
        """Writes what was read of a rollout.

        Raises:
            OSError: It cannot be written.
        """


@dataclass(frozen=True, slots=True)
class Format:
    """One format."""

    help: str
    """What it is for, as an entry of a list."""
    names: tuple[str, ...]
    """The files that it writes, and the folders, whose names end in ``/``."""
    module: str
    """The module, in this package, that has a class `Files`: made with the run and the folder to write to, an `ExportedFiles`."""

    def files(self) -> Callable[[RunFolder, Path], ExportedFiles]:
        """Imports its class.

        Raises:
            UserError: It needs a package that is not installed.
        """
        found: Callable[[RunFolder, Path], ExportedFiles] = import_module(f"{__package__}.{self.module}").Files
        return found


FORMATS: Mapping[Kind, Format] = {
    Kind.PARQUET: Format("token traces for any trainer", ("traces.parquet", "pictures.parquet"), "parquet"),
    Kind.VERL: Format("token traces as verl trains on them", ("verl/",), "verl"),
    Kind.PRIME_RL: Format("token traces as prime-rl's trainer gets them", ("prime-rl/",), "prime_rl"),
    Kind.SEED: Format("the trajectory folders of DART's rollouter", ("seed/",), "seed"),
    Kind.OPENAI: Format("conversations as OpenAI's fine-tuning reads them", ("openai/",), "openai"),
    Kind.SHAREGPT: Format("calls as LLaMA-Factory reads them", ("sharegpt/",), "sharegpt"),
    Kind.ATIF: Format("Harbor's Agent Trajectory Interchange Format", ("atif/",), "atif"),
    Kind.OSWORLD: Format("the result folders of OSWorld's own runner", ("osworld/",), "osworld"),
}
