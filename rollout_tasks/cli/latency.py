"""`rollouts latency`: where a run's time went, by stage and by turn, and how well it used its VMs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from math import fsum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmark.percentiles import Spread, shares, spread
from rollout_tasks.cli import program
from rollout_tasks.cli.fitting_tables import table_console
from rollout_tasks.cli.plot_files import write_time_plots
from rollout_tasks.errors import UserError
from rollout_tasks.plots.style import require_matplotlib
from rollout_tasks.runs.folder import find_run
from rollout_tasks.runs.latency import REST, VM, Latency, Turn, latency_of
from rollout_tasks.runs.vm_use import VMUse, vm_use
from rollout_tasks.unicode_text import one_line

application = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")

STAGE_NAMES = {
    VM: "waiting for a VM",
    "setup": "setup",
    "model": "model",
    "acting": "environment",
    "evaluation": "evaluation",
    REST: "the rest",
}
"""What the stages of a verdict are called, in the order in which they are shown; others come before the rest."""
TURN_RANGES = [*((turn, turn) for turn in range(1, 11)), (11, 20), (21, 50), (51, 10**6)]
"""Turns that the table shows in one row; `--json` has each."""
PARTS = ("model", "environment", "waiting")


@dataclass(frozen=True, slots=True)
class Row:
    """Durations of a stage, or of a part of a turn."""

    name: str
    spread: Spread
    share: float
    """Of all stages, or of the turn's parts."""


@application.command(context_settings=program.any_spelling())
def latency(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run's id, or the path of its folder.")],
    plots: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Write plots there, as PNG and SVG.")] = None,
    output_dir: Annotated[Path, typer.Option(help="Where runs' folders are.")] = Path("results"),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Show where a run's time went, as in:  [bold]rollouts latency RUN[/bold]

    Shows percentiles of the stages of its rollouts (waiting for a VM, setup,
    model, environment, evaluation), and of the parts of their turns: a turn is a
    reply of the model and the calls that it asked for; its waiting is what
    neither of the two took. A run that is under way is shown as far as it is.
    """
    if plots is not None:
        require_matplotlib()
    folder = find_run(run, output_dir)
    found = latency_of(folder)
    if not found.rollouts:
        problem = f": {found.first_problem}" if found.first_problem else ", or all were cancelled before they began"
        raise UserError(f"run {folder.path.name} has no rollout that has ended{problem}")
    use = vm_use(folder)
    written = [] if plots is None else write_time_plots(folder, found, use, plots)
    if found.unreadable:
        program.tell(f"left out: {found.unreadable:,} results or records that cannot be read: {found.first_problem}")
    if as_json:
        program.print_json(_as_dict(folder.path.name, found, use, written))
        return
    console = table_console(highlight=False, markup=False)
    _show(folder.path.name, found, use, console)
    for path in written:
        console.print(f"Plot: {path}", soft_wrap=True)


def _stage_rows(found: Latency) -> list[Row]:
    order = [*STAGE_NAMES][:-1]
    names = [*(name for name in order if name in found.stages), *sorted(found.stages.keys() - STAGE_NAMES.keys()), REST]
    parts = shares({name: fsum(found.stages[name]) for name in names})
    rows = ((name, spread(found.stages[name]), parts[name]) for name in names)
    return [Row(name, distribution, share) for name, distribution, share in rows if distribution is not None]


def _turn_rows(turns: Sequence[Turn]) -> list[Row]:
    """Returns the parts of some turns, taken together."""
    seconds = {part: [one for turn in turns for one in getattr(turn, part)] for part in PARTS}
    parts = shares({part: fsum(taken) for part, taken in seconds.items()})
    return [Row(part, found, parts[part]) for part, taken in seconds.items() if (found := spread(taken)) is not None]


def _show(name: str, found: Latency, use: VMUse | None, console: Console) -> None:
    whole = spread(found.totals)
    table = Table(title=Text(f"Stages of {found.rollouts:,} rollouts of run {name}, in seconds", style="table.title"))
    for heading in ("", "rollouts", "share", "mean", "p50", "p90", "p99"):
        table.add_column(heading, justify="right" if heading else "left")
    for row in _stage_rows(found):
        table.add_row(Text(one_line(STAGE_NAMES.get(row.name, row.name))), *_cells(row.spread, row.share))
    table.add_section()
    if whole is not None:
        table.add_row("rollout", *_cells(whole, 1.0))
    console.print(table)
    if found.turns:
        console.print(_turns_table(found.turns))
    if found.unrecorded:
        console.print(f"{found.unrecorded:,} rollouts have no record of their turns", soft_wrap=True)
    if use is not None:
        console.print(
            f"VMs: {use.vms:,} were used, {use.share:.1%} of the time from the first use to the last", soft_wrap=True
        )


def _turns_table(turns: Sequence[Turn]) -> Table:
    table = Table(title="Turns, in seconds", title_justify="left")
    for heading in ("turn", "", "turns", "share", "mean", "p50", "p90", "p99"):
        table.add_column(heading, justify="left" if not heading else "right")
    for label, rows in _ranges(turns):
        for number, row in enumerate(rows):
            table.add_row("" if number else label, row.name, *_cells(row.spread, row.share))
        table.add_section()
    return table


def _ranges(turns: Sequence[Turn]) -> Iterator[tuple[str, list[Row]]]:
    for first, last in TURN_RANGES:
        if first > len(turns):
            return
        last = min(last, len(turns))
        label = str(first) if first == last else f"{first}-{last}"
        yield label, _turn_rows(turns[first - 1 : last])


def _cells(found: Spread, share: float) -> Iterator[str]:
    yield f"{found.count:,}"
    yield f"{share:.1%}"
    for seconds in (found.mean, found.p50, found.p90, found.p99):
        yield f"{seconds:,.3f}" if seconds < 100 else f"{seconds:,.1f}"


def _as_dict(name: str, found: Latency, use: VMUse | None, plots: Sequence[Path]) -> dict[str, Any]:
    whole = spread(found.totals)
    return {
        "run": name,
        "rollouts": found.rollouts,
        "unrecorded": found.unrecorded,
        "unreadable": found.unreadable,
        "problem": found.first_problem,
        "rollout": None if whole is None else asdict(whole),
        "stages": {row.name: asdict(row.spread) | {"share": row.share} for row in _stage_rows(found)},
        "turns": [
            {"turn": number, **{row.name: asdict(row.spread) | {"share": row.share} for row in _turn_rows([turn])}}
            for number, turn in enumerate(found.turns, start=1)
        ],
        "vms": None if use is None else {"used": use.vms, "share_of_time": use.share},
        "plots": list(map(str, plots)),
    }


def main() -> None:
    """Runs the command."""
    program.run(application)
