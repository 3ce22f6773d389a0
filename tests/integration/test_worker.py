"""What is added to a Celery worker, seen from outside."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from celery.events import EventReceiver

from tests.conftest import REPOSITORY

TASKS = 40


@pytest.fixture
def worker(redis_url: str, tmp_path: Path) -> Iterator[Path]:
    """A worker with one child; its log."""
    log = tmp_path / "worker.log"
    command = [sys.executable, "-m", "celery", "-A", "rollout_tasks", "worker", "--concurrency=1", "--loglevel=INFO"]
    with log.open("wb") as file:
        process = subprocess.Popen(
            [*command, "--without-gossip", "--without-mingle"],
            env={**os.environ, "ROLLOUT_REDIS_URL": redis_url},
            cwd=REPOSITORY,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    deadline = time.monotonic() + 60
    while " ready." not in log.read_text():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)
    yield log
    process.terminate()
    process.wait(30)


class Receiver(EventReceiver):
    """Has tasks run as soon as it certainly hears events, and listens until they all have, or for a minute."""

    def __init__(self, app: Celery) -> None:
        self.received: list[str] = []
        self.messages = 0
        self.sent = False
        self.deadline = time.monotonic() + 60
        super().__init__(app.connection(), handlers={"*": self.keep}, app=app)

    def keep(self, event: dict[str, Any]) -> None:
        if not self.sent:  # a worker's heartbeat: from here on nothing is missed
            self.sent = True
            self.messages = 0
            for _ in range(TASKS):
                self.app.send_task("finalize_run", ("no-such-run",), queue="finalize")
        self.received.append(event["type"])
        done = self.received.count("task-succeeded") >= TASKS
        self.should_stop = done or time.monotonic() > self.deadline

    def _receive(self, body: Any, message: Any, **options: Any) -> None:
        self.messages += 1
        super()._receive(body, message, **options)


def test_every_event_of_a_task_arrives_in_few_messages(worker: Path, redis_url: str) -> None:
    receiver = Receiver(Celery(broker=redis_url))

    receiver.capture(limit=None, timeout=60, wakeup=False)

    for kind in ("task-received", "task-started", "task-succeeded"):
        assert receiver.received.count(kind) >= TASKS  # the worker itself looks for lost work now and then
    assert receiver.messages < TASKS
