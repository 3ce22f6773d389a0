"""The filesystem of a template and its cells: the interpreter, its packages, the system's libraries and programs, read-only.

bubblewrap makes it once, for the template; each cell adds its own parts (`isolation.py`). Root makes it as root, and each
cell becomes a different user. Other users, and a root without rights as in a container, make it in a user namespace: there all
cells are one user, which is the caller outside.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from rollout_tasks.cells import seccomp
from rollout_tasks.cells.isolation import FOLDER, HOSTS_NAME
from vm_pool.processes import run_within

_SYSTEM = ("/usr/bin", "/usr/lib", "/usr/lib64", "/usr/share", "/bin", "/lib", "/lib64")
_FILES = (
    "/etc/alternatives",
    "/etc/fonts",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
)
_TEMPORARY = "/tmp"  # noqa: S108
_DEVICES = ("null", "full", "random", "urandom")
"""Without ``zero``: mapped, it is shared memory that the kernel counts for no process (`seccomp`)."""
_RIGHTS = ("SYS_ADMIN", "NET_ADMIN", "NET_BIND_SERVICE", "SETUID", "SETGID", "SETPCAP", "KILL")
"""Capabilities that the template needs to make cells; cells have none."""
_VARIABLES = {
    "PATH": "/usr/bin",
    "HOME": FOLDER,
    "TMPDIR": FOLDER,
    "LANG": "C.UTF-8",
    "MPLCONFIGDIR": FOLDER,
    "NUMBA_CACHE_DIR": FOLDER,
    "OPENBLAS_NUM_THREADS": "1",  # threads do not survive a fork
    "OMP_NUM_THREADS": "1",
}
_TEMPLATE_BYTES = 64 << 20
"""Space for what imports write; no cell sees it."""
_CHECK_SECONDS = 20.0
_HOW = (
    "allow unprivileged user namespaces (sysctl user.max_user_namespaces, kernel.apparmor_restrict_unprivileged_userns=0;"
    " in Docker --security-opt seccomp=unconfined --security-opt apparmor=unconfined)"
)


class CellsUnavailable(RuntimeError):
    """This machine cannot make cells; the message says what to install or enable."""


@dataclass(frozen=True, slots=True)
class CellFilesystem:
    """A way to make the cells' filesystem on this machine."""

    as_root: bool

    def command(self, arguments: Sequence[str], packages: Iterable[Path]) -> list[str]:
        """Returns the command line that runs the interpreter in it.

        Args:
            arguments: The interpreter's arguments.
            packages: Folders of packages that it imports besides the installed ones.
        """
        line = [_bubblewrap(), "--die-with-parent", "--new-session", "--unshare-pid", "--unshare-net", "--unshare-ipc"]
        line += ["--unshare-uts", "--unshare-cgroup-try", "--hostname", "cells", "--clearenv"]
        if not self.as_root:
            line += ["--unshare-user", "--uid", "65534", "--gid", "65534"]
        line += ["--cap-drop", "ALL"]
        for right in _RIGHTS:
            line += ["--cap-add", f"CAP_{right}"]
        packages = list(packages)
        path = os.pathsep.join(dict.fromkeys(str(package.parent) for package in packages))
        for name, value in (_VARIABLES | {"PYTHONPATH": path}).items():
            line += ["--setenv", name, value]
        above = _folders_above([*_SYSTEM, *_FILES, *map(str, _interpreter()), *map(str, packages), "/dev/null"])
        for folder in above:
            line += ["--dir", folder]  # otherwise bubblewrap makes them for root only
        for library in map(Path, _SYSTEM):
            line += _library(library)
        for place in _interpreter():
            line += ["--ro-bind", str(place), str(place)]
        for file in _FILES:
            line += ["--ro-bind-try", file, file]
        for package in packages:
            line += ["--ro-bind", str(package), str(package)]
        for device in _DEVICES:
            line += ["--dev-bind", f"/dev/{device}", f"/dev/{device}"]
        line += ["--size", str(_TEMPLATE_BYTES), "--tmpfs", FOLDER, "--chdir", FOLDER]
        line += ["--symlink", f"{FOLDER}/{HOSTS_NAME}", "/etc/hosts"]
        if _TEMPORARY not in above:  # if the interpreter or a package is below it, programs must use TMPDIR
            line += ["--symlink", FOLDER, _TEMPORARY]
        return [*line, "--remount-ro", "/", "--", sys.executable, "-B", "-P", "-X", "utf8", *arguments]


@lru_cache(maxsize=1)
def cell_filesystem() -> CellFilesystem:
    """Returns the way that works on this machine; tested once.

    Raises:
        CellsUnavailable: No way works.
    """
    if sys.platform != "linux" or not seccomp.supported():
        raise CellsUnavailable("cells need Linux on x86_64 or aarch64")
    reason = ""
    for as_root in (True, False) if os.geteuid() == 0 else (False,):
        one = CellFilesystem(as_root)
        reason = why_unusable(one)
        if not reason:
            return one
    raise CellsUnavailable(f"bubblewrap cannot make cells here ({reason}): {_HOW}")


def why_unusable(one: CellFilesystem) -> str:
    """Returns why a way to make cells fails on this machine; empty if it works."""
    packages = [Path(__file__).resolve().parent.parent]
    command = one.command(["-S", "-m", "rollout_tasks.cells.self_test"], packages)
    try:
        code, messages = run_within(command, _CHECK_SECONDS, cwd="/", env={})
    except subprocess.TimeoutExpired:
        return f"it does not answer within {_CHECK_SECONDS:g} s"
    lines = messages.strip().splitlines()
    return "" if code == 0 else " ".join(lines[-1].split())[:300] if lines else "no reason given"


def _bubblewrap() -> str:
    found = shutil.which("bwrap")
    if found is None:
        raise CellsUnavailable("cells need bubblewrap: install it (apt-get install bubblewrap)")
    return found


def _interpreter() -> list[Path]:
    """Returns the paths of this interpreter and its installed packages, unless they are in the system's folders."""
    wanted = [Path(sys.executable).resolve(), Path(sys.base_prefix).resolve() / "lib"]
    if sys.prefix != sys.base_prefix:
        wanted.append(Path(sys.prefix))
    system = [Path(folder).resolve() for folder in _SYSTEM]
    return [place for place in wanted if not any(place.resolve().is_relative_to(folder) for folder in system)]


def _folders_above(places: Iterable[str]) -> list[str]:
    """Returns every folder above the given paths, outer ones first."""
    found = {str(parent): len(parent.parts) for place in places for parent in Path(place).parents if parent.parts[1:]}
    return sorted(found, key=lambda folder: found[folder])


def _library(folder: Path) -> list[str]:
    if folder.is_symlink():
        return ["--symlink", str(folder.readlink()), str(folder)]
    return ["--ro-bind", str(folder), str(folder)] if folder.is_dir() else []
