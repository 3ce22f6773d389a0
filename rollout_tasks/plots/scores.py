"""Plots of scores: by domain, and against what rollouts took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from rollout_tasks.plots.style import COLOURS, FAINT, drawing, label

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_ROWS = 40
_ROW_INCHES = 0.3


@dataclass(frozen=True, slots=True)
class Mark:
    """A mean with its interval."""

    value: float | None
    """None: there is nothing valid to take a mean of."""
    low: float | None = None
    high: float | None = None


def score_by_domain(rows: Sequence[tuple[str, int, Sequence[Mark]]], runs: Sequence[str]) -> Figure:
    """Draws the means of each domain.

    Args:
        rows: Name and number of items of each domain or group, and a mark for each run; of more than `MOST_ROWS`, the first
            ones and the last one are drawn.
        runs: The runs' names.
    """
    shown = list(rows) if len(rows) <= MOST_ROWS else [*rows[: MOST_ROWS - 1], rows[-1]]
    height = 1.1 + _ROW_INCHES * len(shown) * max(1.0, 0.55 * len(runs)) + (0.25 if len(runs) > 1 else 0.0)
    with drawing("Mean score by domain, with 95 % intervals", height) as (figure, axes):
        for place in range(1, len(shown), 2):
            axes.axhspan(place - 0.5, place + 0.5, color=FAINT, alpha=0.3, lw=0)
        apart = min(0.6, 0.34 * (len(runs) - 1))
        for number, name in enumerate(runs):
            offset = 0.0 if len(runs) == 1 else apart * (number / (len(runs) - 1) - 0.5)
            colour = COLOURS[number % len(COLOURS)]
            places = [place + offset for place, row in enumerate(shown) if row[2][number].value is not None]
            marks = [row[2][number] for row in shown if row[2][number].value is not None]
            values = [mark.value or 0.0 for mark in marks]
            below = [
                value - (mark.low if mark.low is not None else value) for value, mark in zip(values, marks, strict=True)
            ]
            above = [
                (mark.high if mark.high is not None else value) - value
                for value, mark in zip(values, marks, strict=True)
            ]
            bars = [[max(0.0, one) for one in below], [max(0.0, one) for one in above]]
            axes.errorbar(
                values,
                places,
                xerr=bars,
                fmt="o",
                ms=5,
                color=colour,
                elinewidth=1.4,
                capsize=2,
                label=label(name),
                clip_on=False,
            )
        axes.set_yticks(range(len(shown)), [f"{label(name)} ({items:,})" for name, items, _ in shown])
        axes.set_ylim(len(shown) - 0.5, -0.5)
        axes.set_xlim(0.0, 1.0)
        axes.set_xlabel("mean over items of their valid rollouts (number of items in brackets)")
        axes.grid(axis="y", visible=False)
        if len(runs) > 1:
            figure.legend(loc="outside lower left", ncols=3)
    return figure


def score_within(title: str, unit: str, runs: Mapping[str, Sequence[tuple[float, float]]]) -> Figure:
    """Draws what the mean score would be if each rollout that takes more than a limit scored 0, for every limit.

    Args:
        title: What the plot shows.
        unit: What the rollouts took, as the axis says it.
        runs: By name: what each valid rollout took, and its score.
    """
    with drawing(title) as (figure, axes):
        for number, (name, rollouts) in enumerate(runs.items()):
            ordered = sorted(rollouts)
            limits = [0.0, *(taken for taken, _ in ordered)]
            means = [0.0, *(total / len(ordered) for total in accumulate(score for _, score in ordered))]
            colour = COLOURS[number % len(COLOURS)]
            axes.plot(limits, means, drawstyle="steps-post", color=colour, lw=1.8, label=label(name))
            axes.plot(limits[-1:], means[-1:], "o", ms=5, color=colour, clip_on=False)
        axes.set_ylim(0.0, 1.0)
        axes.set_xlim(left=0.0)
        axes.set_xlabel(unit)
        axes.set_ylabel("mean score within the limit")
        if len(runs) > 1:
            figure.legend(loc="outside lower left", ncols=3)
    return figure
