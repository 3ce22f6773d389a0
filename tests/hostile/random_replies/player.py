"""A worker as far as attempts go: children that each play one attempt after the other, and say what it left.

The children share a template of cells, as those of a worker do. The first half is the tests' side; `main` is the worker.
"""

from __future__ import annotations

import faulthandler
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path

import psutil

from benchmark.items import Item
from rollout_tasks.config import RunConfig
from rollout_tasks.environments.osworld.session_opening import preload
from rollout_tasks.execution.attempt import Attempt
from rollout_tasks.execution.heartbeat import Pulse
from rollout_tasks.interruption import Interruption
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.runs.verdict import Verdict
from rollout_tasks.temporary_files import use_own_folder
from tests.conftest import REPOSITORY

BEYOND_SECONDS = 25.0
"""After its limit an attempt may take so long to end: a cell is told to stop, and is ended where it does not."""
SETTLE_SECONDS = 8.0
"""Threads that only close a connection may take a moment."""


Left = dict[str, list[str]]
"""What a child has once an attempt is over, by kind."""


@dataclass
class Played:
    """How an attempt went."""

    verdict: Verdict | None = None
    escaped: str = ""
    """What got out of it instead of a verdict."""
    seconds: float = 0.0
    alarm: float = 0.0
    """When its alarm goes; it should not."""
    peak: int = 0
    """Bytes of the child's memory, at most, ever."""
    left: Left = field(default_factory=dict)
    grown: list[str] = field(default_factory=list)
    """What it has more of than after its first attempt."""


class Player:
    """One child."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._pid: int = connection.recv()
        self._before: Left | None = None

    def play(self, item: Item, config: RunConfig, folder: Path) -> Played:
        """Plays an attempt; what the first one leaves is what later ones may leave.

        Raises:
            AssertionError: It does not end, or the child did.
        """
        self._connection.send((item, config, folder, self._before))
        if not self._connection.poll(config.limits.max_seconds + BEYOND_SECONDS + 20):
            os.kill(self._pid, signal.SIGUSR1)
            raise AssertionError("an attempt did not end; standard error says where it was")
        try:
            played: Played = self._connection.recv()
        except EOFError as error:
            raise AssertionError("the attempt's process ended") from error
        if self._before is None:
            self._before = played.left
        played.grown = _grown(self._before, played.left)
        return played


@contextmanager
def opened_players(folder: Path, number: int, *, cells: bool) -> Iterator[Sequence[Player]]:
    """A worker with so many children, with desktop-env in its cells or without any; its log is in the folder."""
    (folder / "tmp").mkdir(parents=True)
    with ExitStack() as opened, Listener(family="AF_UNIX") as listener, (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                f"from {__name__} import main; main()",
                str(listener.address),
                str(number),
                str(int(cells)),
            ],
            env={**os.environ, "TMPDIR": str(folder / "tmp")},
            cwd=REPOSITORY,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            yield [Player(opened.enter_context(listener.accept())) for _ in range(number)]
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _played(item: Item, config: RunConfig, run: Path, before: Left | None) -> Played:
    """Plays an attempt as the worker's task does."""
    folder, name = RunFolder(run), f"{item.id}#0"
    began = time.monotonic()
    played = Played()
    try:
        folder.begin_attempt(name, 1)
        attempt = Attempt("random", name, 1, item, config, folder.attempt(name, 1), "worker@here")
        verdict = attempt.run(Pulse("random", name, "token", Interruption(), None))
        folder.write_attempt(verdict)
        played.verdict = folder.settle(verdict, written=True)
    except BaseException:  # noqa: BLE001 (what got out is what the test is about)
        played.escaped = traceback.format_exc()
    played.seconds = time.monotonic() - began
    played.alarm = signal.getitimer(signal.ITIMER_REAL)[0]
    until = time.monotonic() + SETTLE_SECONDS
    left = _left()
    while before and _grown(before, left) and time.monotonic() < until:
        time.sleep(0.1)
        left = _left()
    played.left = left
    played.peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    return played


def _left() -> Left:
    return {
        "threads": [thread.name for thread in threading.enumerate()],
        "children": [str(child) for child in psutil.Process().children(recursive=True)],
        "temporary files": [one.name for one in Path(tempfile.gettempdir()).iterdir()],
        "descriptors": [str(one.readlink()) for one in Path("/proc/self/fd").iterdir() if one.is_symlink()],
    }


def _grown(before: Left, now: Left) -> list[str]:
    return [
        f"its {kind} were {before[kind]}, and are {now[kind]}" for kind in now if len(now[kind]) > len(before[kind])
    ]


def _child(place: str) -> None:
    """Plays what it is told until nobody tells it any more."""
    faulthandler.register(signal.SIGUSR1)
    os.environ["TMPDIR"] = tempfile.tempdir = tempfile.mkdtemp(prefix="child-")
    with Client(place) as tests, suppress(EOFError):
        tests.send(os.getpid())
        while True:
            tests.send(_played(*tests.recv()))


def main() -> None:
    """Forks the children, and waits for them."""
    use_own_folder("player-")
    if int(sys.argv[3]):
        preload()
    pids = []
    for _ in range(int(sys.argv[2])):
        if (pid := os.fork()) == 0:
            try:
                _child(sys.argv[1])
            finally:
                os._exit(0)
        pids.append(pid)
    for pid in pids:
        os.waitpid(pid, 0)
