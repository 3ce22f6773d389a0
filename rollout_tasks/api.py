"""The Python API: runs from a program or a notebook, as the command `rollouts` does them.

A run is another process: it leaves the caller's signals, environment and event loop alone, and an error in it is one sentence
here. What it did is read from its folder.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis

from benchmark.benchmark import Benchmark
from benchmark.metrics import JUDGE_METRIC
from benchmark.results import RolloutResult
from benchmark.sources import STANDARD_INPUT
from benchmark.stored_report import scan_report
from rollout_tasks.command_call import call_command
from rollout_tasks.config import RunConfig
from rollout_tasks.errors import UserError
from rollout_tasks.redis_client import checked_client
from rollout_tasks.runs.agent_profile import with_profile
from rollout_tasks.runs.folder import RunFolder, find_run
from rollout_tasks.runs.progress import check_is_in, other_folder, progress_in_folder, progress_of
from rollout_tasks.runs.states import Progress
from rollout_tasks.runs.store import RunStore
from rollout_tasks.runs.verdict import Verdict, rollout_ids
from rollout_tasks.settings import settings
from rollout_tasks.training.groups import Group, group_of, groups_of

__all__ = ["Run", "RunResult", "embedded_services", "find", "run", "submit"]

_LOOK_SECONDS = 0.5
_OVER = frozenset({"done", "cancelled"})


@dataclass(frozen=True, slots=True)
class RunResult:
    """A run that is over."""

    run_id: str
    folder: Path
    """Everything that remains of it: ``report.md``, ``evaluation.json``, and a folder for each item."""
    summary: Mapping[str, Any]
    """The figures of the report, as in ``evaluation.json``; empty where nothing was evaluated."""
    over: bool = True
    """Whether it was known to be over when this was asked for: `Run.result` may be asked before, and a run be resumed after."""

    @property
    def score(self) -> float | None:
        """The average over all rollouts, a loss counting 0; None where nothing was evaluated."""
        value = self.summary.get("average_score")
        return None if value is None else float(value)

    @property
    def report(self) -> Path:
        """The report for people."""
        return RunFolder(self.folder).report

    def results(self) -> Iterator[RolloutResult]:
        """Returns how each rollout ended, each once: first each item's first one.

        A rollout that was cancelled before it began, as of a run that has reached its ``max_cost``, has the status
        ``cancelled`` and the failure class ``cancelled``; it is left out unless the run is `over`.
        """
        yield from _results(RunFolder(self.folder), over=self.over)

    def groups(self) -> Iterator[Group]:
        """Returns each item's rollouts with their traces and rewards, which are the report's scores: what a trainer learns from.

        Raises:
            BenchmarkError: The run has no report, or it cannot be read.
        """
        yield from groups_of(RunFolder(self.folder))

    def rows(self) -> Iterator[Mapping[str, Any]]:
        """Returns each item with its score, as in ``evaluation.json``."""
        rows: list[Mapping[str, Any]] = []
        scan_report(RunFolder(self.folder).evaluation, rows.append)
        yield from rows


class Run:
    """A run on workers, by its id: how far it is, its results as they come, and its end."""

    def __init__(self, run_id: str, folder: Path, *, redis_url: str | None = None) -> None:
        """Knows a run; nothing is asked yet. See `submit` and `find`.

        Args:
            run_id: Its id.
            folder: Its folder.
            redis_url: Where it was sent, whatever ``REDIS_URL`` becomes later; default: as configured.
        """
        self.run_id = run_id
        self.folder = folder
        self._redis_url = redis_url

    def progress(self) -> Progress:
        """Returns how far it is: as Redis says, or its folder if Redis cannot be reached or does not know it.

        Raises:
            UserError: Neither Redis nor the folder knows it.
        """
        try:
            with contextlib.closing(checked_client(self._redis_url)) as client:
                store = RunStore(client)
                check_is_in(store, self.run_id, RunFolder(self.folder))
                return progress_of(store, self.run_id)
        except (UserError, redis.RedisError):
            if not (self.folder / "run.json").is_file():
                raise
            return progress_in_folder(RunFolder(self.folder))

    def wait(self, seconds: float | None = None) -> RunResult:
        """Waits until it is over; while Redis cannot be reached, until its folder is complete.

        Args:
            seconds: The longest wait; None for as long as it takes.

        Raises:
            TimeoutError: It is not over by then.
            UserError: It is half-submitted, or is incomplete and Redis does not know it.
        """
        deadline = None if seconds is None else time.monotonic() + seconds
        while not self._over():
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"run {self.run_id} is not over after {seconds:g} s")
            time.sleep(_LOOK_SECONDS)
        return _result(RunFolder(self.folder), over=True)

    def result(self) -> RunResult:
        """Returns what its folder has now."""
        return _result(RunFolder(self.folder), over=self._known_to_be_over())

    def results(self) -> Iterator[RolloutResult]:
        """Returns how each rollout that has a verdict by now ended.

        Once it is known to be over, also those that were cancelled before they began: status and failure class ``cancelled``.
        """
        yield from _results(RunFolder(self.folder), over=self._known_to_be_over())

    def cancel(self) -> None:
        """Stops it; what is committed stays.

        Raises:
            UserError: It is over already, or unknown.
        """
        call_command("cancel", str(self.folder), redis_url=self._redis_url)

    def __aiter__(self) -> AsyncIterator[RolloutResult]:
        """Yields each rollout's result once, as soon as it is committed, until the run is over.

        In the end it yields those of rollouts that were cancelled before they began: status and failure class ``cancelled``.
        """
        return self._as_they_come()

    async def groups(self) -> AsyncIterator[Group]:
        """Yields each item's rollouts with their traces and rewards, once all of them have ended: what a trainer learns from.

        Of a run that a model judges, all come from its report, when it is over.

        Raises:
            BenchmarkError: The run's metric cannot be used, or a judged run has no report that can be read.
            UserError: A verdict cannot be read.
        """
        folder = RunFolder(self.folder)
        config = await asyncio.to_thread(folder.description.config)
        judged = config.metric == JUDGE_METRIC
        items = {item.id: item for item in await asyncio.to_thread(folder.description.items)}
        to_come = dict.fromkeys(items, config.rollouts_per_item)
        async for result in self:
            to_come[result.item_id] -= 1
            if not judged and not to_come[result.item_id]:
                item = items.pop(result.item_id)
                size = config.rollouts_per_item
                yield await asyncio.to_thread(group_of, folder, item, metric=config.metric, size=size)
        if judged:
            for group in groups_of(folder):
                yield group

    async def _as_they_come(self) -> AsyncIterator[RolloutResult]:
        left = await asyncio.to_thread(_rollouts, RunFolder(self.folder))
        over = False
        while not over:
            over = await asyncio.to_thread(self._over)
            began = time.monotonic()
            came, left = await asyncio.to_thread(_settled, RunFolder(self.folder), left)
            took = time.monotonic() - began
            for verdict in came:
                yield verdict.as_result()
            if not over:
                await asyncio.sleep(max(_LOOK_SECONDS, 10 * took))
        for name in left:
            yield RunFolder(self.folder).final_verdict(name).as_result()

    def _known_to_be_over(self) -> bool:
        with contextlib.suppress(UserError):
            return self._over()
        return False

    def _over(self) -> bool:
        try:
            with contextlib.closing(checked_client(self._redis_url)) as client:
                store = RunStore(client)
                another = other_folder(store, self.run_id, RunFolder(self.folder))
                progress = None if another else store.progress(self.run_id)
        except (UserError, redis.RedisError):  # Redis may come back
            return self._complete()
        if progress is not None and progress.state == "half_submitted":
            raise UserError(f"run {self.run_id} is half-submitted; complete it with: rollouts resume {self.folder}")
        if progress is None and not self._complete():
            raise UserError(
                f"Redis does not know run {self.run_id}, and it is incomplete; complete it with: rollouts resume {self.folder}"
            )
        return progress is None or progress.state in _OVER

    def _complete(self) -> bool:
        folder = RunFolder(self.folder)
        if progress_in_folder(folder).pending:
            return False
        return folder.evaluated_as_asked()


def run(config: RunConfig, benchmark: Benchmark | None = None, *, show_progress: bool = False) -> RunResult:
    """Rolls out a benchmark on this machine alone, and scores it.

    Args:
        config: The run's.
        benchmark: What is asked; default: what ``config.data`` names.
        show_progress: Whether its progress is written to this process's standard error.

    Raises:
        UserError: An option, the data or a service cannot be used, or the run was stopped.
        KeyboardInterrupt: Ctrl-C; the run ends first, and can be resumed.
    """
    said = call_command("run", config=_asking(config, benchmark), show_progress=show_progress)
    return _result(RunFolder(Path(said["folder"])), over=True)


def submit(config: RunConfig, benchmark: Benchmark | None = None) -> Run:
    """Sends a benchmark to the workers of ``REDIS_URL`` as a run, and returns at once.

    Args:
        config: The run's.
        benchmark: What is asked; default: what ``config.data`` names.

    Raises:
        UserError: An option, the data or a service cannot be used, and nothing was sent. Or Redis was lost while the
            rollouts were being sent: the workers then go on with the run, and the message says so.
        KeyboardInterrupt: Ctrl-C; its note says what there is of the run: nothing, or all, and the workers go on with it.
    """
    redis_url = _redis_url()
    said = call_command("submit", config=_asking(config, benchmark))
    return Run(said["run_id"], Path(said["folder"]), redis_url=redis_url)


def find(run_id: str, output_dir: Path | str = "results") -> Run:
    """Returns a run that was submitted before.

    Args:
        run_id: Its id, or the path of its folder.
        output_dir: Where runs' folders are.

    Raises:
        UserError: There is no such folder.
    """
    folder = find_run(run_id, Path(output_dir))
    return Run(folder.path.name, folder.path, redis_url=_redis_url())


@contextmanager
def embedded_services(
    concurrency: int = 4,
    *,
    num_vms: int = 0,
    provider: str = "local",
    provider_options: Mapping[str, Any] | None = None,
    logs: Path | str = "results/logs",
) -> Iterator[str]:
    """A broker and a worker on this machine for as long as the block runs; `submit` inside it sends to them.

    The block begins when the worker serves, and its VMs are in the pool `default`, where they may still be booting.

    Args:
        concurrency: How many rollouts at a time.
        num_vms: VMs that are hosted beside the worker.
        provider: Where they come from.
        provider_options: For the provider.
        logs: Where the services' logs go.

    Yields:
        The address of its Redis, which ``REDIS_URL`` has inside the block.

    Raises:
        UserError: A service does not start, as where the provider is unknown.
    """
    from rollout_tasks.embedded.services import EmbeddedServices, WorkerVMs  # here, because few programs start services

    services = EmbeddedServices(Path(logs))
    try:
        services.start_valkey()
        vms = WorkerVMs(num_vms, provider, "default", provider_options or {}) if num_vms else None
        services.start_worker(concurrency, vms)
        services.wait_for_worker(vms)
        yield os.environ["REDIS_URL"]
    finally:
        services.stop()


def _redis_url() -> str | None:
    """Returns the address that is configured now; None where it is wrong: the code that needs it reports that."""
    settings.cache_clear()  # the caller may have changed the environment
    with contextlib.suppress(UserError):
        return settings().redis_address
    return None


def _asking(config: RunConfig, benchmark: Benchmark | None) -> RunConfig:
    """Returns the configuration as it is given to the command line: with its benchmark, and with its agent's profile.

    The profile is filled in here, because the command line cannot tell which options were given.

    Raises:
        UserError: The benchmark's data could be read only once, and it has been.
    """
    if benchmark is not None:
        if benchmark.data_path == STANDARD_INPUT or benchmark.data_path.is_fifo():
            raise UserError(
                f"the benchmark has read {benchmark.data_path} to its end, where a run would read it again: save the data in a file"
            )
        data = config.data.model_copy(update={"path": benchmark.data_path, **benchmark.selection})
        config = config.model_copy(update={"data": data})
    return with_profile(config)


def _result(folder: RunFolder, *, over: bool) -> RunResult:
    summary = scan_report(folder.evaluation)["summary"] if folder.evaluation.exists() else {}
    return RunResult(folder.path.name, folder.path, summary, over)


def _results(folder: RunFolder, *, over: bool) -> Iterator[RolloutResult]:
    names = _rollouts(folder)
    for verdict in map(folder.final_verdict, names) if over else folder.settled_verdicts(names):
        yield verdict.as_result()


def _rollouts(folder: RunFolder) -> list[str]:
    return rollout_ids(folder.description.each_item(), folder.description.config().rollouts_per_item)


def _settled(folder: RunFolder, names: Iterable[str]) -> tuple[list[Verdict], list[str]]:
    """Returns the verdicts of those rollouts that have one, and the names of the others."""
    found = {name: folder.settled(name) for name in names}
    return [verdict for verdict in found.values() if verdict], [name for name, verdict in found.items() if not verdict]
