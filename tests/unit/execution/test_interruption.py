from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from rollout_tasks import interruption
from rollout_tasks.errors import EpisodeInterrupted, FailureClass
from rollout_tasks.interruption import Interruption, time_limit
from tests.conftest import REPOSITORY

LONG = 30.0


def scope_of(interruption: Interruption, seconds: float):  # type: ignore[no-untyped-def]
    return interruption.scope(seconds, FailureClass.TIMEOUT, "too slow", grace=1)


def test_the_limit_breaks_into_a_call_without_a_timeout() -> None:
    with pytest.raises(EpisodeInterrupted, match="too slow") as raised, scope_of(Interruption(), 0.05):
        threading.Event().wait(LONG)

    assert raised.value.failure_class is FailureClass.TIMEOUT


def test_a_request_from_another_thread_breaks_in_with_its_own_reason() -> None:
    interruption = Interruption()
    threading.Timer(0.05, interruption.request, (FailureClass.CANCELLED, "the run was cancelled")).start()

    with pytest.raises(EpisodeInterrupted, match="cancelled") as raised, scope_of(interruption, LONG):
        time.sleep(LONG)

    assert raised.value.failure_class is FailureClass.CANCELLED


def test_a_request_that_came_just_before_a_wait_rings_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler that runs before the wait begins does not end it, whatever it does."""
    monkeypatch.setattr("rollout_tasks.interruption._RING_AGAIN_SECONDS", 0.05)
    interruption = Interruption()
    with pytest.raises(EpisodeInterrupted, match="gone"), scope_of(interruption, LONG):
        with contextlib.suppress(EpisodeInterrupted):
            interruption.request(FailureClass.LEASE_LOST, "gone")
            time.sleep(LONG)
        threading.Event().wait(3)
        raise AssertionError("it did not ring again")


def test_a_request_made_before_the_scope_is_not_forgotten() -> None:
    interruption = Interruption()
    interruption.request(FailureClass.LEASE_LOST, "gone")

    with pytest.raises(EpisodeInterrupted, match="gone"), scope_of(interruption, LONG):
        raise AssertionError("the code in the scope ran")


def test_code_that_catches_every_exception_cannot_swallow_it() -> None:
    with pytest.raises(EpisodeInterrupted), scope_of(Interruption(), 0.05):
        try:
            time.sleep(LONG)
        except Exception as error:
            raise AssertionError("swallowed") from error


def test_code_that_swallows_it_all_the_same_is_interrupted_again() -> None:
    rung = 0
    with pytest.raises(EpisodeInterrupted), scope_of(Interruption(), 0.05):
        for _ in range(2):
            try:
                time.sleep(LONG)
            except BaseException:
                rung += 1
                if rung == 2:
                    raise
    assert rung == 2


def test_what_ends_in_time_is_left_alone_and_nothing_stays_armed() -> None:
    before = signal.getsignal(signal.SIGALRM)
    interruption = Interruption()

    with scope_of(interruption, 1):
        assert interruption.hard_deadline is not None
    interruption.request(FailureClass.CANCELLED, "late")
    time.sleep(1.1)

    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert interruption.hard_deadline is None
    assert interruption.requested


def test_a_part_may_have_a_shorter_limit_of_its_own() -> None:
    with scope_of(Interruption(), LONG):
        with (
            pytest.raises(EpisodeInterrupted, match="setting up") as raised,
            time_limit(0.05, FailureClass.ENV_SETUP, "setting up took long"),
        ):
            time.sleep(LONG)
        assert raised.value.failure_class is FailureClass.ENV_SETUP
        assert signal.getitimer(signal.ITIMER_REAL)[0] > LONG / 2


def test_the_scope_still_rings_inside_a_part_with_a_longer_limit() -> None:
    with (
        pytest.raises(EpisodeInterrupted, match="too slow"),
        scope_of(Interruption(), 0.05),
        time_limit(LONG, FailureClass.ENV_SETUP, "setting up took long"),
    ):
        time.sleep(LONG)


def test_a_request_breaks_into_a_limited_part() -> None:
    interruption = Interruption()
    threading.Timer(0.05, interruption.request, (FailureClass.LEASE_LOST, "gone")).start()

    with (
        pytest.raises(EpisodeInterrupted, match="gone"),
        scope_of(interruption, LONG),
        time_limit(LONG, FailureClass.ENV_SETUP, "setting up took long"),
    ):
        time.sleep(LONG)


def test_an_interruption_that_a_limited_part_swallowed_comes_at_its_end() -> None:
    handler = signal.getsignal(signal.SIGALRM)
    with (
        pytest.raises(EpisodeInterrupted, match="setting up"),
        time_limit(0.05, FailureClass.ENV_SETUP, "setting up took long"),
        contextlib.suppress(BaseException),
    ):
        time.sleep(LONG)
    assert signal.getsignal(signal.SIGALRM) is handler


@pytest.mark.parametrize("limit", ["scope", "time_limit"])
def test_a_thread_cannot_be_limited_and_is_told_so(limit: str) -> None:
    raised: list[BaseException] = []

    def run() -> None:
        limited = (
            scope_of(Interruption(), LONG) if limit == "scope" else time_limit(LONG, FailureClass.ENV_SETUP, "too slow")
        )
        try:
            with limited:
                pass
        except BaseException as error:  # noqa: BLE001
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(LONG)

    assert [type(error) for error in raised] == [RuntimeError]
    assert "main thread" in str(raised[0])


def test_the_hard_deadline_lies_a_grace_behind_the_limit_and_goes_with_the_scope() -> None:
    interruption = Interruption()

    assert interruption.hard_deadline is None
    began = time.monotonic()
    with interruption.scope(LONG, FailureClass.TIMEOUT, "too slow", grace=7):
        assert interruption.hard_deadline is not None
        assert LONG + 7 <= interruption.hard_deadline - began < LONG + 27
    assert interruption.hard_deadline is None
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_the_first_reason_stays_and_later_ones_still_ring() -> None:
    interruption = Interruption()
    assert not interruption.requested
    interruption.raise_if_requested()
    interruption.request(FailureClass.LEASE_LOST, "first")
    interruption.request(FailureClass.CANCELLED, "second")

    with pytest.raises(EpisodeInterrupted, match="first") as raised:
        interruption.raise_if_requested()

    assert interruption.requested
    assert raised.value.failure_class is FailureClass.LEASE_LOST


def test_an_inner_limit_gives_the_outer_one_its_time_back() -> None:
    with scope_of(Interruption(), LONG):
        before = signal.getsignal(signal.SIGALRM)
        with time_limit(LONG * 2, FailureClass.ENV_SETUP, "too slow"):
            assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= LONG
        left, again = signal.getitimer(signal.ITIMER_REAL)
        assert 0 < left <= LONG
        assert again == 2.0
        assert signal.getsignal(signal.SIGALRM) is before
        with time_limit(LONG / 2, FailureClass.ENV_SETUP, "too slow"):
            assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= LONG / 2
        assert LONG / 2 < signal.getitimer(signal.ITIMER_REAL)[0] <= LONG


@pytest.mark.parametrize("limit", ["scope", "time_limit"])
def test_what_swallows_the_interruption_and_ends_is_late_all_the_same(limit: str) -> None:
    with pytest.raises(EpisodeInterrupted, match="it took too long"):
        if limit == "scope":
            limited = Interruption().scope(0.05, FailureClass.TIMEOUT, "it took too long", grace=5)
        else:
            limited = time_limit(0.05, FailureClass.TIMEOUT, "it took too long")
        with limited, contextlib.suppress(BaseException):
            time.sleep(5)


@pytest.mark.parametrize("limit", ["scope", "time_limit"])
def test_the_alarm_is_off_before_its_handler_goes(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    """One that rang in between would break into the cleaning up, or end the process."""
    left: list[float] = []
    set_handler = signal.signal

    def watched(number: int, handler: Any) -> Any:
        left.append(signal.getitimer(signal.ITIMER_REAL)[0])
        return set_handler(number, handler)

    monkeypatch.setattr(signal, "signal", watched)
    limited = (
        scope_of(Interruption(), LONG) if limit == "scope" else time_limit(LONG, FailureClass.ENV_SETUP, "too slow")
    )
    with limited:
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 0

    assert len(left) == 2
    assert left[-1] == 0.0


class Clock:
    """A clock that stands still unless it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(interruption, "time", clock)
    return clock


@pytest.mark.parametrize("early", [0.005, 0.0, -5.0])
def test_an_alarm_counts_from_just_before_its_time(clock: Clock, early: float) -> None:
    with pytest.raises(EpisodeInterrupted, match="too slow"), scope_of(Interruption(), LONG):
        clock.now += LONG - 0.02
        signal.raise_signal(signal.SIGALRM)  # of an attempt that has ended
        clock.now = 100.0 + LONG - early
        signal.raise_signal(signal.SIGALRM)
        raise AssertionError("it went on")


def test_a_parts_own_time_is_over_when_it_has_passed(clock: Clock) -> None:
    with (
        pytest.raises(EpisodeInterrupted, match="setting up took long"),
        scope_of(Interruption(), LONG),
        time_limit(5.0, FailureClass.ENV_SETUP, "setting up took long"),
    ):
        clock.now += 4.9
        signal.raise_signal(signal.SIGALRM)
        clock.now = 105.0
        signal.raise_signal(signal.SIGALRM)
        raise AssertionError("it went on")


@pytest.mark.parametrize(("took", "left"), [(10.0, LONG - 10), (LONG - 0.5, 0.5), (LONG + 5, 0.001)])
def test_the_time_that_a_part_took_is_gone(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, took: float, left: float
) -> None:
    asked: list[tuple[float, ...]] = []
    set_timer = signal.setitimer

    def watched(which: int, *seconds: float) -> Any:
        asked.append(seconds)
        return set_timer(which, *(LONG if one else 0 for one in seconds))  # and none that rings meanwhile

    with scope_of(Interruption(), LONG), monkeypatch.context() as patched:
        patched.setattr(signal, "setitimer", watched)
        with time_limit(2 * LONG, FailureClass.ENV_SETUP, "too slow"):
            clock.now += took

    assert [asked[0][1], asked[1], asked[2][1]] == [2.0, (0,), 2.0]
    assert max(0.001, left - 5) <= asked[2][0] <= left


LATE_REQUEST = """
import signal
from rollout_tasks.errors import FailureClass
from rollout_tasks.interruption import Interruption
with Interruption().scope(30, FailureClass.TIMEOUT, "too slow", grace=1):
    pass
signal.raise_signal(signal.SIGALRM)
with Interruption().scope(30, FailureClass.TIMEOUT, "too slow", grace=1):
    signal.raise_signal(signal.SIGALRM)
"""


def test_a_request_that_comes_as_the_scope_ends_breaks_into_nothing() -> None:
    """`request` looks whether the scope is there, and rings then: the scope may have ended in between."""
    done = subprocess.run(
        [sys.executable, "-c", LATE_REQUEST], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")
