"""Names a process so that another one on the same machine can tell whether it has ended."""

from __future__ import annotations

import hashlib
import os
from functools import lru_cache
from pathlib import Path

_PROC = Path("/proc")
_STATE, _BEGAN = 0, 19
"""Places of these fields of /proc/<pid>/stat behind the command's name."""
_ENDED = ("Z", "X")
"""A process that has ended and that nobody has waited for yet."""


def this_process() -> str:
    """This process: machine, process id and when it began; empty where the system does not say."""
    return _name_of(os.getpid())


@lru_cache(maxsize=1)
def machine() -> str:
    """This boot of this machine, as seen from this process's namespace of process ids; empty where unknown.

    Processes that say the same know each other by the same process ids.
    """
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text("ascii").strip()
        namespace = (_PROC / "self/ns/pid").readlink()
        shown = int((_PROC / "self").readlink().name)
    except (OSError, ValueError):
        return ""
    if shown != os.getpid():  # /proc belongs to another namespace
        return ""
    return hashlib.sha256(f"{boot} {namespace}".encode()).hexdigest()[:12]


def has_ended(process: str) -> bool:
    """Whether a process has surely ended: False also where nobody here can know.

    Args:
        process: What it said of itself in `this_process`.
    """
    where, _, rest = process.partition(":")
    if not where or where != machine():
        return False
    pid, _, began = rest.partition(":")
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except (OSError, ValueError, OverflowError):
        return False  # another user's: it is there
    fields = _fields_of(int(pid))
    return bool(fields) and (fields[_STATE] in _ENDED or fields[_BEGAN] != began)


@lru_cache(maxsize=1)
def _name_of(pid: int) -> str:
    fields = _fields_of(pid)
    return f"{machine()}:{pid}:{fields[_BEGAN]}" if fields and machine() else ""


def _fields_of(pid: int) -> list[str]:
    """The fields behind the command's name, which may hold anything; none where they cannot be read."""
    try:
        return (_PROC / str(pid) / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return []
