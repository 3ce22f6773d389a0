"""An attempt's recording: whole or not there, also after kill -9."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from rollout_tasks.environments.osworld.attempt_files import WorkerFiles
from rollout_tasks.runs.folder import RunFolder


def test_it_appears_when_it_is_whole(tmp_path: Path) -> None:
    with WorkerFiles(tmp_path).recording() as take:
        take(b"one, ")
        take(b"two")
        assert not (tmp_path / "recording.mp4").exists()

    assert [path.name for path in tmp_path.iterdir()] == ["recording.mp4"]
    assert (tmp_path / "recording.mp4").read_bytes() == b"one, two"


def test_one_that_breaks_off_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ConnectionResetError), WorkerFiles(tmp_path).recording() as take:
        take(b"one")
        raise ConnectionResetError

    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_worker_took_of_it_is_removed_with_its_temporary_files(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    attempt = folder.attempt("item#0", folder.begin_attempt("item#0", 1))
    child = os.fork()
    if child == 0:
        try:
            with WorkerFiles(attempt).recording() as take:
                take(b"one")
                os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    os.waitpid(child, 0)
    assert len(list(attempt.iterdir())) == 1

    folder.remove_temporary_files("item#0")

    assert list(attempt.iterdir()) == []
