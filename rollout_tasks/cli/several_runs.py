"""The runs that `rollouts compare` and `rollouts stats` are given: their reports, and the items that they have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmark.scored_items import ScoredItem, ScoredReport, scored_report
from rollout_tasks.cli.program import tell
from rollout_tasks.cli.show import why_no_report
from rollout_tasks.errors import UserError
from rollout_tasks.runs.folder import RunFolder, find_run
from rollout_tasks.runs.preflight import check_metric
from rollout_tasks.trajectories.plain_files import check_plain

MOST_RUNS = 100
_REPORT_BYTES = 4 << 30
"""A report of a hundred thousand rollouts has some hundred megabytes."""


@dataclass(frozen=True, slots=True)
class ScoredRun:
    """One run with its scores."""

    name: str
    """Its id; its path where two have the same."""
    folder: RunFolder
    report: ScoredReport

    @property
    def items(self) -> Mapping[str, ScoredItem]:
        """Its items by id."""
        return self.report.items


@dataclass(frozen=True, slots=True)
class SeveralRuns:
    """Runs, and what is to be looked at."""

    runs: tuple[ScoredRun, ...]
    metric: str
    item_ids: tuple[str, ...]
    """Those that all runs have, in the first run's order."""
    not_in_all: tuple[int, ...]
    """For each run, how many of its items are left out because another run lacks them, or has another item of that id."""

    @property
    def items(self) -> list[Mapping[str, ScoredItem]]:
        """The items by id, of each run."""
        return [run.items for run in self.runs]

    def as_dict(self) -> dict[str, Any]:
        """Returns what JSON output says of the runs themselves."""
        return {
            "metric": self.metric,
            "items": len(self.item_ids),
            "runs": [
                {
                    "run": run.name,
                    "folder": str(run.folder.path),
                    "items_not_in_all": count,
                    "scripted": run.report.scripted,
                }
                for run, count in zip(self.runs, self.not_in_all, strict=True)
            ],
        }

    def say_what_is_left_out(self) -> None:
        """Says on stderr what no figure counts."""
        for run, count in zip(self.runs, self.not_in_all, strict=True):
            if count:
                tell(f"left out: {_counted(count)} of {run.name}, which not all runs have")
            if run.report.scripted:
                tell(f"note: the scripted model gave the answers of {run.name}: its scores say nothing about any agent")


def load_runs(names: Sequence[str], output_dir: Path, metric: str | None, *, common_items: bool) -> SeveralRuns:
    """Reads the reports of runs of the same items.

    Args:
        names: Ids or folders of the runs.
        output_dir: Where ids are looked for.
        metric: The metric whose reports are read; None for each run's own report.
        common_items: Whether to take the items that all have, where the runs have different ones.

    Raises:
        UserError: A run is not there, has no such report, is given twice; or the runs do not fit together.
        BenchmarkError: A report is broken.
    """
    if len(names) > MOST_RUNS:
        raise UserError(f"RUN: {len(names)} runs are given, and at most {MOST_RUNS} are taken")
    folders = [find_run(name, output_dir) for name in names]
    for number, folder in enumerate(folders):
        if any(folder.path == earlier.path for earlier in folders[:number]):
            raise UserError(f"RUN: run {folder.path.name} is given twice")
    ids = [folder.path.name for folder in folders]
    runs = tuple(
        ScoredRun(run_id if ids.count(run_id) == 1 else str(folder.path), folder, _report(folder, metric))
        for run_id, folder in zip(ids, folders, strict=True)
    )
    common = [name for name in runs[0].items if all(_is_same(run.items.get(name), runs[0].items[name]) for run in runs)]
    if not common_items:
        _check_same_items(runs, common)
    if not common:
        raise UserError(f"runs {_listed(runs)} have no item in common")
    _check_metrics(runs, common)
    left_out = tuple(len(run.items) - len(common) for run in runs)
    return SeveralRuns(runs, runs[0].report.metric, tuple(common), left_out)


def _report(folder: RunFolder, metric: str | None) -> ScoredReport:
    """Reads a run's own report, or the one with a metric."""
    path = folder.evaluation
    if metric is not None and metric != folder.description.config().metric:
        check_metric(metric)
        path = folder.path / f"evaluation-{metric}.json"
    try:
        check_plain(folder.path, path, _REPORT_BYTES)
    except FileNotFoundError:
        if path == folder.evaluation:
            raise UserError(f"run {folder.path.name} has no report{why_no_report(folder)}") from None
        command = _rescore(folder, str(metric))
        raise UserError(f"run {folder.path.name} has no report with {metric}; make it with: {command}") from None
    return scored_report(path)


def _rescore(folder: RunFolder, metric: str) -> str:
    from rollout_tasks.cli.run_progress import score_again  # here, because it imports Celery

    return score_again(folder, metric)


def _check_metrics(runs: Sequence[ScoredRun], common: Sequence[str]) -> None:
    """Refuses scores of different kinds. What scored is asked item by item: a run whose rollouts were all lost has no metric."""
    for name in common:
        scored = [(run.name, metric) for run in runs if (metric := run.items[name].metric) is not None]
        for run, metric in scored[1:]:
            if metric != scored[0][1]:
                raise UserError(
                    f"item {name!r} is scored with {scored[0][1]} in run {scored[0][0]}, and with {metric} in run {run}:"
                    " score both runs with the same metric, and name it with --metric"
                )


def _check_same_items(runs: Sequence[ScoredRun], common: Sequence[str]) -> None:
    first = runs[0]
    for run in runs[1:]:
        changed = [
            name for name in run.items if name in first.items and not _is_same(run.items[name], first.items[name])
        ]
        if changed:
            raise UserError(
                f"item {changed[0]!r} has another question or answer in run {run.name} than in run {first.name};"
                " leave out such items with: --common-items"
            )
        if sides := [*_only_in(first, run.items.__contains__), *_only_in(run, first.items.__contains__)]:
            raise UserError(
                f"runs {first.name} and {run.name} have different items: {'; '.join(sides)}."
                f" Take the {len(common)} that all runs have with: --common-items"
            )


def _only_in(run: ScoredRun, has: Callable[[str], bool]) -> list[str]:
    only = [name for name in run.items if not has(name)]
    return [f"{_counted(len(only))} only in {run.name}, such as {only[0]!r}"] if only else []


def _is_same(one: ScoredItem | None, other: ScoredItem) -> bool:
    return one is not None and one.content == other.content


def _listed(runs: Sequence[ScoredRun]) -> str:
    return ", ".join(run.name for run in runs)


def _counted(items: int) -> str:
    return f"{items:,} item{'' if items == 1 else 's'}"
