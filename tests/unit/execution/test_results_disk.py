"""A run's folder on a disk that is full or fails: it is waited for, and nothing that was done is lost."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from rollout_tasks.errors import FailureClass
from rollout_tasks.execution import results_disk
from rollout_tasks.execution.results_disk import once_usable
from rollout_tasks.settings import Settings
from tests.unit.execution.conftest import ROLLOUT, RUN

FOLDER = Path("/results")
UNUSABLE = [
    *(errno.ENOSPC, errno.EDQUOT),
    *(errno.EROFS, errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN, errno.EHOSTDOWN),
]
FULL = OSError(errno.ENOSPC, "No space left on device")


class Disk:
    """Fails as told before it does its work."""

    def __init__(self, *problems: OSError) -> None:
        self.problems = list(problems)
        self.tries = 0

    def write(self) -> str:
        self.tries += 1
        if self.problems:
            raise self.problems.pop(0)
        return "written"


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long was waited; the clock goes on by that, and by nothing else."""
    pauses: list[float] = []
    monkeypatch.setattr(results_disk, "time", SimpleNamespace(monotonic=lambda: sum(pauses), sleep=pauses.append))
    return pauses


def test_what_can_be_written_is_written_at_once(pauses: list[float], caplog: pytest.LogCaptureFixture) -> None:
    assert once_usable(Disk().write, FOLDER, wanted=lambda: False) == "written"
    assert (pauses, caplog.messages) == ([], [])


@pytest.mark.parametrize("number", UNUSABLE)
def test_a_disk_is_waited_for_ever_more_patiently_and_that_is_said_twice(
    pauses: list[float], caplog: pytest.LogCaptureFixture, number: int
) -> None:
    disk = Disk(*(OSError(number, "no disk") for _ in range(8)))

    assert once_usable(disk.write, FOLDER, wanted=lambda: True) == "written"

    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert caplog.messages == [
        "/results: no disk; trying again for 3600 s at most",
        "/results: it can be used again",
    ]


def test_after_an_hour_it_is_given_up(pauses: list[float]) -> None:
    with pytest.raises(OSError, match="No space left"):
        once_usable(Disk(*[FULL] * 2000).write, FOLDER, wanted=lambda: True)
    assert 3600 <= sum(pauses) < 3606


def test_another_problem_is_not_waited_out(pauses: list[float]) -> None:
    disk = Disk(OSError(errno.EACCES, "no right"))

    with pytest.raises(OSError, match="no right"):
        once_usable(disk.write, FOLDER, wanted=lambda: True)
    assert (disk.tries, pauses) == (1, [])


def test_what_nobody_wants_any_more_is_not_waited_for(pauses: list[float]) -> None:
    wanted = iter([True, True, False])

    with pytest.raises(OSError, match="No space left"):
        once_usable(Disk(*[FULL] * 9).write, FOLDER, wanted=lambda: next(wanted))
    assert pauses == [0.1, 0.2]


def fail_first(
    monkeypatch: pytest.MonkeyPatch, name: str, matches: Callable[..., bool], times: int, number: int = errno.ENOSPC
) -> list[Any]:
    """Has a system call of this process fail, some times."""
    call, failed = getattr(os, name), []

    def full(*arguments: Any, **options: Any) -> Any:
        if matches(*arguments) and len(failed) < times:
            failed.append(arguments)
            raise OSError(number, os.strerror(number), str(arguments[0]))
        return call(*arguments, **options)

    monkeypatch.setattr(os, name, full)
    return failed


def to_attempt(path: Any, *_: Any) -> bool:
    return "attempt-1" in str(path)


def to_rollout(path: Any = ".", *_: Any) -> bool:
    return str(path).endswith("/item/0")


def nameless(_path: Any, flags: int = 0, *_: Any) -> bool:
    return flags & os.O_TMPFILE == os.O_TMPFILE


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EIO, errno.ESTALE])
@pytest.mark.parametrize(
    ("name", "matches"),
    [("listdir", to_rollout), ("mkdir", to_attempt), ("open", nameless), ("link", to_attempt)],
)
def test_a_rollout_outlasts_a_disk_that_is_full_or_fails(
    submit: Any, monkeypatch: pytest.MonkeyPatch, name: str, matches: Callable[..., bool], number: int
) -> None:
    bench = submit({})
    failed = fail_first(monkeypatch, name, matches, 2, number)

    assert bench.execute() == "completed"

    assert len(failed) == 2
    assert (bench.verdict().status, bench.verdict().attempt) == ("completed", 1)
    assert bench.folder.verdict(ROLLOUT) == bench.verdict()
    assert bench.events() == ["granted", "released"]


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE])
def test_a_finished_rollout_is_not_failed_where_its_result_cannot_be_read_for_a_while(
    submit: Any, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    bench = submit({})
    read_text, failed = Path.read_text, []

    def unreadable(path: Path, *arguments: Any, **options: Any) -> str:
        if path == bench.folder.rollout(ROLLOUT) / "result.json" and len(failed) < 2:
            failed.append(path)
            raise OSError(number, os.strerror(number), str(path))
        return read_text(path, *arguments, **options)

    monkeypatch.setattr(Path, "read_text", unreadable)

    assert bench.execute() == "completed"

    assert len(failed) == 2
    assert bench.folder.verdict(ROLLOUT) == bench.verdict()


def test_a_cancelled_run_does_not_wait_for_room(submit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = submit({})
    fail_first(monkeypatch, "mkdir", to_attempt, 10**6)
    monkeypatch.setattr(Settings, "beat_seconds", 0.1)
    tries: list[float] = []

    def cancel_then_wait(seconds: float) -> None:
        tries.append(seconds)
        if len(tries) == 2:
            bench.store.cancel(RUN)
        time.sleep(min(seconds, 0.2))

    monkeypatch.setattr(results_disk, "time", SimpleNamespace(monotonic=time.monotonic, sleep=cancel_then_wait))

    bench.execute()

    assert len(tries) < 60
    assert bench.verdict().failure_class in {FailureClass.INTERNAL, FailureClass.CANCELLED}


def test_an_episode_that_cannot_be_recorded_is_lost_to_the_infrastructure_and_can_be_resumed(
    submit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = submit({})
    fsync = os.fsync

    def full(descriptor: int) -> None:
        if os.fstat(descriptor).st_size and "trajectory.jsonl" in str(Path(f"/proc/self/fd/{descriptor}").readlink()):
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", full)

    assert bench.execute() == "failed"

    verdict = bench.verdict()
    assert verdict.failure_class is FailureClass.INTERNAL
    assert "No space left on device" in verdict.error
    assert verdict.worth_repeating
    assert bench.events() == ["granted", "released"]


def test_a_record_that_cannot_be_begun_is_closed(submit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = submit({})

    def of_record(descriptor: int, *_: Any) -> bool:
        return Path(f"/proc/self/fd/{descriptor}").readlink().name == "trajectory.jsonl"

    fail_first(monkeypatch, "write", of_record, 10**6)

    assert bench.execute() == "failed"

    assert "No space left on device" in bench.verdict().error
    (record,) = bench.folder.path.rglob("trajectory.jsonl")
    assert str(record) not in [file.path for file in psutil.Process().open_files()]
