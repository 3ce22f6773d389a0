"""Checks shared host settings that no limit of a desktop covers: one desktop must not be able to use more than half."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from vm_pool.providers.local import cgroups
from vm_pool.providers.local.bundle import TERMINALS
from vm_pool.providers.local.kernel_memory import MOST_TCP_SOCKETS, NEW_TCP_SOCKETS
from vm_pool.providers.local.options import LocalOptions

_BYTES_OF_FILE = 200
"""What the kernel charges to the desktop's memory for each open file, at least."""
_SETTINGS = Path("/proc/sys")
_PAGE = 4096


def too_low(options: LocalOptions, settings: Path = _SETTINGS) -> list[str]:
    """Returns what to set, for ``sysctl -w``; empty when all are high enough, or the options set no limits."""
    return [
        f"{name.replace('/', '.')}={value}"
        for name, least, value in _wanted(options, settings)
        if (has := _number(settings / name)) is not None and has < least
    ]


def _wanted(options: LocalOptions, settings: Path) -> Iterator[tuple[str, int, str]]:
    """Yields names of settings, the least value that each needs, and what to set it to."""
    reserved = _number(settings / "kernel/pty/reserve") or 0
    terminals = 2 * TERMINALS + reserved
    yield "kernel/pty/max", terminals, str(terminals)
    sockets = 2 * (MOST_TCP_SOCKETS + NEW_TCP_SOCKETS)
    yield "net/ipv4/tcp_max_orphans", sockets, str(sockets)
    if options.processes is not None:
        for name in ("kernel/pid_max", "kernel/threads-max"):
            yield name, 2 * options.processes, str(2 * options.processes)
    if options.memory_mib is not None:
        memory = options.memory_mib << 20
        files = 2 * memory // _BYTES_OF_FILE
        yield "fs/file-max", files, str(files)
        if cgroups.counts_sockets_with_memory():
            pages = 2 * memory // _PAGE
            yield "net/ipv4/tcp_mem", pages, f'"{pages * 3 // 4} {pages * 3 // 4} {pages}"'


def _number(path: Path) -> int | None:
    """Returns the last number of a setting; None if this kernel does not have it."""
    try:
        return int(path.read_text().split()[-1])
    except (OSError, ValueError, IndexError):
        return None
