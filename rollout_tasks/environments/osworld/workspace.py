"""A folder for one attempt's working files, gone when the attempt is; a killed one's folder goes with the next."""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

_PREFIX = "osworld-"
_LOCK = ".lock"


class Workspace:
    """The folder; its lock is held as long as this process lives or until `remove`."""

    def __init__(self) -> None:
        """Makes it, in the system's folder for temporary files."""
        parent = Path(tempfile.gettempdir())
        _remove_abandoned(parent)
        unlocked = Path(tempfile.mkdtemp(prefix=f".{_PREFIX}", dir=parent))
        self._lock = (unlocked / _LOCK).open("wb")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.path = unlocked.rename(parent / unlocked.name.removeprefix("."))

    def remove(self) -> None:
        """Removes it with all that is in it. Harmless when repeated."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()


def _remove_abandoned(parent: Path) -> None:
    for lock in parent.glob(f"{_PREFIX}*/{_LOCK}"):
        with suppress(OSError), lock.open("wb") as file, _held(file):
            shutil.rmtree(lock.parent, ignore_errors=True)


@contextmanager
def _held(file: IO[bytes]) -> Iterator[None]:
    """Raises BlockingIOError where a living process holds it."""
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    yield
