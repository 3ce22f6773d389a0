"""Locks on VM folders: the process that made a folder holds its lock; the kernel releases it when the process dies."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil

from desktop_image.locks import hold_folder
from vm_pool.errors import VMsInUse

LET_GO_SECONDS = 20.0
"""How long to wait for a process that uses VMs of the same names: it may be just ending."""
TRIES = 100
"""How often to try to make a folder while another process removes it or one above it."""
_PAUSE_SECONDS = 0.02
_LOOK_SECONDS = 0.2
log = logging.getLogger(__name__)


def make_held(folder: Path, mode: int) -> int:
    """Makes a folder and its missing parents, and locks it until the returned descriptor is closed.

    Raises:
        OSError: It cannot be made, or another process holds it.
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
        if (descriptor := _hold(folder)) is not None:
            return descriptor
        time.sleep(_PAUSE_SECONDS)
    raise why


def _hold(folder: Path) -> int | None:
    """Locks a folder until the returned descriptor is closed; None if another process holds it or it is missing."""
    with suppress(OSError):
        return hold_folder(folder)
    return None


def abandoned(folders: Path) -> Iterator[Path]:
    """Yields those of the folders that no process holds, each locked until the next one is requested."""
    with suppress(FileNotFoundError):
        for folder in sorted(folders.iterdir()):
            descriptor = _hold(folder)
            if descriptor is not None:
                try:
                    yield folder
                finally:
                    os.close(descriptor)


def wait_until_unused(folders: Iterable[Path]) -> None:
    """Waits until no other running process holds any of these folders. Stopped processes, as by SIGSTOP, do not count.

    Raises:
        VMsInUse: One is still held after `LET_GO_SECONDS`.
    """
    deadline = time.monotonic() + LET_GO_SECONDS
    for folder in folders:
        said = False
        while (pid := _running_holder(folder)) is not None:
            if time.monotonic() >= deadline:
                raise VMsInUse(_in_use(pid, folder))
            if not said:
                log.info("%s: waiting for it to end", _user_of(pid, folder))
                said = True
            time.sleep(_LOOK_SECONDS)


def check_unused(folder: Path) -> None:
    """Makes sure that no other running process holds a folder.

    Raises:
        VMsInUse: One does.
    """
    if (pid := _running_holder(folder)) is not None:
        raise VMsInUse(_in_use(pid, folder))


def _in_use(pid: int, folder: Path) -> str:
    return f"{_user_of(pid, folder)}: stop that one, or give this host another id (--host-id)"


def _user_of(pid: int, folder: Path) -> str:
    return f"process {pid} of this machine uses {folder.name}"


def _running_holder(folder: Path) -> int | None:
    """Returns the other process that holds a folder and is not stopped; None if none can be seen from here."""
    with suppress(FileNotFoundError, psutil.NoSuchProcess):
        about = folder.stat()
        place = f"{os.major(about.st_dev):02x}:{os.minor(about.st_dev):02x}:{about.st_ino}"
        for line in Path("/proc/locks").read_text(encoding="ascii").splitlines():
            words = line.split()
            if words[1] == "FLOCK" and words[5] == place and (pid := int(words[4])) not in (0, os.getpid()):
                running = psutil.Process(pid).status() not in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
                return pid if running else None
    return None
