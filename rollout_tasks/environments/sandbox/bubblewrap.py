"""The sandbox's isolation: the bubblewrap command that starts a program in its own namespaces, and why it may fail."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from rollout_tasks.cells import seccomp, system_calls

NOBODY = "65534"
SCRATCH = "/tmp"  # noqa: S108  the sandbox's own, in memory
"""The only writable folder; it is deleted with the sandbox."""
PROGRAM = "/program.py"
SYSTEM_CALLS = system_calls.ALONE | {"execve", "wait4"}
"""The system calls allowed: the code's, and bubblewrap's to start the interpreter and wait for its end."""
_LIBRARIES = ("/usr/lib", "/usr/lib64", "/lib", "/lib64")


class SandboxUnavailable(RuntimeError):
    """This machine cannot isolate code; the message says what to install or enable."""


def command(program: Path, arguments: list[str], *, scratch_bytes: int, seccomp_descriptor: int) -> list[str]:
    """Returns the command line that runs a Python program in the sandbox.

    The program sees only the interpreter, its standard library and the system's libraries, all read-only. It has no
    network, no /proc, no device and no capability, and dies with the thread that started it. Its user id maps to the
    caller's, which may be root: through a descriptor or writable mount of the host it could change files as their
    owner, so it gets neither.

    Args:
        program: The program; it needs nothing but the standard library.
        arguments: Its arguments.
        scratch_bytes: Space in `SCRATCH`.
        seccomp_descriptor: A readable descriptor that holds the system call filter.

    Raises:
        SandboxUnavailable: bubblewrap is not installed.
    """
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        raise SandboxUnavailable("running Python safely needs bubblewrap: install it (apt-get install bubblewrap)")
    python = Path(sys.executable).resolve()
    line = [bwrap, "--unshare-user", "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    line += ["--uid", NOBODY, "--gid", NOBODY, "--hostname", "sandbox", "--seccomp", str(seccomp_descriptor)]
    line += ["--clearenv", "--setenv", "HOME", SCRATCH, "--setenv", "LANG", "C.UTF-8"]
    for folder in _LIBRARIES:
        line += _library(Path(folder))
    line += [*_read_only(python), *_read_only(Path(sys.base_prefix).resolve() / "lib")]
    for extra in ("/etc/ld.so.cache", "/usr/share/zoneinfo"):
        line += ["--ro-bind-try", extra, extra]
    line += ["--ro-bind", str(program), PROGRAM]
    line += ["--size", str(scratch_bytes), "--tmpfs", SCRATCH, "--chdir", SCRATCH, "--remount-ro", "/"]
    return [*line, "--", str(python), "-I", "-S", "-B", "-X", "utf8", PROGRAM, *arguments]


def _read_only(path: Path) -> list[str]:
    return ["--ro-bind", str(path), str(path)]


def _library(folder: Path) -> list[str]:
    if folder.is_symlink():
        return ["--symlink", str(folder.readlink()), str(folder)]
    return _read_only(folder) if folder.is_dir() else []


def filter_descriptor() -> int:
    """Returns a descriptor from which the system call filter can be read once; the caller closes it.

    Raises:
        SandboxUnavailable: No filter exists for this machine.
    """
    if sys.platform != "linux" or not seccomp.supported():
        raise SandboxUnavailable("running Python safely needs Linux on x86_64 or aarch64")
    readable, writable = os.pipe()
    try:
        os.write(writable, seccomp.program(SYSTEM_CALLS))
    finally:
        os.close(writable)
    return readable


def reason_of(printed: str) -> str:
    """Returns what to do about bubblewrap's error message."""
    said = " ".join(printed.split())[:300] or "no reason given"
    if "Unknown option" in printed:
        return f"running Python safely needs bubblewrap 0.7 or newer: {said}"
    return (
        f"bubblewrap cannot isolate here ({said}): allow unprivileged user namespaces (sysctl "
        "user.max_user_namespaces, kernel.apparmor_restrict_unprivileged_userns=0; in Docker --security-opt "
        "seccomp=unconfined --security-opt apparmor=unconfined)"
    )
