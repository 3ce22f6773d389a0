"""Watches kernel memory that no limit counts: file locks, netlink sockets, connections that were not accepted."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.25
MOST_LOCKS = 10_000
"""A desktop with every program open has a few hundred."""
MOST_NETLINK_BYTES = 64 << 20
"""Netlink sockets, and the data in them that waits to be read."""
MOST_TCP_SOCKETS = 2048
"""One that was not accepted yet holds up to 128 KiB (see `bundle`); the host also limits those without an owner."""
NEW_TCP_SOCKETS = 10_000
"""The most that are made between two checks: a processor makes about 30,000 per second."""
_BYTES_OF_SOCKET = 4096
"""The memory of the socket itself, rounded up."""
_PIECE = 1 << 16


class KernelMemoryWatch:
    """A thread that watches one desktop until it is stopped."""

    def __init__(self, processes: Path, init: int, overdone: Callable[[str], object]) -> None:
        """Starts watching.

        Args:
            processes: A ``/proc`` that shows only the desktop's processes and their keeper.
            init: The desktop's first process there.
            overdone: Called once, with what the desktop holds too much of, or may hold.

        Raises:
            OSError: That process has ended.
            RuntimeError: No more threads can be started.
        """
        self._overdone = overdone
        self._stopped = threading.Event()
        self._files = ExitStack()
        network = processes / str(init) / "net"
        with self._files as opening:
            self._locks = self._open(processes / "locks")
            self._netlink = self._open(network / "netlink")
            self._protocols = self._open(network / "protocols")
            self._sockets = [
                self._open(network / name) for name in ("sockstat", "sockstat6") if (network / name).exists()
            ]
            self._thread = threading.Thread(target=self._look_on, name="uncounted-memory", daemon=True)
            self._thread.start()
            self._files = opening.pop_all()

    def stop(self) -> None:
        """Ends the thread; call it only once."""
        self._stopped.set()
        self._thread.join()
        self._files.close()

    def _open(self, path: Path) -> int:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._files.callback(os.close, descriptor)
        return descriptor

    def _look_on(self) -> None:
        while not self._stopped.wait(LOOK_SECONDS):
            try:
                why = self._too_much()
            except OSError:  # the desktop has ended
                continue
            except Exception:  # a defect, but a desktop that nothing watches has no limits
                log.exception("what a desktop's programs hold of kernel memory cannot be counted")
                why = "what cannot be counted"
            if why:
                self._overdone(why)
                return

    def _too_much(self) -> str:
        """Returns what the desktop holds too much of; empty while it does not."""
        # Locks of open files (OFD) have no owner and are in every list; desktops cannot have any (`seccomp`).
        owned_locks = (line for line in _lines(self._locks) if b" OFDLCK " not in line)
        if next(islice(owned_locks, MOST_LOCKS, None), None) is not None:  # reading more of them gets ever slower
            return f"more than {MOST_LOCKS} file locks"
        sockets = sum(map(_tcp_sockets, self._sockets))
        if sockets > MOST_TCP_SOCKETS:
            return f"more than {MOST_TCP_SOCKETS} TCP sockets"
        held = _netlink_sockets(self._protocols) * _BYTES_OF_SOCKET
        lines = _lines(self._netlink)  # only of sockets that have an address
        next(lines, None)  # the column headings
        for line in lines:
            _, _, _, _, received, sent, *_ = line.split()
            held += int(received) + int(sent)
            if held > MOST_NETLINK_BYTES:
                break
        return f"more than {MOST_NETLINK_BYTES >> 20} MiB in netlink sockets" if held > MOST_NETLINK_BYTES else ""


def _tcp_sockets(descriptor: int) -> int:
    """Returns the number of TCP sockets in a network namespace, including those that no process has open."""
    for line in _lines(descriptor):
        match line.split():
            case [b"TCP:" | b"TCP6:", b"inuse", number, *_]:
                return int(number)
    return 0


def _netlink_sockets(descriptor: int) -> int:
    """Returns the number of netlink sockets in a network namespace."""
    for line in _lines(descriptor):
        match line.split():
            case [b"NETLINK", _, number, *_]:
                return int(number)
    return 0


def _lines(descriptor: int) -> Iterator[bytes]:
    """Yields the lines of a file as it is now, read in chunks."""
    os.lseek(descriptor, 0, os.SEEK_SET)
    rest = b""
    while piece := os.read(descriptor, _PIECE):
        *whole, rest = (rest + piece).split(b"\n")
        yield from whole
