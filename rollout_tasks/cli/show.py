"""Shows a finished run's results: per domain, groups, infeasible tasks, failures, overall."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rollout_tasks.cli import program
from rollout_tasks.cli.fitting_tables import table_console
from rollout_tasks.cli.result_tables import show_run, tables
from rollout_tasks.errors import UserError
from rollout_tasks.runs.completeness import gap
from rollout_tasks.runs.folder import RunFolder, find_run

application = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")


@application.command()
def show(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run's id, or the path of its folder.")],
    output_dir: Annotated[Path, typer.Option(help="Where runs' folders are.")] = Path("results"),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Show a finished run, as in:  [bold]rollouts show results/20260101-120000-math-1a2b[/bold]"""
    folder = find_run(run, output_dir)
    if not folder.evaluation.exists():
        raise UserError(f"run {folder.path.name} has no report{why_no_report(folder)}")
    if as_json:
        program.print_json(tables(folder).as_dict())
    else:
        show_run(folder, table_console())


def why_no_report(folder: RunFolder) -> str:
    """Returns why a run has no report and what to do, as the end of a sentence."""
    from rollout_tasks.cli.run_progress import metric_of, score_again  # here, because it imports Celery

    missing = gap(folder)
    return f": {missing}" if missing else f"; score it with: {score_again(folder, metric_of(folder))}"


def main() -> None:
    """Runs the command."""
    program.run(application)
