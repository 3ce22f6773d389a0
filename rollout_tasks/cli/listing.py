"""`rollouts list`: the runs in a folder, and the names that options take."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmark.errors import BenchmarkError
from benchmark.metrics import metric_names
from benchmark.stored_report import scan_report
from rollout_tasks import registry
from rollout_tasks.cli import program
from rollout_tasks.cli.fitting_tables import Column, FittingTable, table_console
from rollout_tasks.errors import UserError
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.unicode_text import one_line
from vm_pool.providers import provider_names

application = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")


class What(StrEnum):
    """What can be listed."""

    RUNS = "runs"
    ENVIRONMENTS = "environments"
    AGENTS = "agents"
    METRICS = "metrics"
    PROVIDERS = "providers"


LONGEST_ID = 100
"""Characters that a run's id may have."""


NAMES: Mapping[What, Callable[[], Sequence[str]]] = {
    What.ENVIRONMENTS: registry.known_environments,
    What.AGENTS: registry.known_agents,
    What.METRICS: metric_names,
    What.PROVIDERS: provider_names,
}


@dataclass(frozen=True, slots=True)
class ListedRun:
    """One run, as its folder describes it."""

    run_id: str
    submitted: str
    environment: str
    agent: str | None
    """With the version of its profile; None if it is not known here."""
    model: str | None
    """None where no model is asked."""
    metric: str
    rollouts: int | None
    """None when the run has no report yet."""
    score: float | None
    coverage: float | None


@application.command("list")
def listing(
    what: Annotated[What, typer.Argument(help="What to list.")] = What.RUNS,
    output_dir: Annotated[Path, typer.Option(help="Where runs' folders are.")] = Path("results"),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """List the runs of a folder, the newest first; or the environments, agents, metrics or providers that there are."""
    if what is What.RUNS:
        runs = _runs(output_dir)
        if as_json:
            program.print_json([asdict(run) for run in runs])
        else:
            table_console(highlight=False, soft_wrap=False, markup=False).print(
                _table(runs) if runs else f"{output_dir} has no runs"
            )
    elif as_json:
        program.print_json(list(NAMES[what]()))
    else:
        typer.echo("\n".join(NAMES[what]()))


def _runs(output_dir: Path) -> list[ListedRun]:
    try:
        names = os.listdir(output_dir)  # noqa: PTH208 - an entry that cannot be looked at does not concern the others
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UserError(f"--output-dir: {output_dir} cannot be read: {error.strerror}") from error
    dated: list[tuple[float, Path]] = []
    for name in names:
        if name.startswith("."):  # not a run: at most one that a submission is just describing
            continue
        try:
            dated.append(((output_dir / name / "run.json").stat().st_mtime, output_dir / name))
        except (FileNotFoundError, NotADirectoryError):  # not a run, or one that was removed just now
            continue
        except OSError as error:
            program.tell(f"left out: {output_dir / name} cannot be read: {error.strerror}")
    runs = []
    for when, path in sorted(dated, reverse=True):
        try:
            runs.append(_listed(RunFolder(path), when))
        except (UserError, BenchmarkError) as error:
            program.tell(f"left out: {error}")
    return runs


def _listed(folder: RunFolder, when: float) -> ListedRun:
    config = folder.description.config()
    summary: Mapping[str, Any] = {}
    if folder.evaluation.exists():
        summary = scan_report(folder.evaluation)["summary"]
    return ListedRun(
        run_id=folder.path.name,
        submitted=datetime.fromtimestamp(when, UTC).isoformat(timespec="seconds"),
        environment=", ".join(folder.description.environments()),
        agent=folder.description.agent(),
        model=folder.description.answerer(),
        metric=str(summary.get("metric") or config.metric),
        rollouts=summary.get("total_rollouts"),
        score=summary.get("average_score"),
        coverage=summary.get("coverage"),
    )


def _table(runs: Sequence[ListedRun]) -> FittingTable:
    columns = [
        Column("run", folds_to=LONGEST_ID),
        Column("submitted (UTC)", leaves=6),
        Column("environment", leaves=1),
        Column("agent", leaves=2),
        Column("model", leaves=5),
        Column("metric", leaves=3),
        Column("rollouts", right=True),
        Column("score", right=True),
        Column("coverage", right=True, leaves=4),
    ]
    rows = []
    for run in runs:
        when = run.submitted[:16].replace("T", " ")
        texts = (run.run_id, when, run.environment, run.agent or "-", run.model or "-", run.metric)
        numbers = (
            "-" if run.rollouts is None else str(run.rollouts),
            "-" if run.score is None else f"{run.score:.4g}",
            "-" if run.coverage is None else f"{run.coverage:.1%}",
        )
        rows.append([*map(one_line, texts), *numbers])
    return FittingTable(columns, rows, box=None, pad_edge=False)


def main() -> None:
    """Runs the command."""
    program.run(application)
