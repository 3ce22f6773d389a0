"""Cleans up after a killed process: `python -m rollout_tasks.cleanup_process`, started by that process.

Standard input names what to clean up, one JSON list per line: ``["process", PID, BEGAN]``, the leader of a session, or
``["folder", PATH]``. It ends when the other process ends, however that happens; then the sessions' processes are stopped
and the folders removed.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

POLITE_SECONDS = 5.0
"""How long services may take to end by themselves."""
_LOOKS = 3
_LOOK_SECONDS = 0.1
"""A process that was being started when the other one was killed shows its environment only after a moment."""


class CleanupProcess:
    """The cleanup process, for the process that starts it."""

    def __init__(self, locks: Sequence[int] = ()) -> None:
        """Starts it.

        Args:
            locks: Descriptors that it holds until it ends.
        """
        self._locks = locks
        self._told: list[str] = []
        self._saying = threading.Lock()
        self._process = self._begin()

    def _begin(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "rollout_tasks.cleanup_process"],
            stdin=subprocess.PIPE,
            start_new_session=True,
            cwd="/",
            pass_fds=self._locks,
        )

    def stop_afterwards(self, pid: int) -> None:
        """Names the leader of a session that must not outlive this process."""
        with contextlib.suppress(psutil.Error):  # it has ended already
            self._say("process", pid, psutil.Process(pid).create_time())

    def remove_afterwards(self, path: Path) -> None:
        """Names a folder that must not outlive this process."""
        self._say("folder", str(path))

    def dismiss(self, seconds: float) -> None:
        """Makes it clean up what is left, and waits at most `seconds` for it."""
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)

    def _say(self, *words: str | float) -> None:
        """Sends it a line; tells another cleanup process everything if this one has been killed."""
        with self._saying:
            self._told.append(json.dumps(words))  # in ASCII, on one line, whatever a path is made of
            try:
                self._write(self._told[-1:])
            except BrokenPipeError:
                self._process = self._begin()
                self._write(self._told)

    def _write(self, lines: list[str]) -> None:
        if self._process.stdin is not None:
            self._process.stdin.write("".join(f"{line}\n" for line in lines).encode())
            self._process.stdin.flush()


def members(leader: int) -> list[psutil.Process]:
    """Returns every process of a session."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ProcessLookupError, PermissionError):
            if os.getsid(process.pid) == leader:
                found.append(process)
    return found


def _is_ours(leader: int, began: float) -> bool:
    """Returns whether a session's processes are still there, and its leader's id is not another process's by now."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(leader).create_time() == began
    return bool(members(leader))


def leaders_working_in(folders: list[Path]) -> list[int]:
    """Returns the leaders of sessions in which a process has one of the folders as its `TMPDIR`."""
    paths = {str(folder) for folder in folders}
    found: set[int] = set()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ProcessLookupError, PermissionError):
            if process.environ().get("TMPDIR", "") in paths:
                found.add(os.getsid(process.pid))
    return sorted(found)


def stop_sessions(leaders: list[int], polite_seconds: float) -> None:
    """Asks the leaders of the sessions to end, and kills every process that does not within `polite_seconds`."""
    processes = [process for leader in leaders for process in members(leader)]
    for process in processes:
        if process.pid in leaders:
            with contextlib.suppress(psutil.Error):
                process.terminate()
    _, alive = psutil.wait_procs(processes, timeout=polite_seconds)
    for process in alive + [process for leader in leaders for process in members(leader)]:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(alive, timeout=polite_seconds)


def main() -> None:
    """Waits until the other process ends, then cleans up."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    leaders: dict[int, float] = {}
    folders: list[Path] = []
    for line in sys.stdin:
        kind, value, *began = json.loads(line)
        if kind == "process":
            leaders[value] = began[0]
        else:
            folders.append(Path(value))
    stop_sessions([leader for leader, began in leaders.items() if _is_ours(leader, began)], POLITE_SECONDS)
    # The other process may have been killed after it started a process and before it named it.
    for _ in range(_LOOKS if any(folder.exists() for folder in folders) else 0):
        time.sleep(_LOOK_SECONDS)
        stop_sessions(leaders_working_in(folders), POLITE_SECONDS)
    deadline = time.monotonic() + POLITE_SECONDS
    for folder in folders:
        while folder.exists() and time.monotonic() < deadline:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
