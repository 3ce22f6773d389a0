"""The process from which sessions are forked, when it is stopped."""

from __future__ import annotations

import time
from collections.abc import Iterator

import psutil
import pytest

from rollout_tasks.errors import UserError
from rollout_tasks.service import session_spawner
from rollout_tasks.service.session_spawner import SessionSpawner


@pytest.fixture(name="spawner")
def _spawner(monkeypatch: pytest.MonkeyPatch) -> Iterator[SessionSpawner]:
    monkeypatch.setattr(session_spawner, "_FORK_SECONDS", 0.5)
    monkeypatch.setattr(session_spawner, "_END_SECONDS", 0.5)
    spawner = SessionSpawner(["simulated"])
    yield spawner
    spawner.close()


def test_one_that_is_stopped_is_replaced(spawner: SessionSpawner) -> None:
    spawner.spawn().close(0)
    (process,) = (child for child in psutil.Process().children() if "session_spawner" in " ".join(child.cmdline()))
    process.suspend()
    began = time.monotonic()
    with pytest.raises(UserError, match="a session's process cannot be started: timed out"):
        spawner.spawn()
    assert time.monotonic() - began < 10
    assert not process.is_running()
    spawner.spawn().close(0)
