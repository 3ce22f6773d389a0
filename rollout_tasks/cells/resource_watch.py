"""Looks after what a cell uses as a whole, which no limit of a process counts: memory and sockets, from outside."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from rollout_tasks.cells.isolation import CellLimits

LOOK_SECONDS = 0.5
_PAGE = os.sysconf("SC_PAGESIZE")


class ResourceWatch:
    """A thread that looks at one cell until it is stopped."""

    def __init__(self, pid: int, limits: CellLimits, overdone: Callable[[str], None]) -> None:
        """Begins to look.

        Args:
            pid: The cell's first process, to which all its orphans belong.
            limits: What it may use.
            overdone: Is told, once, what it used too much of.
        """
        self._pid = pid
        self._limits = limits
        self._overdone = overdone
        self._stopped = threading.Event()
        self.most_memory = 0
        """Bytes that were counted at most."""
        self._thread = threading.Thread(target=self._look_on, name="cell-usage", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends it. Harmless when repeated."""
        self._stopped.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _look_on(self) -> None:
        while not self._stopped.wait(LOOK_SECONDS):
            if why := self._too_much():
                self._overdone(why)
                return

    def _too_much(self) -> str:
        """What it uses too much of; empty while it does not."""
        limits = self._limits
        processes = list(_with_descendants(self._pid))
        memory = sum(map(_memory_of, processes))
        if memory > limits.memory_bytes:
            memory = sum(map(_own_share_of, processes))  # takes longer, and counts what forks share once
        self.most_memory = max(self.most_memory, memory)
        if memory > limits.memory_bytes:
            return f"it used more than {limits.memory_bytes >> 20} MiB of memory"
        if sum(map(_threads_of, processes)) > limits.processes:  # root's own limit holds for root nowhere
            return f"it had more than {limits.processes} processes and threads"
        sockets, connections = _sockets_of(self._pid)
        if sockets > limits.sockets or connections > limits.connections:
            return f"it had more than {limits.sockets} sockets open, or more than {limits.connections} of TCP"
        return ""


def _with_descendants(pid: int) -> Iterator[int]:
    """A process and all that it has started; none where it has ended."""
    yield pid
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return
    for thread in threads:
        try:
            children = (thread / "children").read_text(encoding="utf-8").split()
        except OSError:
            continue
        for child in children:
            yield from _with_descendants(int(child))


def _own_share_of(pid: int) -> int:
    """Bytes in memory, of those that several have a part for each."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss_Anon:"))


def _threads_of(pid: int) -> int:
    try:
        return sum(1 for _ in Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return 0


def _memory_of(pid: int) -> int:
    """Bytes in memory that are of no file; pages that a fork shares count for each."""
    try:
        _, resident, of_files, *_ = Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()
    except OSError:
        return 0
    return (int(resident) - int(of_files)) * _PAGE


def _sockets_of(pid: int) -> tuple[int, int]:
    """How many sockets there are in a process's network namespace, and how many of them are of TCP."""
    try:
        words = Path(f"/proc/{pid}/net/sockstat").read_text(encoding="utf-8").split()
    except OSError:
        return 0, 0
    return int(words[words.index("used") + 1]), int(words[words.index("TCP:") + 2])
