"""What tests of virtual machines share: waiting for something, and whatever a machine leaves behind."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path


def wait_until(holds: Callable[[], object], *, seconds: float = 60) -> None:
    """Looks until something holds; fails when it does not in time."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"did not happen within {seconds} s"
        time.sleep(0.02)


def processes_naming(mark: str) -> list[str]:
    """The processes with a text in their command lines, as ``pid command line``; Python's ``-c`` apart."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if mark in line and " -c " not in line and int(entry.name) != os.getpid():
                found.append(f"{entry.name} {line}")
    return found
