"""The cgroups in which the kernel counts and limits a desktop's resources."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

_MOUNTED = Path("/sys/fs/cgroup")
_SOCKETS = "memory.kmem.tcp.limit_in_bytes"


def cgroup_of(vm_id: str) -> str:
    """Returns a desktop's cgroup, as a path in every hierarchy."""
    return f"/computer-use-rollouts.{vm_id}"


def hybrid() -> bool:
    """Whether controllers of version 1 are mounted next to version 2."""
    return not (_MOUNTED / "cgroup.controllers").exists() and (_MOUNTED / "unified" / "cgroup.controllers").exists()


def unlimitable(wanted: list[str]) -> list[str]:
    """Returns the controllers that cannot be used for limits on this machine.

    Args:
        wanted: Among ``memory``, ``pids`` and ``cpu``.
    """
    with suppress(OSError):
        wanted = sorted(set(wanted) - set((_MOUNTED / "cgroup.controllers").read_text().split()))
    return [name for name in wanted if not os.access(_MOUNTED / name / "cgroup.procs", os.W_OK)]


def counts_swap() -> bool:
    """Whether swap can be limited."""
    names = ("memory/memory.memsw.limit_in_bytes", "*/memory.swap.max")
    return any(any(_MOUNTED.glob(name)) for name in names)


def counts_sockets_with_memory() -> bool:
    """Whether socket memory counts as a desktop's memory, as in version 2, and not separately."""
    return not (_MOUNTED / "memory" / _SOCKETS).exists()


def limit_sockets(vm_id: str, most_bytes: int) -> None:
    """Limits the memory of a desktop's TCP and UDP sockets, before anything runs in its cgroup.

    Version 1 counts it separately, and only where it is limited. Version 2 counts it with the desktop's memory.

    Raises:
        OSError: The cgroup cannot be made.
    """
    if not counts_sockets_with_memory():
        cgroup = _MOUNTED / "memory" / cgroup_of(vm_id).lstrip("/")
        cgroup.mkdir(exist_ok=True)
        (cgroup / _SOCKETS).write_text(str(most_bytes))


def thaw(vm_id: str) -> None:
    """Lets a desktop's processes go on if somebody has frozen its cgroup: frozen ones do not end, even if they are killed."""
    for folder in _folders_of(vm_id):
        _thaw(folder)


def remove(vm_id: str, seconds: float) -> None:
    """Ends all processes left in a desktop's cgroup, and removes it; does nothing when it does not exist.

    Raises:
        TimeoutError: A process in it does not end.
    """
    deadline = time.monotonic() + seconds
    left = _folders_of(vm_id)
    while left := [folder for folder in left if not _removed(folder)]:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{vm_id}: processes in {left[0]} do not end within {seconds:.0f} s")
        time.sleep(0.01)


def _folders_of(vm_id: str) -> list[Path]:
    """Returns the folders of a desktop's cgroup, one in each hierarchy that has it."""
    name = cgroup_of(vm_id).lstrip("/")
    return [folder for folder in (_MOUNTED / name, *_MOUNTED.glob(f"*/{name}")) if folder.is_dir()]


def _thaw(folder: Path) -> None:
    for name, thawed in (("freezer.state", "THAWED"), ("cgroup.freeze", "0")):
        with suppress(OSError):
            (folder / name).write_text(thawed)


def _removed(folder: Path) -> bool:
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        _thaw(folder)
        with suppress(OSError):
            for pid in filter(None, map(int, (folder / "cgroup.procs").read_text().split())):  # 0: not of our namespace
                os.kill(pid, signal.SIGKILL)
        return False
    return True
