"""A finished run's tables: per domain, the groups that OSWorld's own tables use, infeasible tasks, failures, overall."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmark.errors import BenchmarkError
from benchmark.items import Item
from benchmark.report import read_report
from benchmark.results import PERFECT
from rollout_tasks.runs.folder import RunFolder

GROUPS: Mapping[str, frozenset[str]] = {
    "Office": frozenset({"libreoffice_calc", "libreoffice_impress", "libreoffice_writer"}),
    "Daily": frozenset({"vlc", "thunderbird", "chrome"}),
    "Professional": frozenset({"gimp", "vs_code"}),
}
"""The groups of OSWorld's domains in its published tables."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a table: how many rollouts were to run, have a verdict, and succeeded."""

    name: str
    asked: int
    run: int
    succeeded: float
    """Sum of scores: half a success counts half."""

    @property
    def rate(self) -> float:
        """Share of what was asked that succeeded; what did not run counts as failed."""
        return self.succeeded / self.asked if self.asked else 0.0


@dataclass(frozen=True, slots=True)
class Tables:
    """What `show_result` shows."""

    domains: Sequence[Line]
    groups: Sequence[Line]
    infeasible: Line | None
    overall: Line
    summary: Mapping[str, Any]
    scripted: bool

    def as_dict(self) -> dict[str, Any]:
        """JSON types."""
        return {
            "domains": [_line(line) for line in self.domains],
            "groups": [_line(line) for line in self.groups],
            "infeasible": _line(self.infeasible) if self.infeasible else None,
            "overall": _line(self.overall),
            "summary": dict(self.summary),
            "scripted": self.scripted,
        }


def tables(folder: RunFolder) -> Tables:
    """The tables of a finished run.

    Raises:
        BenchmarkError: It has no evaluation (yet), or a broken one.
    """
    try:
        return _tables(folder, read_report(folder.evaluation))
    except (KeyError, TypeError, AttributeError) as error:
        raise BenchmarkError(f"{folder.evaluation}: is not an evaluation report: {error!r}") from error


def _tables(folder: RunFolder, report: Mapping[str, Any]) -> Tables:
    rows: list[dict[str, Any]] = report["evaluation_results"]
    infeasible_ids = {item.id for item in folder.items() if _is_infeasible(item)}
    domains = sorted({str(row["domain"] or "-") for row in rows})
    by_domain = [_sum(name, (row for row in rows if str(row["domain"] or "-") == name)) for name in domains]
    groups = [
        _sum(name, (row for row in rows if row["domain"] in members))
        for name, members in GROUPS.items()
        if any(row["domain"] in members for row in rows)
    ]
    infeasible = (
        _sum("infeasible", (row for row in rows if row["item_id"] in infeasible_ids)) if infeasible_ids else None
    )
    return Tables(
        domains=by_domain,
        groups=groups,
        infeasible=infeasible,
        overall=_sum("overall", rows),
        summary=report["summary"],
        scripted=bool(report["benchmark_info"].get("scripted")),
    )


def show_run(folder: RunFolder, console: Console) -> None:
    """Prints a finished run's tables and where to look further."""
    found = tables(folder)
    if found.scripted:
        notice = "The answers came from the scripted model: these scores say nothing about any agent."
        console.print(notice, style="bold", soft_wrap=True)
    table = Table(title=f"Run {folder.path.name}")
    for heading in ("", "asked", "run", "succeeded", "rate"):
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
        console.print(f"max@{summary['rollouts_per_item']}: {summary['max_at_n']:.4g}, {tries}", highlight=False)
    for name, losses in summary["failures"].items():
        console.print(
            f"{name}: {losses['count']}, such as {losses['example']}", markup=False, highlight=False, soft_wrap=True
        )
    console.print(f"Report: {folder.report}", markup=False, highlight=False, soft_wrap=True)


def _interval(summary: Mapping[str, Any]) -> str:
    interval = summary.get("confidence_interval")
    if summary.get("valid_mean") is None or not interval:
        return ""
    return f"; over valid ones {summary['valid_mean']:.4g} (95 %: {interval[0]:.4g} to {interval[1]:.4g})"


def _add(table: Table, line: Line) -> None:
    table.add_row(line.name, str(line.asked), str(line.run), f"{line.succeeded:g}", f"{line.rate:.1%}")


def _line(line: Line) -> dict[str, Any]:
    return asdict(line) | {"rate": line.rate}


def _sum(name: str, rows: Iterable[Mapping[str, Any]]) -> Line:
    rollouts = [rollout for row in rows for rollout in row["rollouts"]]
    scores = [float(rollout["score"] or 0.0) for rollout in rollouts]
    return Line(
        name=name,
        asked=len(rollouts),
        run=sum(rollout["standing"] not in {"missing", "cancelled"} for rollout in rollouts),
        succeeded=sum(1.0 if score >= PERFECT else score for score in scores),
    )


def _is_infeasible(item: Item) -> bool:
    evaluator = item.metadata.get("evaluator")
    return isinstance(evaluator, dict) and evaluator.get("func") == "infeasible"
