"""Names for processes, so that another process on the same machine can tell whether one has ended."""

from __future__ import annotations

import hashlib
import os
from functools import lru_cache
from pathlib import Path

_PROC = Path("/proc")
_STATE, _BEGAN = 0, 19
"""Positions of these fields of /proc/<pid>/stat after the command's name."""
_ENDED = ("Z", "X")
"""States of a process that has ended but was not yet waited for."""


def this_process() -> str:
    """Returns this process's name: machine, process id and start time; empty where the system does not tell."""
    return _name_of(os.getpid())


@lru_cache(maxsize=1)
def machine() -> str:
    """Returns a name of this boot of this machine and of this process's PID namespace; empty where unknown.

    Processes with the same name see each other under the same process ids.
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
    """Whether a process has surely ended: False also when this process cannot know.

    Args:
        process: Its own name from `this_process`.
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
        return False  # another user's process, which exists
    fields = _fields_of(int(pid))
    return bool(fields) and (fields[_STATE] in _ENDED or fields[_BEGAN] != began)


@lru_cache(maxsize=1)
def _name_of(pid: int) -> str:
    fields = _fields_of(pid)
    return f"{machine()}:{pid}:{fields[_BEGAN]}" if fields and machine() else ""


def _fields_of(pid: int) -> list[str]:
    """Returns the fields after the command's name, which may contain anything; empty where they cannot be read."""
    try:
        return (_PROC / str(pid) / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return []
