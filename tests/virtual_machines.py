"""What tests of virtual machines share: waiting for something, and whatever a machine leaves behind."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from vm_pool.providers.qemu import acceleration

_QEMU = shutil.which("qemu-system-x86_64") or "qemu-system-x86_64"
_FAILING_KVM = f"""#!{sys.executable}
# A QEMU whose KVM serves the probe, and then fails as one inside another machine may. All else is QEMU's own.
import ctypes, os, signal, subprocess, sys

arguments = sys.argv[1:]
if "kvm" not in arguments:
    os.execv({_QEMU!r}, [{_QEMU!r}, *arguments])
if any("isa-debug-exit" in one for one in arguments):
    sys.exit(33)
at = arguments.index("-accel")
arguments[at + 1 : at + 4] = ["tcg", "-cpu", "max"]
if "-runas" in arguments:  # with another user, it would not end with this process
    del arguments[(at := arguments.index("-runas")) : at + 2]
qemu = subprocess.Popen(
    [{_QEMU!r}, *arguments],
    stdout=subprocess.PIPE,
    close_fds=False,
    preexec_fn=lambda: ctypes.CDLL(None).prctl(1, signal.SIGKILL),
)
for line in qemu.stdout:
    os.write(1, line.replace(b'"status": "running"', b'"status": "internal-error"'))
"""


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


def put_failing_kvm(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Puts a QEMU on the path whose KVM takes the probe and fails a guest; returns its command."""
    command = folder / "failing-kvm" / "qemu-system-x86_64"
    command.parent.mkdir()
    command.write_text(_FAILING_KVM)
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{command.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(acceleration, "DEVICE", folder)
    return str(command)
