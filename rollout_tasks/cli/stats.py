"""`rollouts stats`: figures of one or several runs of the same items, by domain and by group, and each item's best."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmark.run_figures import OVERALL, Figures, Line, bests, lines
from benchmark.whole_file import write_whole
from rollout_tasks.cli import program
from rollout_tasks.cli.fitting_tables import Column, FittingTable, table_console
from rollout_tasks.cli.plot_files import write_score_plots
from rollout_tasks.cli.result_tables import is_infeasible
from rollout_tasks.cli.several_runs import SeveralRuns, load_runs
from rollout_tasks.plots.style import require_matplotlib
from rollout_tasks.unicode_text import one_line

application = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")

TOGETHER = "all together"
_RUNS_SIDE_BY_SIDE = 6
"""How many runs the table of domains has columns for; `--json` and `--csv` have all."""


@application.command(context_settings=program.any_spelling())
def stats(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="Runs' ids or folders.")],
    common_items: Annotated[
        bool, typer.Option("--common-items", help="Take the items that all have, where the runs have different ones.")
    ] = False,
    metric: Annotated[
        str | None, typer.Option(help="Take the scores of the reports with this metric. Default: each run's own.")
    ] = None,
    csv_file: Annotated[
        Path | None,
        typer.Option("--csv", metavar="FILE", help="Write a row for each item: its mean in each run, and its best."),
    ] = None,
    plots: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Write plots there, as PNG and SVG.")] = None,
    output_dir: Annotated[Path, typer.Option(help="Where runs' folders are.")] = Path("results"),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Show figures of runs of the same items, as in:  [bold]rollouts stats RUN RUN RUN[/bold]

    Shows the mean of each run, the mean over items of the best score of any
    rollout, how many items any rollout solved, and the same by domain, by
    OSWorld's groups of domains, and of infeasible items.

    Only valid rollouts count: what the infrastructure lost is no 0.
    """
    if plots is not None:
        require_matplotlib()
    several = load_runs(runs, output_dir, metric, common_items=common_items)
    found = lines(several.items, several.item_ids, _infeasible(several))
    several.say_what_is_left_out()
    if csv_file is not None:
        write_whole(csv_file, _csv(several))
    written = [] if plots is None else write_score_plots(several, plots)
    if as_json:
        program.print_json(_as_dict(several, found, written))
        return
    console = table_console(highlight=False, markup=False)
    _show(several, found, console)
    for path in [*([csv_file] if csv_file else []), *written]:
        console.print(f"Written: {path}", soft_wrap=True)


def _infeasible(several: SeveralRuns) -> frozenset[str]:
    """Returns the ids of items that cannot be solved, as the first run's items say."""
    return frozenset(item.id for item in several.runs[0].folder.description.each_item() if is_infeasible(item))


def _show(several: SeveralRuns, found: Sequence[Line], console: Console) -> None:
    overall = next(line for line in found if line.kind == OVERALL)
    console.print(_runs_table(several, overall))
    console.print(_lines_table(several, found))
    if len(several.runs) > _RUNS_SIDE_BY_SIDE:
        console.print(
            f"{_RUNS_SIDE_BY_SIDE} of {len(several.runs)} runs are shown by domain; --json has all", soft_wrap=True
        )
    console.print(
        f"{several.metric}. score: losses count 0. mean, best, any correct: over valid rollouts;"
        " best: the mean over items of their best rollout; any correct: items that a rollout solved.",
        soft_wrap=True,
    )


def _runs_table(several: SeveralRuns, overall: Line) -> FittingTable:
    columns = [
        Column("run", folds_to=100),
        Column("items", right=True),
        Column("valid", right=True),
        Column("score", right=True),
        Column("mean", right=True),
        Column("95 % interval", right=True, leaves=1),
        Column("best", right=True),
        Column("any correct", right=True),
    ]
    named = [(run.name, figures) for run, figures in zip(several.runs, overall.runs, strict=True)]
    if len(named) > 1:
        named.append((TOGETHER, overall.together))
    return FittingTable(columns, [_row(name, figures) for name, figures in named])


def _row(name: str, figures: Figures) -> list[str]:
    interval = figures.interval
    return [
        one_line(name),
        f"{figures.items:,}",
        f"{figures.valid:,} of {figures.asked:,}",
        f"{figures.score:.4f}",
        _number(figures.valid_mean),
        "" if interval is None else f"{interval.low:.4f} to {interval.high:.4f}",
        _number(figures.best_mean),
        f"{figures.any_correct:,}",
    ]


def _lines_table(several: SeveralRuns, found: Sequence[Line]) -> Table:
    """Returns a table of the means: a row for each domain and group, a column for each run."""
    shown = several.runs[:_RUNS_SIDE_BY_SIDE]
    table = Table(title="Mean over valid rollouts", title_justify="left")
    table.add_column("", overflow="fold")
    table.add_column("items", justify="right")
    for run in shown:
        table.add_column(Text(one_line(run.name)), justify="right", overflow="fold")
    table.add_column("best", justify="right")
    table.add_column("any correct", justify="right")
    kind = found[0].kind
    for line in found:
        if line.kind != kind and kind == "domain":
            table.add_section()
        kind = line.kind
        means = [_number(figures.valid_mean) for figures in line.runs[:_RUNS_SIDE_BY_SIDE]]
        best, solved = _number(line.together.best_mean), f"{line.together.any_correct:,}"
        table.add_row(Text(one_line(line.name)), f"{line.items:,}", *means, best, solved)
    return table


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _csv(several: SeveralRuns) -> str:
    """Returns a row for each item; the mean of a run without a valid rollout is empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["item_id", "domain", *(run.name for run in several.runs), "max", "any_correct"])
    for item in bests(several.items, several.item_ids):
        means = ["" if one is None else repr(one) for one in item.means]
        best = "" if item.best is None else repr(item.best)
        writer.writerow([item.item_id, item.domain or "", *means, best, "" if item.best is None else int(item.solved)])
    return text.getvalue()


def _as_dict(several: SeveralRuns, found: Sequence[Line], plots: Sequence[Path]) -> dict[str, Any]:
    return {
        **several.as_dict(),
        "lines": [asdict(line) for line in found],
        "plots": list(map(str, plots)),
    }


def main() -> None:
    """Runs the command."""
    program.run(application)
