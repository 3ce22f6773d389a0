"""Memory that this process and its children may still take: the machine's, or less where cgroups limit it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

_PROCESS = Path("/proc/self/cgroup")
_MOUNTED = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class _Version:
    """The files of one version of cgroups."""

    limit: str
    used: str
    cached: str
    """The entry of ``memory.stat`` for cached files, which make room when it is needed."""


_SECOND = _Version("memory.max", "memory.current", "inactive_file")
_FIRST = _Version("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def free_memory(process: Path = _PROCESS, mounted: Path = _MOUNTED) -> int:
    """Returns how many bytes can be taken without swapping.

    Args:
        process: The file that names this process's cgroups.
        mounted: Where cgroups are mounted.
    """
    return min([psutil.virtual_memory().available, *_left_by_cgroups(process, mounted)])


def _left_by_cgroups(process: Path, mounted: Path) -> Iterator[int]:
    """Yields what each limit on this process leaves: those of its cgroups and of all above them."""
    lines: list[str] = []
    with suppress(OSError):
        lines = process.read_text(encoding="utf-8").splitlines()
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            tops, version = (mounted, mounted / "unified"), _SECOND
        elif "memory" in controllers.split(","):
            tops, version = (mounted / controllers, mounted / "memory"), _FIRST
        else:
            continue
        for top in tops:
            folder = top / path.lstrip("/")
            if not folder.is_dir():  # in a container, the top is the container's own
                folder = top
            for one in (folder, *folder.parents):
                with suppress(OSError, ValueError):
                    yield _left(one, version)
                if one == top:
                    break


def _left(folder: Path, version: _Version) -> int:
    """Returns what a cgroup's limit leaves.

    Raises:
        ValueError: It has none.
        OSError: It has no such file.
    """
    limit = int((folder / version.limit).read_text(encoding="ascii"))
    used = int((folder / version.used).read_text(encoding="ascii"))
    entries = dict(line.split() for line in (folder / "memory.stat").read_text(encoding="ascii").splitlines())
    return max(0, limit - used + int(entries.get(version.cached, 0)))
