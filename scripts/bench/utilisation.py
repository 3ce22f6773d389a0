"""How well N workers keep M VMs busy, and how long they wait: simulated fleets on the real pool, for choosing N : M.

Workers and hosts are coroutines (`fleet`), episodes are naps: lognormal, cut at five times their mean, a tenth of each
without the VM; a reset takes a twentieth of the mean. A mean episode stands for 300 s and takes a second or a few here. What
the pool itself takes is not scaled, so it weighs some hundred times what it does in earnest: short delays are upper
bounds, and how much of a processor the bench needed, and how late its naps ended, stand beside every result. The more VMs
there are, the slower the clock goes, to keep that little; fleets of few VMs run side by side, to make chance matter less.

A makespan depends on the long episodes at the end of a run, whatever the pool does. So it is compared with schedules of
the same items in the same order: see `schedule` for the three yardsticks.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import redis
import typer
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from rollout_tasks.embedded.services import EmbeddedServices
from rollout_tasks.settings import settings
from scripts.bench.fleet import Load, Plan, run_fleets
from scripts.bench.schedule import Figures, draw_items, figures

EPISODE_SECONDS = 300.0
"""What a mean episode stands for."""
TARGET = 1.05
"""Makespan over the list schedule, at most, where there are at least twice as many workers as VMs."""
VMS_IN_ALL = 100
"""Fleets run side by side until there are so many VMs."""
CLIENT_CORES = 0.15
"""How much of a processor grants may cost, unless the run gets too long."""
LAG_ALLOWED = 0.01
"""Naps that end later than this, in mean episodes, spoil a cell."""
CONNECTIONS_BESIDE_WORKERS = 600


@dataclass(frozen=True, slots=True)
class Effort:
    """How much time a table may take."""

    vms: tuple[int, ...]
    ratios: tuple[float, ...]
    episode: tuple[float, float]
    """Seconds that a mean episode takes here, at least and at most."""
    items_per_vm: float
    items_per_worker: float
    """More than one: a worker's first wait is short, as nobody has a VM yet."""
    budget: float
    """Cells that were disturbed are repeated as long as it is kept, in seconds."""


FULL = Effort((10, 100, 1000), (1.0, 1.5, 2.0, 3.0, 5.0), (0.8, 3.0), 8, 2.4, 350)
QUICK = Effort((10, 100), (1.0, 2.0, 5.0), (0.4, 0.8), 4, 2, 30)


@dataclass(frozen=True, slots=True)
class Cell:
    """One row of the table."""

    vms: int
    ratio: float

    @property
    def workers(self) -> int:
        """N."""
        return max(1, round(self.vms * self.ratio))

    @property
    def fleets(self) -> int:
        """How many run side by side."""
        return max(1, VMS_IN_ALL // self.vms)


@dataclass(frozen=True, slots=True)
class Row:
    """A cell with what came of it."""

    cell: Cell
    items: int
    """Per fleet."""
    episode: float
    """Seconds that a mean episode took here."""
    figures: Figures
    load: Load

    @property
    def disturbed(self) -> bool:
        """Whether the bench got too little of the processors, as when other programs were busy."""
        return self.load.lag_p99 > LAG_ALLOWED * self.episode

    def as_json(self) -> dict[str, Any]:
        """Delays also in the seconds they stand for."""
        return {
            "vms": self.cell.vms,
            "workers": self.cell.workers,
            "fleets": self.cell.fleets,
            "items": self.items,
            "episode_seconds_here": self.episode,
            **asdict(self.figures),
            "delay_p50_seconds": self.figures.delay_p50 * EPISODE_SECONDS,
            "delay_p99_seconds": self.figures.delay_p99 * EPISODE_SECONDS,
            **asdict(self.load),
            "disturbed": self.disturbed,
        }


def measure_cell(url: str, cell: Cell, episode: float, effort: Effort, seed: int) -> Row:
    """Runs a cell's fleets once; figures are means over them."""
    with redis.Redis.from_url(url) as client:
        client.flushall()
    count = round(max(effort.items_per_vm * cell.vms, effort.items_per_worker * cell.workers))
    drawn = [draw_items(count, seed + number) for number in range(cell.fleets)]
    plans = [Plan(cell.vms, cell.workers, items) for items in drawn]
    courses, load = asyncio.run(run_fleets(url, plans, episode))
    each = [
        figures(visits, makespan, items, cell.workers, cell.vms)
        for (visits, makespan), items in zip(courses, drawn, strict=True)
    ]
    return Row(cell, count, episode, mean_of(each), load)


def mean_of(each: Sequence[Figures]) -> Figures:
    """Field by field."""
    return Figures(**{f.name: statistics.fmean(getattr(one, f.name) for one in each) for f in fields(Figures)})


def pick_episode(cores_per_grant: float, vms: int, shortest: float, longest: float) -> float:
    """Returns how long a mean episode must take so that this many VMs' grants cost `CLIENT_CORES`, within limits. Seconds."""
    return min(max(vms * cores_per_grant / CLIENT_CORES, shortest), longest)


def measure(url: str, cells: Sequence[Cell], effort: Effort, seed: int, console: Console) -> list[Row]:
    """Measures every cell, then the disturbed ones again while there is time; the less disturbed result counts."""
    began = time.monotonic()
    rows, seconds = dict[Cell, Row](), dict[Cell, float]()

    def once(cell: Cell, episode: float) -> None:
        before = time.monotonic()
        with console.status(f"{cell.vms} VMs, N : M = {cell.ratio:g}"):
            row = measure_cell(url, cell, episode, effort, seed)
        seconds[cell] = time.monotonic() - before
        if cell not in rows or row.load.lag_p99 < rows[cell].load.lag_p99:
            rows[cell] = row

    with console.status("measuring what a grant costs"):
        trial = measure_cell(url, Cell(10, 2.0), 0.4, QUICK, seed).load
    for cell in cells:
        episode = pick_episode(trial.client_cores / trial.grants_per_second, cell.vms * cell.fleets, *effort.episode)
        once(cell, episode)
    for row in sorted(rows.values(), key=lambda row: row.load.lag_p99 / row.episode, reverse=True):
        if row.disturbed and time.monotonic() - began + seconds[row.cell] < effort.budget:
            once(row.cell, row.episode)
    return [rows[cell] for cell in cells]


def worst_ratio(rows: Sequence[Row]) -> float | None:
    """Returns the worst makespan over its list schedule from N = 2M; None without such a row."""
    return max((row.figures.over_list_schedule for row in rows if row.cell.ratio >= 2), default=None)


def show(rows: Sequence[Row], console: Console) -> None:
    """Prints the table, what it took to make it, and whether the target is met."""
    fleets = Table(title=f"fleets; a mean episode stands for {EPISODE_SECONDS:g} s")
    bench = Table(title=f"the bench itself; {os.cpu_count()} cores")
    for heading in ("VMs", "N : M", "held %", "+ reset", "all", "wait p50 s", "p99 s", "/ list", "/ ideal", "/ bound"):
        fleets.add_column(heading, justify="right")
    for heading in ("VMs", "N : M", "items", "episode s", "grants/s", "client cores", "Redis cores", "lag p99 ms"):
        bench.add_column(heading, justify="right")
    for row in rows:
        row_figures, load, cell = row.figures, row.load, row.cell
        name = (str(cell.vms), f"{cell.ratio:g}")
        shares = (row_figures.held_until_last_grant, row_figures.busy_until_last_grant, row_figures.busy)
        waits = (row_figures.delay_p50 * EPISODE_SECONDS, row_figures.delay_p99 * EPISODE_SECONDS)
        ratios = (row_figures.over_list_schedule, row_figures.over_fleet_schedule, row_figures.over_lower_bound)
        fleets.add_row(
            *name,
            *(f"{100 * share:.1f}" for share in shares),
            *(f"{wait:.0f}" for wait in waits),
            *(f"{ratio:.3f}" for ratio in ratios),
        )
        items = f"{cell.fleets} x {row.items}" if cell.fleets > 1 else str(row.items)
        cores = (f"{load.client_cores:.2f}", f"{load.redis_cores:.2f}")
        lag = f"{1000 * load.lag_p99:.0f}{' !' if row.disturbed else ''}"
        bench.add_row(*name, items, f"{row.episode:.2f}", f"{load.grants_per_second:.0f}", *cores, lag)
    console.print(fleets)
    console.print(
        "held, + reset: share of the VMs' time until the last grant; all: until the last item's end, so that the last "
        "long episodes count.\nmakespan / list schedule, / the same fleet with an ideal pool, / lower bound.",
        highlight=False,
    )
    console.print(bench)
    if any(row.disturbed for row in rows):
        console.print(
            "! The bench got too little of the processors: this row looks worse than the pool is.", highlight=False
        )
    if (worst := worst_ratio(rows)) is not None:
        met = "met" if worst <= TARGET else "not met"
        console.print(f"from N = 2M at most {TARGET} x the list schedule: {met} (worst {worst:.3f})", highlight=False)


def as_markdown(rows: Sequence[Row]) -> str:
    """Returns the table for people who choose N : M."""
    lines = [
        "| VMs (M) | N : M | VMs held | held or in reset | wait for a VM, p50 | p99 | makespan / list schedule |",
        "|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        row_figures = row.figures
        words = (
            *(f"{row.cell.vms:,}", f"{row.cell.ratio:g}"),
            *(
                f"{100 * share:.1f} %"
                for share in (row_figures.held_until_last_grant, row_figures.busy_until_last_grant)
            ),
            *(_wait(row_figures.delay_p50), _wait(row_figures.delay_p99), f"{row_figures.over_list_schedule:.2f}"),
        )
        lines.append(f"| {' | '.join(words)} |")
    return "\n".join(lines)


def _wait(delay: float) -> str:
    return f"{delay * EPISODE_SECONDS:,.0f} s ({delay:.2f})"


@contextmanager
def _own_valkey() -> Iterator[str]:
    stack = EmbeddedServices(Path())
    stack.logs = stack.folder / "logs"
    try:
        stack.start_valkey()
        yield settings().redis_address
    finally:
        stack.stop()


def _check_connections(cells: Sequence[Cell]) -> None:
    needed = max(cell.workers * cell.fleets for cell in cells) + CONNECTIONS_BESIDE_WORKERS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if needed > min(hard, 10_000):
        raise typer.BadParameter(
            f"so many workers need {needed} connections; this process and Redis allow {hard} and 10000"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))


def main(
    vms: Annotated[list[int] | None, typer.Option(min=1, help="M; repeat for several. Default: 10, 100, 1000.")] = None,
    ratio: Annotated[
        list[float] | None, typer.Option(min=0.1, help="N : M; repeat for several. Default: 1, 1.5, 2, 3, 5.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer cells, fewer items, a faster clock: under 40 s.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Of the episodes' lengths.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print every figure as JSON.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the README's table.")] = False,
) -> None:
    """Measures how busy N workers keep M VMs, and how long they wait for one."""
    effort = QUICK if quick else FULL
    cells = [Cell(m, n_per_m) for m in vms or effort.vms for n_per_m in ratio or effort.ratios]
    _check_connections(cells)
    with _own_valkey() as url:
        rows = measure(url, cells, effort, seed, Console(stderr=True))
    if as_json:
        worst = worst_ratio(rows)
        met = None if worst is None else worst <= TARGET
        print(json.dumps({"rows": [row.as_json() for row in rows], "met": met, "cores": os.cpu_count()}, indent=2))
    elif markdown:
        print(as_markdown(rows))
    else:
        show(rows, Console())


if __name__ == "__main__":
    typer.run(main)
