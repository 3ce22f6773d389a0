"""A submission: the rollouts that a command sends, of a new run or of a resumed one. Nothing here changes the run store."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from benchmark.items import Item, LoadedItems, load_items
from benchmark.selection import select
from rollout_tasks.config import RunConfig
from rollout_tasks.errors import UserError
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.runs.verdict import Verdict, rollout_ids


@dataclass(frozen=True, slots=True)
class Source:
    """Where the items came from, for the run's description."""

    name: str = ""
    path: str = ""
    left_out: Sequence[str] = ()
    """A sentence for each item that the run leaves out."""
    doubted: Sequence[str] = ()
    """A sentence for each item that is rolled out although its score cannot be relied on."""
    images: Sequence[str] = ()
    """The images of the desktops."""


@dataclass(frozen=True, slots=True)
class Submission:
    """What will be sent: a new run, or what a resumed run still lacks."""

    run_id: str
    config: RunConfig
    folder: RunFolder
    items: Sequence[Item]
    kept: Sequence[Verdict]
    """Verdicts that a resumed run already has."""
    todo: Sequence[str]
    """Rollouts to send."""
    resumed: bool
    source: Source = Source()
    embedded: bool = False
    """Whether it is sent to a worker that runs for it alone, on this machine."""

    @property
    def total(self) -> int:
        """Rollouts of the run, including those that already have a verdict."""
        return len(self.kept) + len(self.todo)

    @property
    def spent(self) -> float:
        """Dollars that a resumed run has spent so far, as far as they are known."""
        return sum(verdict.total_cost or 0.0 for verdict in self.kept) + sum(cost for _, cost in self.spent_before())

    def spent_before(self) -> Iterator[tuple[str, float]]:
        """Yields the rollouts that a resumed run tries again, each with the known dollars for its earlier attempts."""
        for rollout_id in self.todo if self.resumed else ():
            with suppress(UserError, OSError):  # as for the rollout's verdict, they stay unknown then
                if (cost := self.folder.spent(rollout_id)) is not None:
                    yield rollout_id, cost

    @property
    def settled(self) -> bool:
        """Whether each rollout has a verdict that is kept, and the folder has settled it."""
        return not self.todo and all(self.folder.settled(verdict.rollout_id) for verdict in self.kept)

    def count_committed(self) -> int:
        """Returns how many of them have a verdict now; reads the folder."""
        return len(self.kept) + sum(1 for _ in self.folder.settled_verdicts(self.todo))


def load_benchmark(config: RunConfig) -> LoadedItems:
    """Loads the items, and selects those that the run asks for.

    Raises:
        UserError: No data was given, or a seed that nothing uses.
        BenchmarkError: The data is wrong (names file, line and field), or no item matches the run's selection.
    """
    data = config.data
    if data.path is None:
        raise UserError("--data-path is missing: which benchmark file or tree?")
    if data.seed and not data.shuffle:
        raise UserError("--seed: nothing is drawn without --shuffle; give both, or neither")
    loaded = load_items(
        data.path,
        answer_pattern=data.answer_pattern,
        skip_invalid=data.skip_invalid,
        fields=data.field_names,
        split=data.split,
    )
    seed = data.seed if data.shuffle else None
    chosen = select(loaded.items, ids=data.ids, domains=data.domains, shuffle_seed=seed, limit=data.limit)
    return replace(loaded, items=tuple(chosen))


def new_run_id(config: RunConfig) -> str:
    """Returns a name that sorts by time and contains the environment."""
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    return f"{stamp}-{config.env_mode}-{secrets.token_hex(2)}"


def new_submission(
    config: RunConfig, benchmark: LoadedItems, doubted: Sequence[str] = (), images: Sequence[str] = ()
) -> Submission:
    """Returns the submission of a new run; reserves nothing yet.

    Args:
        config: The run's configuration.
        benchmark: Its items, and the sentences for those left out.
        doubted: A sentence for each item whose score cannot be relied on.
        images: The images of the desktops.
    """
    run_id = config.run_id or new_run_id(config)
    places = {"output_dir": Path(config.output_dir).resolve(), "web": config.web.resolved()}
    config = config.model_copy(update={"run_id": run_id, **places})
    folder = RunFolder(Path(config.output_dir) / run_id)
    todo = rollout_ids(benchmark.items, config.rollouts_per_item)
    source = Source(benchmark.name, str(benchmark.path), benchmark.skipped, doubted, images)
    return Submission(run_id, config, folder, benchmark.items, (), todo, resumed=False, source=source)


def resumed_submission(folder: RunFolder) -> Submission:
    """Returns the submission of what a run's folder lacks: rollouts without a verdict, or lost to the infrastructure.

    Raises:
        UserError: The folder is not a run's, or its files are broken.
    """
    config = folder.description.config()
    items = folder.description.items()
    every = rollout_ids(items, config.rollouts_per_item)
    verdicts = {verdict.rollout_id: verdict for verdict in folder.verdicts(every)}
    kept = [verdict for verdict in verdicts.values() if not verdict.worth_repeating]
    names = {verdict.rollout_id for verdict in kept}
    todo = [name for name in every if name not in names]
    return Submission(folder.path.name, config, folder, items, kept, todo, resumed=True)
