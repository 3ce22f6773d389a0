"""`rollouts compare`: whether runs of the same items differ, on which items, and where their rollouts part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from benchmark.comparison import LEVEL, POWER, Comparison, compare_items, holm
from benchmark.statistics import CONFIDENCE
from rollout_tasks.cli import program
from rollout_tasks.cli.fitting_tables import Column, FittingTable, table_console
from rollout_tasks.cli.parted_rollouts import Parting, partings, partings_of, show_partings
from rollout_tasks.cli.plot_files import write_score_plots
from rollout_tasks.cli.several_runs import ScoredRun, SeveralRuns, load_runs
from rollout_tasks.errors import UserError
from rollout_tasks.plots.style import require_matplotlib
from rollout_tasks.unicode_text import one_line

application = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")

SHOWN, KEPT = 20, 1000
"""Items whose scores differ: how many the table shows, with where their rollouts part, and how many `--json` has."""
_ACTION_WIDTH = 60


@dataclass(frozen=True, slots=True)
class Pair:
    """Two runs, compared."""

    first: ScoredRun
    second: ScoredRun
    result: Comparison
    adjusted_p: float
    """The p-value, adjusted for as many comparisons as there are."""
    parts: Mapping[str, Parting | str]
    """Where the rollouts of the first differing items part, by item; or why that is not known."""


@application.command(context_settings=program.any_spelling())
def compare(
    runs: Annotated[
        list[str], typer.Argument(metavar="RUN...", help="Runs' ids or folders; the first is compared with each other.")
    ],
    difference: Annotated[
        float, typer.Option(help="Say how many items it takes to find this difference of the means.")
    ] = 0.05,
    rollout: Annotated[
        str | None,
        typer.Option(metavar="ITEM#INDEX", help="Show only where the runs' rollouts of this id part."),
    ] = None,
    common_items: Annotated[
        bool, typer.Option("--common-items", help="Take the items that all have, where the runs have different ones.")
    ] = False,
    metric: Annotated[
        str | None, typer.Option(help="Take the scores of the reports with this metric. Default: each run's own.")
    ] = None,
    plots: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Write plots there, as PNG and SVG.")] = None,
    output_dir: Annotated[Path, typer.Option(help="Where runs' folders are.")] = Path("results"),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Compare runs of the same items, as in:  [bold]rollouts compare RUN RUN[/bold]

    Shows the difference of the means with its 95 % interval, two tests of it,
    how many items it would take to find a given difference, and the items whose
    scores differ, with the first step at which their rollouts part.

    Only valid rollouts count: what the infrastructure lost is no 0.
    """
    if len(runs) < 2:
        raise UserError("RUN: two runs are needed, and one is given")
    if not 0.0 < difference <= 1.0:
        raise UserError(f"--difference: must be more than 0 and at most 1, got {difference:g}")
    if plots is not None:
        require_matplotlib()
    several = load_runs(runs, output_dir, metric, common_items=common_items)
    if rollout is not None:
        _show_rollout(several, rollout, as_json=as_json)
        return
    pairs = _pairs(several, difference)
    several.say_what_is_left_out()
    written = [] if plots is None else write_score_plots(several, plots)
    if as_json:
        program.print_json(_as_dict(several, pairs, written))
        return
    console = table_console(highlight=False, markup=False)
    for pair in pairs:
        _show(pair, several, console, comparisons=len(pairs))
    for path in written:
        console.print(f"Plot: {path}", soft_wrap=True)


def _show_rollout(several: SeveralRuns, rollout_id: str, *, as_json: bool) -> None:
    first, found = several.runs[0].name, partings_of(several, rollout_id)
    if as_json:
        others = {name: one.as_dict() for name, one in found.items()}
        program.print_json({"rollout": rollout_id, "first": first, "others": others})
    else:
        show_partings(rollout_id, first, found, table_console(highlight=False, markup=False))


def _pairs(several: SeveralRuns, difference: float) -> list[Pair]:
    first = several.runs[0]
    results = [compare_items(first.items, run.items, several.item_ids, difference) for run in several.runs[1:]]
    adjusted = holm([result.p_value for result in results])
    return [
        Pair(first, run, result, p_value, partings(first, run, result.differing[:SHOWN]))
        for run, result, p_value in zip(several.runs[1:], results, adjusted, strict=True)
    ]


def _show(pair: Pair, several: SeveralRuns, console: Console, *, comparisons: int) -> None:
    result = pair.result
    better = sum(one.difference > 0 for one in result.differing)
    worse = len(result.differing) - better
    console.print(f"{pair.second.name} against {pair.first.name}, {several.metric}", style="bold", soft_wrap=True)
    for sentence in _sentences(pair, better, worse, comparisons):
        console.print(sentence, soft_wrap=True)
    if result.differing:
        console.print(_table(pair))
        if len(result.differing) > SHOWN:
            console.print(f"{SHOWN} of {len(result.differing):,} are shown; --json has more", soft_wrap=True)


def _sentences(pair: Pair, better: int, worse: int, comparisons: int) -> Iterator[str]:
    result, exact = pair.result, pair.result.mcnemar
    left_out = f" ({result.left_out:,} without a valid rollout in both are left out)" if result.left_out else ""
    yield f"Items: {result.items:,}{left_out}; {better:,} better, {worse:,} worse, {result.items - better - worse:,} the same"
    interval = "no interval: all items differ by the same"
    if result.interval is not None:
        interval = f"{CONFIDENCE:.0%} interval {result.interval.low:+.4f} to {result.interval.high:+.4f}"
    yield f"Mean: {result.first_mean:.4f} -> {result.second_mean:.4f}, difference {result.difference:+.4f} ({interval})"
    holms = f", adjusted for {comparisons} comparisons {pair.adjusted_p:.3g}" if comparisons > 1 else ""
    yield f"Test that swaps the runs within items: p = {result.p_value:.3g}{holms}"
    yield (
        f"McNemar's exact test, one rollout of each item: {exact.first_only:,} passed in the first only,"
        f" {exact.second_only:,} in the second only, {exact.both:,} in both, {exact.neither:,} in none; p = {exact.p_value:.3g}"
    )
    yield _power_sentence(result)


def _power_sentence(result: Comparison) -> str:
    needed = result.needed
    if needed.items is None or needed.found_here is None:
        return f"How many items a difference of {needed.difference:g} needs is not known: all items differ by the same."
    found = "no difference" if needed.found_here > 1 else f"one of {needed.found_here:.3f}"
    return (
        f"A difference of {needed.difference:g} needs {needed.items:,} items (power {POWER:.0%}, level {LEVEL:.0%}, if items"
        f" vary as here); these {result.items:,} find {found}."
    )


def _table(pair: Pair) -> FittingTable:
    columns = [
        Column("item", folds_to=40),
        Column("domain", leaves=3),
        Column("first", right=True),
        Column("second", right=True),
        Column("step", right=True, leaves=4),
        Column("first did", folds_to=_ACTION_WIDTH, leaves=2),
        Column("second did", folds_to=_ACTION_WIDTH, leaves=1),
    ]
    rows = []
    for item in pair.result.differing[:SHOWN]:
        part = pair.parts[item.item_id]
        texts = ("?", "", "")
        if isinstance(part, Parting):
            texts = ("-" if part.at.step is None else str(part.at.step), *part.actions)
        rows.append(
            [
                one_line(item.item_id),
                one_line(item.domain or "-"),
                f"{item.first:.4g}",
                f"{item.second:.4g}",
                *(_cut(one_line(text)) for text in texts),
            ]
        )
    title = Text("Items whose scores differ, and the first step that does", style="table.title")
    return FittingTable(columns, rows, title=title, title_justify="left")


def _cut(text: str) -> str:
    return text if len(text) <= _ACTION_WIDTH else f"{text[: _ACTION_WIDTH - 3]}..."


def _as_dict(several: SeveralRuns, pairs: Sequence[Pair], plots: Sequence[Path]) -> dict[str, Any]:
    return {
        **several.as_dict(),
        "confidence": CONFIDENCE,
        "level": round(LEVEL, 12),
        "power": POWER,
        "comparisons": [_pair_as_dict(pair) for pair in pairs],
        "plots": list(map(str, plots)),
    }


def _pair_as_dict(pair: Pair) -> dict[str, Any]:
    values = asdict(pair.result)
    differing = values.pop("differing")
    rows = []
    for row, item in zip(differing[:KEPT], pair.result.differing, strict=False):
        part = pair.parts.get(item.item_id)
        known = part.as_dict() if isinstance(part, Parting) else None
        problem = part if isinstance(part, str) else None
        rows.append({**row, "difference": item.difference, "divergence": known, "problem": problem})
    return {
        "first": pair.first.name,
        "second": pair.second.name,
        **values,
        "adjusted_p_value": pair.adjusted_p,
        "differing_items": len(differing),
        "differing": rows,
    }


def main() -> None:
    """Runs the command."""
    program.run(application)
