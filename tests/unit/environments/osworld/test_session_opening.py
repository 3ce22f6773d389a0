"""Where desktop-env is imported for sessions, which the log says."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from rollout_tasks.environments.osworld import session_opening
from rollout_tasks.settings import settings


@pytest.fixture(autouse=True)
def fresh_settings() -> Iterator[None]:
    settings.cache_clear()
    yield
    settings.cache_clear()


@pytest.mark.parametrize(
    ("trusted", "says"),
    [
        ("", "setup and evaluation of desktop tasks run in cells"),
        ("1", "run in the worker's own process: you trust the"),
    ],
)
def test_the_log_says_where_a_tasks_code_runs(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, trusted: str, says: str
) -> None:
    monkeypatch.setenv("ROLLOUT_TRUST_TASKS", trusted)
    caplog.set_level(logging.INFO)
    started: list[str] = []
    monkeypatch.setattr(session_opening, "shared_template", started.append)
    monkeypatch.setattr(session_opening.importlib, "import_module", started.append)

    session_opening.preload()

    assert says in caplog.text
    assert len(started) == 1
