"""Which plots commands write of runs, and the links to them in a run's Markdown report."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from benchmark.money import dollars
from benchmark.run_figures import Figures, lines
from benchmark.whole_file import write_whole
from rollout_tasks.cli.several_runs import ScoredRun, SeveralRuns
from rollout_tasks.errors import UserError
from rollout_tasks.plots.scores import Mark, score_by_domain, score_within
from rollout_tasks.plots.style import write
from rollout_tasks.plots.times import turn_latency, vm_waits, vms_in_use
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.runs.latency import Latency
from rollout_tasks.runs.verdict import rollout_id_of
from rollout_tasks.runs.verdict_files import number_in, settled_verdict
from rollout_tasks.runs.vm_use import VMUse
from rollout_tasks.trajectories.plain_files import check_plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_HEADING = "\n## Plots\n"
_REPORT_BYTES = 64 << 20
_MOST = 1e15
"""Turns, tokens or dollars of one rollout are below."""


def write_score_plots(several: SeveralRuns, folder: Path) -> list[Path]:
    """Writes the plots of scores, by domain and against turns and cost, and returns the files.

    Args:
        several: The runs.
        folder: Where to write to.

    Raises:
        OSError: It cannot be written.
    """
    rows = [
        (line.name, line.items, [_mark(one) for one in line.runs]) for line in lines(several.items, several.item_ids)
    ]
    figures = {"score-by-domain": score_by_domain(rows, [run.name for run in several.runs])}
    spent = {run.name: _spent(run, several.item_ids) for run in several.runs}
    turns = {name: [(one[0], one[3]) for one in rollouts] for name, rollouts in spent.items() if rollouts}
    if turns:
        figures["score-by-turns"] = score_within("Score against turns", "turns of a rollout, at most", turns)
        if any(one[2] for rollouts in spent.values() for one in rollouts):  # else no model was asked
            figures["score-by-cost"] = _cost_plot(spent)
    return _written(figures, folder, [run.folder for run in several.runs])


def _cost_plot(spent: Mapping[str, Sequence[tuple[float, float | None, float, float]]]) -> Figure:
    """Draws scores against dollars, or against tokens where the cost of a rollout is not known."""
    known = {name: rollouts for name, rollouts in spent.items() if rollouts}
    if all(cost is not None for rollouts in known.values() for _, cost, _, _ in rollouts):
        costs = {name: [(cost or 0.0, score) for _, cost, _, score in rollouts] for name, rollouts in known.items()}
        total = sum(cost for rollouts in costs.values() for cost, _ in rollouts)
        return score_within("Score against cost", f"dollars of a rollout, at most (all: {dollars(total)})", costs)
    tokens = {name: [(one[2] / 1000, one[3]) for one in rollouts] for name, rollouts in known.items()}
    return score_within(
        "Score against tokens, as not every cost is known", "thousand tokens of a rollout, at most", tokens
    )


def _mark(figures: Figures) -> Mark:
    interval = figures.interval
    return Mark(figures.valid_mean, *((None, None) if interval is None else (interval.low, interval.high)))


def _spent(run: ScoredRun, item_ids: Sequence[str]) -> list[tuple[float, float | None, float, float]]:
    """Returns turns, dollars, tokens and score of each valid rollout whose result can be read."""
    found = []
    for item_id in item_ids:
        for index, score in run.items[item_id].valid.items():
            try:
                verdict = settled_verdict(run.folder, rollout_id_of(item_id, index))
                if verdict is None:
                    continue
                cost = verdict.total_cost
                tokens = number_in(verdict.usage.total_tokens, _MOST)
                turns = number_in(verdict.turns, _MOST)
                found.append((turns, None if cost is None else number_in(cost, _MOST), tokens, score))
            except (UserError, AttributeError, TypeError, ValueError):  # a plot shows what can be read
                continue
    return found


def write_time_plots(folder: RunFolder, found: Latency, use: VMUse | None, target: Path) -> list[Path]:
    """Writes the plots of a run's time, and returns the files.

    Args:
        folder: The run.
        found: Where its time went.
        use: How it used its VMs; None if it used none.
        target: Where to write to.

    Raises:
        OSError: It cannot be written.
    """
    figures: dict[str, Figure] = {}
    if use is not None:
        figures["vms-in-use"] = vms_in_use(use.moments, use.in_use, use.vms, use.share)
    if found.vm_waits:
        figures["vm-waits"] = vm_waits(found.vm_waits)
    if found.turns:
        parts = {part: [getattr(turn, part) for turn in found.turns] for part in ("model", "environment", "waiting")}
        figures["latency-by-turn"] = turn_latency(parts)
    return _written(figures, target, [folder])


def _written(figures: Mapping[str, Figure], folder: Path, runs: Sequence[RunFolder]) -> list[Path]:
    written = write(figures, folder)
    for run in runs:
        if Path(os.path.realpath(folder)).is_relative_to(run.path):
            _link(run, [path for path in written if path.suffix == ".svg"])
    return written


def _link(run: RunFolder, pictures: Sequence[Path]) -> None:
    """Adds pictures in a run's folder to the end of its report, which is only read if it is a plain file."""
    try:
        check_plain(run.path, run.report, _REPORT_BYTES)
        text = run.report.read_text(encoding="utf-8")
    except FileNotFoundError:
        return
    before, _, after = text.partition(_HEADING)
    linked = [line for line in after.splitlines() if line.strip()]
    for picture in pictures:
        place = quote(os.path.relpath(os.path.realpath(picture), run.path))
        line = f"![{picture.stem.replace('-', ' ')}]({place})"
        if line not in linked:
            linked.append(line)
    write_whole(run.report, before + _HEADING + "\n" + "\n\n".join(linked) + "\n")
