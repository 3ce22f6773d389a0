"""Watches from outside what a cell uses as a whole (memory, mappings, sockets), which limits of single processes do not count."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from itertools import chain, islice
from pathlib import Path

from rollout_tasks.cells.isolation import CellLimits
from vm_pool.processes import children_of

logger = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
_WHOLE = ("RssAnon:", "RssShmem:", "VmSwap:", "VmPTE:")
"""Lines of a process's status. Without its pages of files, which can be read again; those of the cell's folder cannot."""
_SHARES = ("Pss_Anon:", "Pss_Shmem:", "SwapPss:")


class ResourceWatch:
    """A thread that checks one cell until it is stopped."""

    def __init__(self, pid: int, limits: CellLimits, overdone: Callable[[str], None]) -> None:
        """Starts the thread.

        Args:
            pid: The cell's first process, which adopts all its orphans.
            limits: What the cell may use.
            overdone: Called once, with what the cell used too much of, or why that cannot be known any more.
        """
        self._pid = pid
        self._limits = limits
        self._overdone = overdone
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._look_on, name="cell-usage", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stops the thread. Harmless when repeated."""
        self._stopped.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _look_on(self) -> None:
        while not self._stopped.wait(LOOK_SECONDS):
            try:
                why = self._too_much()
            except Exception as error:  # a defect, but a cell that nothing watches has no limits
                logger.exception("what cell %d uses cannot be counted", self._pid)
                why = f"what it uses cannot be counted: {type(error).__name__}: {error}"
            if why:
                self._overdone(why)
                return

    def _too_much(self) -> str:
        """Returns what the cell uses too much of, in words; empty if nothing."""
        limits = self._limits
        processes = list(islice(_with_descendants(self._pid), limits.processes + 1))  # more are too many already
        memory = sum(map(_memory_of, processes))
        if memory > limits.memory_bytes:
            memory = sum(map(_own_share_of, processes))  # slower, but counts memory shared by forks once
        if memory > limits.memory_bytes:
            return f"it used more than {limits.memory_bytes >> 20} MiB of memory"
        if sum(map(_threads_of, processes)) > limits.processes:  # the kernel does not limit root's processes
            return f"it had more than {limits.processes} processes and threads"
        mappings = chain.from_iterable(map(_mappings_of, processes))
        if next(islice(mappings, limits.mappings, None), None) is not None:
            return f"it had more than {limits.mappings} mappings of memory"
        sockets, connections = _sockets_of(self._pid)
        if sockets > limits.sockets or connections > limits.connections:
            return f"it had more than {limits.sockets} sockets open, or more than {limits.connections} of TCP"
        return ""


def _with_descendants(pid: int) -> Iterator[int]:
    """Yields a process and all its descendants, however deep; only the process itself if it has ended."""
    left = [pid]
    while left:
        pid = left.pop()
        yield pid
        left.extend(children_of(pid))


def _own_share_of(pid: int) -> int:
    """Returns what `_memory_of` does, but of shared pages only this process's share."""
    return _bytes_in(f"/proc/{pid}/smaps_rollup", *_SHARES) + _bytes_in(f"/proc/{pid}/status", "VmPTE:")


def _threads_of(pid: int) -> int:
    try:
        return sum(1 for _ in Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return 0


def _mappings_of(pid: int) -> Iterator[bytes]:
    """Yields a line for each mapping of a process; none if it has ended."""
    try:
        with Path(f"/proc/{pid}/maps").open("rb") as lines:
            yield from lines
    except OSError:
        return


def _memory_of(pid: int) -> int:
    """Returns bytes that belong to no file of a disk, and page tables; pages that processes share count for each of them."""
    return _bytes_in(f"/proc/{pid}/status", *_WHOLE)


def _bytes_in(file: str, *headings: str) -> int:
    """Returns the sum of some lines of a process's file, which are in kilobytes; 0 if the process has ended."""
    try:
        text = Path(file).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    lines = text.split("\n")  # the process's name may have any other line break, and look like such a line
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith(headings))


def _sockets_of(pid: int) -> tuple[int, int]:
    """Returns how many sockets a process's network namespace has, and how many of them are TCP, by either IP."""
    try:
        words = Path(f"/proc/{pid}/net/sockstat").read_text(encoding="utf-8").split()
    except OSError:
        return 0, 0
    connections = int(words[words.index("TCP:") + 2])
    try:
        of_version_6 = Path(f"/proc/{pid}/net/sockstat6").read_text(encoding="utf-8").split()
        connections += int(of_version_6[of_version_6.index("TCP6:") + 2])
    except OSError:  # a kernel without IPv6
        pass
    return int(words[words.index("used") + 1]), connections
