"""Which process did something, told so that others on the same machine can find out whether it still runs.

No wall clock is involved: a process is known by its number and by when it started, in the kernel's own ticks since boot. On systems
without /proc nothing is known, and nobody is ever taken to be dead.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

_PROC = Path("/proc")
_START_FIELD = 19
"""Place of the start time in /proc/<pid>/stat, counted after the process's name."""


@lru_cache(maxsize=1)
def this_process(pid: int) -> dict[str, Any]:
    """What identifies a process of this machine, as JSON types.

    Args:
        pid: Its number; the caller's own.
    """
    return {"machine": _machine(), "pid": pid, "began": _began(pid)}


def is_gone(process: Mapping[str, Any]) -> bool:
    """Whether a process ran on this machine and does not any more; False where that cannot be known.

    Args:
        process: As `this_process` described it.
    """
    machine = _machine()
    if not machine or process.get("machine") != machine or not isinstance(process.get("pid"), int):
        return False
    return _began(process["pid"]) != process.get("began")


@lru_cache(maxsize=1)
def _machine() -> str:
    """This boot of this machine and this namespace of process numbers; empty where that is not known."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.stat('/proc/self/ns/pid').st_ino}"  # noqa: PTH116 (through the link, which is no path)
    except OSError:
        return ""


def _began(pid: int) -> int | None:
    """When a process started, in ticks since boot; None when there is none. A zombie has ended."""
    try:
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in {"Z", "X"} else int(fields[_START_FIELD])
