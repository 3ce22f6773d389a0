"""The processes of local desktops, seen from the machine: found by what one of them runs, frozen and killed like any others."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil


def _namespace(pid: int) -> str:
    with contextlib.suppress(OSError):
        return str(Path(f"/proc/{pid}/ns/pid").readlink())
    return ""


@dataclass(frozen=True)
class Guest:
    """One desktop."""

    namespace: str
    """Of its processes, as the machine sees it; read at once, as the process that it was found by may be a short one."""

    def processes(self) -> list[psutil.Process]:
        return [process for process in psutil.process_iter() if _namespace(process.pid) == self.namespace]


def find(runs: Callable[[list[str]], bool], seconds: float) -> Guest:
    """Waits for a desktop with a process whose command line is the wanted one.

    Looks often, as a step may take half a second, so reads nothing but command lines: psutil asks several files about each process.
    """
    host = _namespace(os.getpid())
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for pid in psutil.pids():
            with contextlib.suppress(psutil.Error, OSError):
                command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
                if runs(command) and (namespace := _namespace(pid)) not in {"", host}:
                    return Guest(namespace)
        time.sleep(0.05)
    raise AssertionError(f"no desktop ran it within {seconds} s")


def freeze(guest: Guest) -> None:
    """Stops every process of the desktop; only its host's SIGKILL helps."""
    for other in guest.processes():
        with contextlib.suppress(psutil.Error):
            other.send_signal(signal.SIGSTOP)


def kill_server(guest: Guest) -> None:
    """Kills what answers HTTP in the desktop; it may be started again there."""
    for other in guest.processes():
        with contextlib.suppress(psutil.Error):
            if "server" in " ".join(other.cmdline()):
                other.kill()
