"""The processes of a playground: two workers, a VM host and a submitter, each with a proxy of its own before Redis.

A process that a fault killed is started again at once, as a supervisor does.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import psutil

from rollout_tasks.cleanup_process import CleanupProcess, members
from tests.cluster import LEASE_TTL, RECONCILE_EVERY, VISIBILITY_TIMEOUT
from tests.conftest import REPOSITORY

_START_SECONDS = 90.0
_LOOK_SECONDS = 0.05


def owner_of_connection(near: int, far: int, processes: Sequence[tuple[str, int]]) -> tuple[str, int]:
    """Role and pid of the process that has a connection from one loopback port to another.

    Args:
        near: Its own port.
        far: The port it connected to.
        processes: Role and pid of those it may be, a parent before its children: a child inherits what its parent had.

    Returns:
        The first that has it; ``("gone", 0)`` when none has.
    """
    inode = _inode(near, far)
    wanted = f"socket:[{inode}]"
    for role, pid in processes:
        with contextlib.suppress(OSError):
            for descriptor in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    if str(descriptor.readlink()) == wanted:
                        return role, pid
    return "gone", 0


def _inode(near: int, far: int) -> str:
    ends = f"0100007F:{near:04X} 0100007F:{far:04X} "
    for line in Path("/proc/net/tcp").read_text().splitlines():
        if ends in line:
            return line.split()[9]
    return ""


def children_of(pid: int) -> list[int]:
    """A process's children; none of one that is gone."""
    with contextlib.suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


class Service:
    """A process that serves until it is told to end, started again when it ends by itself."""

    def __init__(
        self,
        name: str,
        role: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        log: Path,
        cleanup: CleanupProcess,
    ) -> None:
        self.name = name
        self.role = role
        self.restarts = 0
        self.sessions: list[int] = []
        """The leaders of its sessions, the latest last; those in which nothing is left may be taken out."""
        self.mains: set[int] = set()
        """Every main process it ever had."""
        self._command = command
        self._environment = dict(environment)
        self._log = log
        self._cleanup = cleanup
        self._ending = threading.Event()
        self._process = self._launch()
        threading.Thread(target=self._supervise, name=f"supervisor of {name}", daemon=True).start()

    @property
    def pid(self) -> int:
        """Its main process."""
        return self._process.pid

    @property
    def children(self) -> list[int]:
        """Its main process's children."""
        return children_of(self.pid)

    @property
    def processes(self) -> list[tuple[str, int]]:
        """Role and pid of the main process and its children."""
        child = "child" if self.role == "main" else self.role
        return [(self.role, self.pid), *((child, pid) for pid in self.children)]

    @property
    def log_text(self) -> str:
        """What it said since it was last started."""
        return self._log.read_bytes()[self._log_began :].decode(errors="replace")

    def _launch(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            self._log_began = log.tell()
            process = subprocess.Popen(
                self._command, env=self._environment, stdout=log, stderr=log, cwd=REPOSITORY, start_new_session=True
            )
        self.sessions.append(process.pid)
        self.mains.add(process.pid)
        self._cleanup.stop_afterwards(process.pid)
        return process

    def _supervise(self) -> None:
        while not self._ending.is_set():
            self._process.wait()
            if self._ending.wait(0.1):
                return
            self.restarts += 1
            self._process = self._launch()

    def end(self) -> None:
        """Kills it with everything it started."""
        self._ending.set()
        for leader in self.sessions:
            for process in members(leader):
                with contextlib.suppress(psutil.Error):
                    process.kill()
        self._process.wait()

    def pause_supervision(self) -> None:
        """Lets it stay down from now on."""
        self._ending.set()


class Submitter:
    """Runs submit.py's commands in forks of a process that has imported everything."""

    def __init__(self, environment: Mapping[str, str], log: Path, cleanup: CleanupProcess) -> None:
        self.pid = 0
        """The last fork's."""
        self.log = log
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.faults.submitter"],
                env=dict(environment),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=REPOSITORY,
                start_new_session=True,
            )
        cleanup.stop_afterwards(self._process.pid)

    @property
    def processes(self) -> list[tuple[str, int]]:
        """Role and pid of the fork that may be running."""
        return [("submitter", pid) for pid in children_of(self._process.pid)]

    def run(
        self, arguments: Sequence[str], *, log: Path, seconds: float, before: Callable[[int], None] | None = None
    ) -> int | None:
        """Runs one command.

        Args:
            arguments: What stands behind ``submit.py``.
            log: Where its output goes.
            seconds: How long it may take.
            before: Called with the process's id before it begins.

        Returns:
            Its exit code, below 0 when a signal ended it; None when it did not end in time and was killed.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps([str(log), *arguments]).encode() + b"\n")
        stdin.flush()
        self.pid = json.loads(stdout.readline())["pid"]
        if before is not None:
            before(self.pid)
        stdin.write(b"\n")
        stdin.flush()
        late = threading.Event()

        def kill() -> None:
            late.set()
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

        timer = threading.Timer(seconds, kill)
        timer.start()
        code: int = json.loads(stdout.readline())["code"]
        timer.cancel()
        return None if late.is_set() else code

    def end(self) -> None:
        """Ends it."""
        for process in members(self._process.pid):
            with contextlib.suppress(psutil.Error):
                process.kill()
        self._process.wait()


def environment_for(url: str, extensions: Path) -> dict[str, str]:
    """What a process of the playground gets: its proxy's URL, short times and the desks."""
    kept = {
        key: value for key, value in os.environ.items() if not re.match(r"(ROLLOUT_|REDIS_|CELERY_|PYTHONDONT)", key)
    }
    return {
        **kept,
        "REDIS_URL": url,
        "PYTHONPATH": os.pathsep.join((str(extensions), str(REPOSITORY))),
        "ROLLOUT_LEASE_TTL": str(LEASE_TTL),
        "ROLLOUT_VISIBILITY_TIMEOUT": str(VISIBILITY_TIMEOUT),
        "ROLLOUT_RECONCILE_EVERY": str(RECONCILE_EVERY),
    }


def wait_until(true: Callable[[], bool], seconds: float = _START_SECONDS) -> bool:
    """Waits until something is so; whether it came to be."""
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_SECONDS)
    return True
