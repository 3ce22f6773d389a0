"""Whose a VM's folder is: the process that made it holds a lock on it, which the kernel lets go of when that process dies."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

TRIES = 100
"""How often a folder is made anew because somebody else is just removing it or one above it."""
_PAUSE_SECONDS = 0.02


def make_held(folder: Path, mode: int) -> int:
    """Makes a folder and those above it that are missing, and holds it until the descriptor returned is closed.

    Raises:
        OSError: It cannot be made, or is another's.
    """
    why: OSError = BlockingIOError(f"{folder} is held by another process")
    for _ in range(TRIES):
        try:
            for part in (*reversed(folder.parents), folder):
                part.mkdir(mode=mode, exist_ok=True)
        except (FileNotFoundError, FileExistsError) as error:  # gone again between two steps
            why = error
            continue
        if (descriptor := hold(folder)) is not None:
            return descriptor
        time.sleep(_PAUSE_SECONDS)
    raise why


def hold(folder: Path) -> int | None:
    """Holds a folder until the descriptor returned is closed; None where another process holds it, or it is not there."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), folder.stat()):  # else it was removed, and made anew, meanwhile
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None


def abandoned(folders: Path) -> Iterator[Path]:
    """The folders among these that nobody holds; each is held while it is looked at."""
    with suppress(FileNotFoundError):
        for folder in sorted(folders.iterdir()):
            descriptor = hold(folder)
            if descriptor is not None:
                try:
                    yield folder
                finally:
                    os.close(descriptor)
