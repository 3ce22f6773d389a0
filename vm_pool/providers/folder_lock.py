"""Locks on VM folders: the process that made a folder holds its lock; the kernel releases it when the process dies."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil

from desktop_image.locks import hold_folder, is_held
from vm_pool.errors import VMsInUse

LET_GO_SECONDS = 20.0
"""How long to wait for a process that uses VMs of the same names: it may be just ending."""
TRIES = 100
"""How often to try to make a folder while another process removes it or one above it."""
_PAUSE_SECONDS = 0.02
_LOOK_SECONDS = 0.2
_LOCKS = Path("/proc/locks")
log = logging.getLogger(__name__)


def make_held(folder: Path, mode: int) -> int:
    """Makes a folder and its missing parents, and locks it until the returned descriptor is closed.

    Raises:
        OSError: It cannot be made or locked, or another process holds it.
    """
    why: OSError = BlockingIOError(f"{folder} is held by another process")
    for _ in range(TRIES):
        try:
            for part in (*reversed(folder.parents), folder):
                if not part.is_dir():
                    part.mkdir(mode=mode)
                    part.chmod(mode)  # whatever the umask is
        except (FileNotFoundError, FileExistsError) as error:  # removed between two steps
            why = error
            continue
        try:
            if (descriptor := hold_folder(folder)) is not None:
                return descriptor
        except FileNotFoundError as error:
            why = error
        except OSError as error:  # as on NFS, which locks no folders
            raise OSError(error.errno, f"cannot be locked: {error.strerror}", str(folder)) from error
        time.sleep(_PAUSE_SECONDS)
    raise why


def still_holds(descriptor: int, path: Path) -> bool:
    """Whether a lock's descriptor is of what is there now: others may end the VMs of a process that was stopped, for example."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), path.stat())
    return False


def abandoned(folders: Path) -> Iterator[Path]:
    """Yields those of the folders that no process holds, each locked until the next one is requested."""
    with suppress(FileNotFoundError):
        for folder in sorted(folders.iterdir()):
            descriptor = None
            with suppress(OSError):  # it is missing by now, or is not a folder
                descriptor = hold_folder(folder)
            if descriptor is not None:
                try:
                    yield folder
                finally:
                    os.close(descriptor)


def wait_until_unused(paths: Iterable[Path]) -> None:
    """Waits until no other running process holds any of these. Stopped processes, as by SIGSTOP, do not count.

    Raises:
        VMsInUse: One is still held after `LET_GO_SECONDS`.
    """
    deadline = time.monotonic() + LET_GO_SECONDS
    for path in paths:
        said = False
        while holder := _running_holder(path):
            if time.monotonic() >= deadline:
                raise VMsInUse(_in_use(holder, path))
            if not said:
                log.info("%s uses %s: waiting for it to end", holder, path.name)
                said = True
            time.sleep(_LOOK_SECONDS)


def check_unused(path: Path) -> None:
    """Makes sure that no other running process holds a file or folder.

    Raises:
        VMsInUse: One does.
    """
    if holder := _running_holder(path):
        raise VMsInUse(_in_use(holder, path))


def _in_use(holder: str, path: Path) -> str:
    return f"{holder} uses {path.name}: stop that one, or give this host another id (--host-id)"


def _running_holder(path: Path) -> str:
    """Says which other process holds this and is not stopped; empty if none does."""
    if not _is_held(path):
        return ""
    pid = _listed_holder(path)
    if pid is None:
        return "a process that cannot be seen from here" if _is_held(path) else ""
    with suppress(psutil.NoSuchProcess):
        running = psutil.Process(pid).status() not in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
        if pid != os.getpid() and running:
            return f"process {pid} of this machine"
    return ""


def _is_held(path: Path) -> bool:
    with suppress(OSError):
        return is_held(path)
    return False


def _listed_holder(path: Path) -> int | None:
    """Returns the holder of a lock from the kernel's list, which has only those processes that can be seen from here."""
    with suppress(OSError):
        about = path.stat()
        place = f"{os.major(about.st_dev):02x}:{os.minor(about.st_dev):02x}:{about.st_ino}"
        for line in _LOCKS.read_text(encoding="ascii").splitlines():
            words = line.split()
            if words[1] != "FLOCK" or not words[5].endswith(f":{about.st_ino}") or (pid := int(words[4])) <= 0:
                continue
            if words[5] == place or _has_open(pid, about):  # btrfs, for one, lists another device than its files have
                return pid
    return None


def _has_open(pid: int, wanted: os.stat_result) -> bool:
    with suppress(OSError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                if os.path.samestat(descriptor.stat(), wanted):
                    return True
    return False
