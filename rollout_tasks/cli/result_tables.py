"""A finished run's tables: per domain, per group of OSWorld's own tables, infeasible tasks, failures, overall."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmark.errors import BenchmarkError
from benchmark.items import Item
from benchmark.results import PERFECT, VALID
from benchmark.run_figures import GROUPS
from benchmark.stored_report import scan_report
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.runs.verdict import rollout_id_of
from rollout_tasks.unicode_text import one_line

UNSOLVED_SHOWN, UNSOLVED_KEPT = 20, 1000
"""Rollouts without the full score: how many the table shows, and how many `--json` has."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a table."""

    name: str
    asked: int
    """Rollouts that the run asked for."""
    valid: int
    """Those that say something about the agent: not lost, cancelled, missing or without a score."""
    solved: int
    """Those with the full score."""
    score_sum: float

    @property
    def score(self) -> float:
        """The mean over all that were asked for; a lost rollout counts 0."""
        return self.score_sum / self.asked if self.asked else 0.0


@dataclass(frozen=True, slots=True)
class Unsolved:
    """A rollout without the full score."""

    rollout_id: str
    score: float | None
    ending: str
    """The failure class, or how the rollout counts: scored, missing ..."""
    error: str
    folder: str


@dataclass(frozen=True, slots=True)
class Tables:
    """All tables of a run."""

    domains: Sequence[Line]
    groups: Sequence[Line]
    infeasible: Line | None
    overall: Line
    unsolved: Sequence[Unsolved]
    """The first of them, `UNSOLVED_KEPT` at most."""
    summary: Mapping[str, Any]
    scripted: bool

    def as_dict(self) -> dict[str, Any]:
        """Returns the tables as JSON types."""
        return {
            "domains": [_line(line) for line in self.domains],
            "groups": [_line(line) for line in self.groups],
            "infeasible": _line(self.infeasible) if self.infeasible else None,
            "overall": _line(self.overall),
            "unsolved": [asdict(one) for one in self.unsolved],
            "summary": dict(self.summary),
            "scripted": self.scripted,
        }


def tables(folder: RunFolder) -> Tables:
    """Returns the tables of a finished run.

    Raises:
        BenchmarkError: It has no evaluation yet, or a broken one.
    """
    try:
        return _tables(folder)
    except (KeyError, TypeError) as error:
        raise BenchmarkError(f"{folder.evaluation}: is not an evaluation report: {error!r}") from error


def _tables(folder: RunFolder) -> Tables:
    sums = _Sums(folder, {item.id for item in folder.description.each_item() if is_infeasible(item)})
    report = scan_report(folder.evaluation, sums.add)
    return Tables(
        domains=[sums.domains[name].line(name) for name in sorted(sums.domains)],
        groups=[sums.groups[name].line(name) for name in GROUPS if name in sums.groups],
        infeasible=sums.infeasible.line("infeasible") if sums.infeasible_ids else None,
        overall=sums.overall.line("overall"),
        unsolved=sums.unsolved,
        summary=report["summary"],
        scripted=bool(report["benchmark_info"].get("scripted")),
    )


@dataclass(slots=True)
class _Sum:
    """Sums over rollouts."""

    asked: int = 0
    valid: int = 0
    solved: int = 0
    score_sum: float = 0.0

    def add(self, row: Mapping[str, Any]) -> None:
        for rollout in row["rollouts"]:
            score = float(rollout["score"] or 0.0)
            solved = score >= PERFECT
            self.asked += 1
            self.valid += rollout["standing"] in VALID
            self.solved += solved
            self.score_sum += 1.0 if solved else score

    def line(self, name: str) -> Line:
        return Line(name, self.asked, self.valid, self.solved, self.score_sum)


class _Sums:
    """Adds up a report's rows for every line that a table may have."""

    def __init__(self, folder: RunFolder, infeasible_ids: Collection[str]) -> None:
        self.folder = folder
        self.infeasible_ids = infeasible_ids
        self.unsolved: list[Unsolved] = []
        self.overall = _Sum()
        self.infeasible = _Sum()
        self.domains: defaultdict[str, _Sum] = defaultdict(_Sum)
        self.groups: defaultdict[str, _Sum] = defaultdict(_Sum)

    def add(self, row: Mapping[str, Any]) -> None:
        self.overall.add(row)
        self.domains[str(row["domain"] or "-")].add(row)
        for name, members in GROUPS.items():
            if row["domain"] in members:
                self.groups[name].add(row)
        if row["item_id"] in self.infeasible_ids:
            self.infeasible.add(row)
        self._keep_unsolved(row)

    def _keep_unsolved(self, row: Mapping[str, Any]) -> None:
        for rollout in row["rollouts"]:
            if len(self.unsolved) < UNSOLVED_KEPT and float(rollout["score"] or 0.0) < PERFECT:
                name = rollout_id_of(row["item_id"], rollout["index"])
                ending = rollout.get("failure_class") or rollout["standing"]
                place = str(self.folder.rollout(name))
                self.unsolved.append(Unsolved(name, rollout["score"], ending, rollout.get("error") or "", place))


def show_run(folder: RunFolder, console: Console) -> None:
    """Prints a finished run's tables, and where to find more."""
    found = tables(folder)
    if found.scripted:
        notice = "The answers came from the scripted model: these scores say nothing about any agent."
        console.print(notice, style="bold", soft_wrap=True)
    table = Table(title=Text(f"Run {folder.path.name}", style="table.title"))
    for heading in ("", "asked", "valid", "solved", "score"):
        table.add_column(heading, justify="left" if not heading else "right")
    for line in found.domains:
        _add(table, line)
    table.add_section()
    for line in [*found.groups, *([found.infeasible] if found.infeasible else [])]:
        _add(table, line)
    table.add_section()
    _add(table, found.overall)
    console.print(table)
    summary = found.summary
    console.print(
        f"{summary['metric']}: {summary['average_score']:.4g} (losses count 0), coverage {summary['coverage']:.1%},"
        f" bounds {summary['bounds'][0]:.4g} to {summary['bounds'][1]:.4g}{_interval(summary)}",
        highlight=False,
        soft_wrap=True,
    )
    if summary["rollouts_per_item"] > 1:
        tries = ", ".join(f"pass@{k} {value:.4g}" for k, value in summary["pass_at_k"].items())
        sentence = f"max@{summary['rollouts_per_item']}: {summary['max_at_n']:.4g}, {tries}"
        console.print(sentence, highlight=False, soft_wrap=True)
    _show_unsolved(found.unsolved, folder, console)
    for name, losses in summary["failures"].items():
        sentence = f"{name}: {losses['count']}, such as {one_line(str(losses['example']))}"
        console.print(sentence, markup=False, highlight=False, soft_wrap=True)
    for path in (folder.report, *folder.other_reports()):
        console.print(f"Report: {path}", markup=False, highlight=False, soft_wrap=True)


def _show_unsolved(unsolved: Sequence[Unsolved], folder: RunFolder, console: Console) -> None:
    if not unsolved:
        return
    table = Table(title="Not solved", title_justify="left")
    for heading in ("rollout", "score", "how it ended", "folder, below the run's"):
        table.add_column(heading, justify="right" if heading == "score" else "left", overflow="fold")
    for one in unsolved[:UNSOLVED_SHOWN]:
        score = "-" if one.score is None else f"{one.score:.4g}"
        inner = str(Path(one.folder).relative_to(folder.path))
        table.add_row(*(Text(one_line(text)) for text in (one.rollout_id, score, one.ending, inner)))
    console.print(table)
    if len(unsolved) > UNSOLVED_SHOWN:
        more = f"more than {UNSOLVED_KEPT}" if len(unsolved) == UNSOLVED_KEPT else str(len(unsolved))
        console.print(f"{UNSOLVED_SHOWN} of {more} are shown; --json has them", highlight=False, soft_wrap=True)


def _interval(summary: Mapping[str, Any]) -> str:
    interval = summary.get("confidence_interval")
    if summary.get("valid_mean") is None or not interval:
        return ""
    return f"; over valid ones {summary['valid_mean']:.4g} (95 %: {interval[0]:.4g} to {interval[1]:.4g})"


def _add(table: Table, line: Line) -> None:
    table.add_row(Text(one_line(line.name)), str(line.asked), str(line.valid), str(line.solved), f"{line.score:.1%}")


def _line(line: Line) -> dict[str, Any]:
    return asdict(line) | {"score": line.score}


def is_infeasible(item: Item) -> bool:
    """Whether a task of OSWorld cannot be done, so that the right answer is to say so."""
    evaluator = item.metadata.get("evaluator")
    return isinstance(evaluator, dict) and evaluator.get("func") == "infeasible"
