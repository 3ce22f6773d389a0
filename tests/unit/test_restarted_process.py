"""A process that is kept running: restarts, starts that fail, and an end in the middle of a start."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable

import pytest

from rollout_tasks import restarted_process
from rollout_tasks.restarted_process import RestartedProcess


def until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restarted_process, "RESTART_SECONDS", (0.05, 0.2))


def lasting() -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sleep", "600"])


def test_it_is_started_again_until_that_is_no_longer_wanted(caplog: pytest.LogCaptureFixture) -> None:
    kept = RestartedProcess("the sleeper", lasting)
    first = kept.process
    first.kill()
    until(lambda: kept.process is not first)
    assert kept.process.poll() is None

    last = kept.stop_restarting()
    last.kill()
    last.wait()
    time.sleep(0.2)
    assert kept.process is last
    assert caplog.messages == ["the sleeper ended by itself (exit code -9); starting it again in 0 s"]


def test_a_start_that_fails_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    outcomes: list[Callable[[], subprocess.Popen[bytes]]] = [
        lambda: subprocess.Popen(["true"]),
        lambda: 1 // 0,
        lasting,
    ]  # type: ignore[list-item,return-value]

    kept = RestartedProcess("the sleeper", lambda: outcomes.pop(0)(), (ZeroDivisionError,))
    until(lambda: not outcomes and kept.process.poll() is None)

    kept.stop_restarting().kill()
    kept.process.wait()
    assert "the sleeper cannot be started: integer division or modulo by zero" in caplog.messages


def test_a_first_start_that_fails_is_raised() -> None:
    def fails() -> subprocess.Popen[bytes]:
        raise OSError("no such program")

    with pytest.raises(OSError, match="no such program"):
        RestartedProcess("it", fails)


def test_what_is_being_started_when_it_is_to_end_is_what_has_to_be_ended() -> None:
    """Otherwise it would be left running: nobody else knows it."""
    starting, may_start = threading.Event(), threading.Event()
    started: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        if started:
            starting.set()
            assert may_start.wait(20)
        started.append(subprocess.Popen(["true"]) if not started else lasting())
        return started[-1]

    kept = RestartedProcess("it", start)
    assert starting.wait(20)
    threading.Timer(0.2, may_start.set).start()

    left = kept.stop_restarting()

    assert left is started[1]
    left.kill()
    left.wait()
    time.sleep(0.2)
    assert len(started) == 2


def test_a_start_that_takes_long_can_see_that_it_is_no_longer_wanted(caplog: pytest.LogCaptureFixture) -> None:
    """It is waited for, and its failure is no news."""
    starting = threading.Event()

    def start() -> subprocess.Popen[bytes]:
        if not first:
            first.append(subprocess.Popen(["true"]))
            return first[0]
        starting.set()
        until(lambda: kept.stopping)
        raise OSError("no longer wanted")

    first: list[subprocess.Popen[bytes]] = []
    kept = RestartedProcess("it", start)
    assert starting.wait(20)
    assert not kept.stopping

    assert kept.stop_restarting() is first[0]

    time.sleep(0.2)
    assert not [message for message in caplog.messages if "cannot be started" in message]


def test_what_nobody_could_restart_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many threads run as may."""
    started: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        started.append(lasting())
        return started[-1]

    def refused(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", refused)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            RestartedProcess("it", start)

    assert started[0].poll() is not None
