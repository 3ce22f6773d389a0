"""Shows a finished run's results: per domain, groups, infeasible tasks, failures, overall."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from rollout_tasks import command_line
from rollout_tasks.runs.folder import find_run
from rollout_tasks.runs.show import show_run, tables

application = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")


@application.command()
def show(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run's id, or the path of its folder.")],
    output_dir: Annotated[Path, typer.Option(help="Where runs' folders are.")] = Path("results"),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Show a finished run, as in:  [bold]show_result.py results/20260101-120000-math-1a2b[/bold]"""
    folder = find_run(run, output_dir)
    if as_json:
        command_line.print_json(tables(folder).as_dict())
    else:
        show_run(folder, Console())


if __name__ == "__main__":
    command_line.run(application)
