"""Where a run's rollouts spent their time: by stage from their verdicts, by turn from their records. Computes no percentiles.

A turn is a reply of the model and the calls that it asked for. Its waiting is what neither the model nor the environment took: the
agent's own work, and pauses that it makes.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field

from rollout_tasks.errors import UserError
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.runs.verdict import Verdict, rollout_ids
from rollout_tasks.runs.verdict_files import number_in, settled_verdict
from rollout_tasks.trajectories.reader import TrajectoryError
from rollout_tasks.trajectories.timeline import events

VM, REST = "vm", "rest"
"""Stages of a rollout besides those that its verdict names: waiting for a VM, and what no stage has."""
MODEL, ENVIRONMENT, WAITING = "model", "environment", "waiting"
"""The parts of a turn."""
_LONGEST_SECONDS, _LATEST = 1e9, 1e11
"""Of a stage; and of moments, in seconds since the epoch."""
_MOST_STAGES = 100
_BROKEN = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


def _seconds() -> array[float]:
    return array("d")


@dataclass(slots=True)
class Turn:
    """The parts of one turn, over all rollouts that came so far, in seconds."""

    model: array[float] = field(default_factory=_seconds)
    environment: array[float] = field(default_factory=_seconds)
    waiting: array[float] = field(default_factory=_seconds)
    """Empty in records of earlier versions, which do not say when their events were."""


@dataclass(slots=True)
class Latency:
    """Where a run's time went."""

    rollouts: int = 0
    """Those that have ended and were not cancelled before they began."""
    totals: array[float] = field(default_factory=_seconds)
    """Seconds of each of those rollouts' counted attempts."""
    stages: dict[str, array[float]] = field(default_factory=dict)
    """Seconds by stage, of the rollouts that had the stage."""
    turns: list[Turn] = field(default_factory=list)
    """The first is turn 1."""
    vm_waits: list[tuple[float, float]] = field(default_factory=list)
    """When a VM was granted, in seconds since the epoch, and the seconds waited for it."""
    unrecorded: int = 0
    """Rollouts without a record of their turns."""
    unreadable: int = 0
    """Rollouts whose result or record cannot be read."""
    first_problem: str = ""


def latency_of(folder: RunFolder) -> Latency:
    """Reads how long each part of each rollout took; rollouts without a verdict, as in a run under way, are passed over.

    Args:
        folder: The run.

    Raises:
        UserError: The run's description cannot be read.
    """
    found = Latency()
    for verdict in _verdicts(folder, found):
        try:
            stages, total = _stages(verdict)
            turns = _turns(folder, verdict)
        except FileNotFoundError:
            turns = None
        except (TrajectoryError, UserError) as error:
            _note_problem(found, str(error))
            turns = []
        except _BROKEN as error:
            _note_problem(found, f"rollout {verdict.rollout_id}: its result is broken: {type(error).__name__}")
            continue
        found.rollouts += 1
        found.totals.append(total)
        for name, seconds in stages.items():
            found.stages.setdefault(name, _seconds()).append(seconds)
        if verdict.lease is not None:
            found.vm_waits.append((verdict.lease.allocated, verdict.lease.waited))
        found.unrecorded += turns is None
        _add_turns(found, turns or [])
    return found


def _verdicts(folder: RunFolder, found: Latency) -> Iterator[Verdict]:
    """Yields the verdicts of rollouts that were begun."""
    config = folder.description.config()
    for rollout_id in rollout_ids(folder.description.each_item(), config.rollouts_per_item):
        try:
            verdict = settled_verdict(folder, rollout_id)
        except UserError as error:
            _note_problem(found, str(error))
            continue
        if verdict is not None:
            yield verdict


def _note_problem(found: Latency, problem: str) -> None:
    found.unreadable += 1
    found.first_problem = found.first_problem or problem


def _stages(verdict: Verdict) -> tuple[dict[str, float], float]:
    """Returns a verdict's seconds by stage, and in all; a value that is no duration raises a ValueError."""
    stages: dict[str, float] = {}
    if verdict.lease is not None:
        stages[VM] = number_in(verdict.lease.waited, _LONGEST_SECONDS)
        number_in(verdict.lease.allocated, _LATEST)
    if len(verdict.stages) > _MOST_STAGES:
        raise ValueError("too many stages")
    stages |= {str(name): number_in(seconds, _LONGEST_SECONDS) for name, seconds in verdict.stages.items()}
    total = number_in(verdict.finished, _LATEST) - number_in(verdict.started, _LATEST)
    total = number_in(max(0.0, total), _LONGEST_SECONDS)
    stages[REST] = max(0.0, total - math.fsum(stages.values()))
    return stages, total


def _turns(folder: RunFolder, verdict: Verdict) -> list[tuple[int, str, float]]:
    """Returns number, part and seconds of each part of a rollout's turns."""
    parts: dict[tuple[int, str], float] = {}
    before: float | None = None
    for event in events(folder.path, folder.attempt(verdict.rollout_id, verdict.attempt)):
        if event.turn is not None and event.kind in {"reply", "step"}:
            part = MODEL if event.kind == "reply" else ENVIRONMENT
            parts[event.turn, part] = parts.get((event.turn, part), 0.0) + event.seconds
            if event.at is not None and before is not None:
                waited = max(0.0, event.at - event.seconds - before)
                parts[event.turn, WAITING] = parts.get((event.turn, WAITING), 0.0) + waited
        before = before if event.at is None else event.at
    return [(turn, part, seconds) for (turn, part), seconds in parts.items()]


def _add_turns(found: Latency, parts: list[tuple[int, str, float]]) -> None:
    for number, part, seconds in parts:
        while len(found.turns) < number:
            found.turns.append(Turn())
        turn = found.turns[number - 1]
        {MODEL: turn.model, ENVIRONMENT: turn.environment, WAITING: turn.waiting}[part].append(seconds)
