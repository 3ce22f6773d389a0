"""Temporary folders that are removed when their process ends; the next process removes those of killed ones."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.util import Finalize
from pathlib import Path

from desktop_image.locks import hold_folder

_NEW_SECONDS = 3600.0
"""A folder without its final name that is younger may be another process's."""


class TemporaryFolder:
    """A folder that is locked as long as this process (or one forked from it, or given the `lock`) lives, or until `remove`."""

    def __init__(self, prefix: str) -> None:
        """Makes it in the system's temporary folder, and removes those of the same prefix that no process holds."""
        parent = Path(tempfile.gettempdir()).absolute()
        _remove_abandoned(parent, prefix)
        unlocked = Path(tempfile.mkdtemp(prefix=f".{prefix}", dir=parent))
        self._lock = hold_folder(unlocked)
        self.path = unlocked.rename(parent / unlocked.name.removeprefix("."))
        self._owner = os.getpid()

    @property
    def lock(self) -> list[int]:
        """The descriptor that holds the lock, if any: for `pass_fds` of processes that use the folder after this one's end, too."""
        return [] if self._lock is None else [self._lock]

    def remove(self) -> None:
        """Removes it with all its contents. Harmless when repeated, and in a forked process."""
        if self._owner == os.getpid():
            self._owner = 0
            shutil.rmtree(self.path, ignore_errors=True)
            if self._lock is not None:
                os.close(self._lock)
                self._lock = None


def use_own_folder(prefix: str) -> None:
    """Gives this process, and those it starts, a new folder for temporary files, which it removes when it ends."""
    before, folder_before = os.environ.get("TMPDIR"), tempfile.tempdir
    folder = TemporaryFolder(prefix)

    def leave() -> None:
        folder.remove()
        tempfile.tempdir = folder_before
        _set_variable(before)  # a program that replaces this one has its environment

    # After those of `multiprocessing`, which removes its files in there with priority -100.
    Finalize(None, leave, exitpriority=-200)
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder.path)


@contextmanager
def programs_use(folder: Path) -> Iterator[None]:
    """Makes a folder, which the programs that this process starts meanwhile use for temporary files."""
    folder.mkdir()
    before = os.environ.get("TMPDIR")
    os.environ["TMPDIR"] = str(folder)
    try:
        yield
    finally:
        _set_variable(before)


def _set_variable(folder: str | None) -> None:
    if folder is None:
        os.environ.pop("TMPDIR", None)
    else:
        os.environ["TMPDIR"] = folder


def _remove_abandoned(parent: Path, prefix: str) -> None:
    for folder in [*parent.glob(f"{prefix}*"), *parent.glob(f".{prefix}*")]:
        with suppress(OSError):
            if folder.name.startswith(".") and time.time() - folder.stat().st_mtime < _NEW_SECONDS:
                continue  # it may be locked and renamed any moment
            lock = hold_folder(folder)
            if lock is not None:
                shutil.rmtree(folder, ignore_errors=True)
                os.close(lock)
