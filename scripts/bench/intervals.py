"""How often the interval of `rollouts compare` has the true difference of two runs: simulated runs whose difference is known.

Items are drawn anew for each pair of runs, each with a chance of its own to be solved, and the second run's chance is higher in
the logit. So the true difference is that of all items there could be, of which a benchmark has some. At a level of 95 %, 95 of 100
intervals should have it. Also said: how often the test finds a difference where there is none, which should be 5 of 100 at most.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import numpy.typing as npt
import typer
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from benchmark.comparison import compare_items
from benchmark.scored_items import ScoredItem

Numbers = npt.NDArray[np.float64]
MANY = 2_000_000
"""Items from which the true difference is computed."""


@dataclass(frozen=True, slots=True)
class Design:
    """What two runs are like."""

    items: int
    rollouts: int
    shift: float
    """How much better the second run is, in the logit of the chance to solve an item."""
    lost: float = 0.0
    """Share of rollouts that the infrastructure loses."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """How the intervals of a design did."""

    design: Design
    difference: float
    """The true one."""
    simulations: int
    covered: float
    """Share of the intervals that have it."""
    width: float
    """Of the intervals, on average."""
    found: float
    """Share of the tests that say that the runs differ, at 5 %."""


DESIGNS = (
    Design(30, 1, 0.8),
    Design(68, 1, 0.8),
    Design(68, 1, 0.0),
    Design(369, 1, 0.4),
    Design(68, 8, 0.4),
    Design(68, 8, 0.0),
    Design(68, 4, 0.8, lost=0.1),
)


def chances(items: int, shift: float, rng: np.random.Generator) -> tuple[Numbers, Numbers]:
    """Returns the chances of two runs to solve each of some items that are drawn: from hopeless to easy."""
    logits = rng.normal(-0.5, 2.0, items)
    return 1.0 / (1.0 + np.exp(-logits)), 1.0 / (1.0 + np.exp(-logits - shift))


def true_difference(shift: float) -> float:
    """Returns the difference of the means over all items that there could be."""
    first, second = chances(MANY, shift, np.random.default_rng(99))
    return float((second - first).mean())


def runs(design: Design, rng: np.random.Generator) -> Iterator[dict[str, ScoredItem]]:
    """Yields the two runs of one simulation."""
    for solved in chances(design.items, design.shift, rng):
        drawn = rng.random((design.items, design.rollouts)) < solved[:, None]
        kept = rng.random((design.items, design.rollouts)) >= design.lost
        yield {
            str(item): ScoredItem(
                str(item),
                None,
                design.rollouts,
                {index: float(drawn[item, index]) for index in range(design.rollouts) if kept[item, index]},
                0.0,
                None,
                b"",
            )
            for item in range(design.items)
        }


def coverage(design: Design, simulations: int, seed: int) -> Coverage:
    """Simulates pairs of runs, and compares each as the command does."""
    rng = np.random.default_rng(seed)
    true = true_difference(design.shift)
    covered, found = 0, 0
    widths = []
    for _ in range(simulations):
        first, second = runs(design, rng)
        compared = compare_items(first, second, list(first), 0.05)
        found += compared.p_value < 0.05
        if compared.interval is not None:
            covered += compared.interval.low <= true <= compared.interval.high
            widths.append(compared.interval.high - compared.interval.low)
    return Coverage(design, true, simulations, covered / simulations, float(np.mean(widths)), found / simulations)


def main(
    simulations: Annotated[int, typer.Option(help="Pairs of runs of each design.")] = 1000,
    seed: int = 0,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Simulates pairs of runs, and says how often their intervals have the true difference."""
    rows = [coverage(design, simulations, seed) for design in DESIGNS]
    if as_json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
        return
    table = Table(title=f"{simulations:,} pairs of runs of each design")
    for heading in ("items", "rollouts each", "lost", "true difference", "covered", "width", "p < 0.05"):
        table.add_column(heading, justify="right")
    for row in rows:
        design = row.design
        table.add_row(
            str(design.items),
            str(design.rollouts),
            f"{design.lost:.0%}",
            f"{row.difference:.4f}",
            f"{row.covered:.1%}",
            f"{row.width:.3f}",
            f"{row.found:.1%}",
        )
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
