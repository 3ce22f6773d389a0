"""What the pipeline's measurements run on: a broker, a worker, a folder, all on this machine and gone afterwards."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import redis

from rollout_tasks.cleanup_process import CleanupProcess, stop_sessions
from rollout_tasks.embedded.services import EmbeddedServices

REPOSITORY = Path(__file__).resolve().parents[2]
MAX_SECONDS = 900.0
"""For one measurement; longer means that something hangs."""


def wait_until(reached: Callable[[], Any], what: str, *, pause: float = 0.02, seconds: float = MAX_SECONDS) -> None:
    """Waits for a condition.

    Raises:
        TimeoutError: It did not come; says what.
    """
    give_up_at = time.monotonic() + seconds
    while not reached():
        if time.monotonic() > give_up_at:
            raise TimeoutError(f"{what}: not after {seconds:g} s")
        time.sleep(pause)


@contextmanager
def results() -> Iterator[Path]:
    """A folder for every round's results, removed at the end: for five minutes, deleted files slow down whoever makes some."""
    folder = Path(tempfile.mkdtemp(prefix="bench-"))
    cleanup = CleanupProcess()
    cleanup.remove_afterwards(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
        cleanup.dismiss(5)


@contextmanager
def broker() -> Iterator[EmbeddedServices]:
    """A Valkey for one measurement, which REDIS_URL names."""
    stack = EmbeddedServices(Path(os.devnull))
    stack.logs = stack.folder / "logs"
    try:
        stack.start_valkey()
        yield stack
    finally:
        stack.stop(at_once=True)


@dataclass(frozen=True)
class Worker:
    """A Celery worker that is ready."""

    pid: int
    seconds_to_ready: float

    def children_mb(self) -> list[tuple[float, float]]:
        """Returns the RSS and PSS of each of its pool's processes."""
        memory = [child.memory_full_info() for child in psutil.Process(self.pid).children()]
        return [(entry.rss / 1e6, entry.pss / 1e6) for entry in memory]


@contextmanager
def worker(logs: Path, app: str, concurrency: int, queues: Sequence[str] = ()) -> Iterator[Worker]:
    """A worker of an application, for some queues or for all it can serve; ended with all its processes."""
    name = "-".join(["worker", app, *queues])
    path = logs / f"{name}.log"
    command = [sys.executable, "-m", "celery", "-A", app, "worker", f"--concurrency={concurrency}"]
    command += [f"--hostname={name}@%h", "--loglevel=INFO", "--without-gossip", "--without-mingle"]
    if queues:
        command.append(f"--queues={','.join(queues)}")
    cleanup = CleanupProcess()
    began = time.monotonic()
    with path.open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=REPOSITORY, start_new_session=True)
    try:
        cleanup.stop_afterwards(process.pid)
        wait_until(lambda: b" ready." in path.read_bytes(), f"the worker of {app}, see {path}", pause=0.01)
        yield Worker(process.pid, time.monotonic() - began)
    finally:
        stop_sessions([process.pid], 5)
        process.wait()
        cleanup.dismiss(5)


@contextmanager
def warm_process(prepare: Callable[[], object]) -> Iterator[Any]:
    """A pool of one process with everything imported, to submit from: nobody's start is measured."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        pool.apply(prepare)
        yield pool


class PeakMemory:
    """The most that a broker used while this was entered, without what it used, empty, when this was made."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self._empty = self._used()
        self._peak = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    @property
    def bytes(self) -> int:
        """The peak so far."""
        return self._peak - self._empty

    def _used(self) -> int:
        information: Any = self._client.info("memory")
        return int(information["used_memory"])

    def _look(self) -> None:
        while not self._over.wait(0.02):
            self._peak = max(self._peak, self._used())

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
