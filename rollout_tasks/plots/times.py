"""Plots of time: VMs in use, waiting for them, and the parts of turns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from benchmark.percentiles import spread
from rollout_tasks.plots.style import COLOURS, drawing, whole_numbers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_UNITS = (
    (3 * 86_400.0, 86_400.0, "days"),
    (3 * 3_600.0, 3_600.0, "hours"),
    (180.0, 60.0, "minutes"),
    (0.0, 1.0, "seconds"),
)
"""From how many seconds on a time axis has which unit, and its seconds."""
MOST_TURNS = 100
_SPANS = 120
"""Of the time axis of VMs in use: a line that jumps at each of thousands of changes would be a wall."""


def vms_in_use(moments: Sequence[float], in_use: Sequence[int], vms: int, share: float) -> Figure:
    """Draws how many VMs were in use over time, on average over short spans.

    Args:
        moments: Seconds since the first, in order, and of some length.
        in_use: How many were in use from then on.
        vms: How many there were.
        share: Of their time, how much they were in use.
    """
    seconds, unit = _unit(moments[-1])
    with drawing(f"VMs in use: {share:.0%} of the time of {vms:,} VMs") as (figure, axes):
        edges, means = _means(moments, in_use)
        axes.stairs(means, [edge / seconds for edge in edges], fill=True, color=COLOURS[0], alpha=0.75)
        axes.axhline(vms, color=COLOURS[1], lw=1.4, ls="--", label=f"VMs that the run used ({vms:,})")
        axes.set_ylim(0.0, vms * 1.08)
        whole_numbers(axes.yaxis)
        axes.set_xlim(0.0, edges[-1] / seconds)
        axes.set_xlabel(f"{unit} since the first VM was granted")
        axes.set_ylabel(f"VMs in use, mean of {edges[1] / seconds:.2g} {unit}")
        figure.legend(loc="outside lower left")
    return figure


def _means(moments: Sequence[float], in_use: Sequence[int]) -> tuple[list[float], list[float]]:
    """Returns the edges of equal spans, in seconds, and how many were in use in each, on average."""
    span = moments[-1] / _SPANS
    busy = [0.0] * _SPANS
    for begin, end, count in zip(moments, moments[1:], in_use, strict=False):
        for number in range(int(begin / span), min(int(end / span), _SPANS - 1) + 1):
            busy[number] += count * max(0.0, min(end, (number + 1) * span) - max(begin, number * span))
    return [span * number for number in range(_SPANS + 1)], [one / span for one in busy]


def vm_waits(waits: Sequence[tuple[float, float]]) -> Figure:
    """Draws how long rollouts waited for their VM.

    Args:
        waits: When each got it, in seconds since the epoch, and how long it had waited, in seconds.
    """
    first = min(moment for moment, _ in waits)
    seconds, unit = _unit(max(moment for moment, _ in waits) - first)
    found = spread([waited for _, waited in waits])
    said = "" if found is None else f": half at most {found.p50:.3g} s, nine of ten at most {found.p90:.3g} s"
    with drawing(f"Waiting for a VM{said}") as (figure, axes):
        axes.plot(
            [(moment - first) / seconds for moment, _ in waits],
            [waited for _, waited in waits],
            "o",
            ms=3.5,
            alpha=0.6,
            color=COLOURS[0],
            mew=0,
        )
        axes.set_ylim(bottom=0.0)
        axes.set_xlim(left=0.0)
        axes.set_xlabel(f"{unit} since the first VM was granted")
        axes.set_ylabel("seconds waited")
    return figure


def turn_latency(parts: Mapping[str, Sequence[Sequence[float]]]) -> Figure:
    """Draws the median of the parts of turns, and up to which value nine of ten are.

    Args:
        parts: By name: for each turn, from the first on, its durations in seconds. After `MOST_TURNS`, none is drawn.
    """
    with drawing("Latency by turn: median, and nine of ten (shaded)") as (figure, axes):
        for number, (name, turns) in enumerate(parts.items()):
            found = [
                (turn, one)
                for turn, seconds in enumerate(turns[:MOST_TURNS], 1)
                if (one := spread(seconds)) is not None
            ]
            if not found:
                continue
            places = [turn for turn, _ in found]
            medians = [one.p50 for _, one in found]
            axes.plot(places, medians, "o-", ms=3, lw=1.6, color=COLOURS[number], label=name)
            axes.fill_between(places, medians, [one.p90 for _, one in found], color=COLOURS[number], alpha=0.18, lw=0)
        axes.set_ylim(bottom=0.0)
        whole_numbers(axes.xaxis)
        axes.set_xlabel("turn")
        axes.set_ylabel("seconds")
        figure.legend(loc="outside lower left", ncols=3)
    return figure


def _unit(seconds: float) -> tuple[float, str]:
    return next((length, name) for least, length, name in _UNITS if seconds >= least)
