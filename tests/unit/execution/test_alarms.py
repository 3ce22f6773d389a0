"""Alarms at the edges of what they limit."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from rollout_tasks import interruption
from rollout_tasks.errors import FailureClass
from rollout_tasks.interruption import time_limit
from tests.unit.execution.test_interruption import LONG, Clock, scope_of


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(interruption, "time", clock)
    return clock


@pytest.fixture
def no_alarm() -> Iterator[None]:
    """No alarm of anybody's is set, as in a worker's child between two rollouts."""
    left, again = signal.setitimer(signal.ITIMER_REAL, 0)
    yield
    signal.setitimer(signal.ITIMER_REAL, left, again)


def test_an_alarm_that_comes_too_early_changes_nothing(clock: Clock) -> None:
    with scope_of(interruption.Interruption(), LONG):
        clock.now += LONG - 0.02
        signal.raise_signal(signal.SIGALRM)
        clock.now += 1.0


def test_a_parts_alarm_that_comes_too_early_changes_nothing(clock: Clock) -> None:
    with scope_of(interruption.Interruption(), LONG), time_limit(5.0, FailureClass.ENV_SETUP, "setting up took long"):
        clock.now += 4.9
        signal.raise_signal(signal.SIGALRM)


@pytest.mark.usefixtures("no_alarm")
def test_a_part_that_nothing_surrounds_leaves_no_alarm_behind() -> None:
    with time_limit(LONG, FailureClass.ENV_SETUP, "too slow"):
        assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= LONG

    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_an_alarm_that_rings_as_a_part_ends_breaks_into_nothing(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    set_timer, rung = signal.setitimer, []

    def ringing(which: int, seconds: float, again: float = 0.0) -> Any:
        if seconds == 0 and not rung:
            rung.append(clock.now)
            signal.raise_signal(signal.SIGALRM)
        return set_timer(which, seconds, again)

    limited = time_limit(5.0, FailureClass.ENV_SETUP, "setting up took long")
    with scope_of(interruption.Interruption(), LONG), monkeypatch.context() as patched, limited:
        patched.setattr(signal, "setitimer", ringing)
        clock.now += 5.0

    assert rung == [105.0]
