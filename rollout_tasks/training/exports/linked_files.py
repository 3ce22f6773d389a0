"""Files of a run in an export: each content is on the disk once, where the file system has hard links."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

from rollout_tasks.trajectories.sampled_calls import read_picture


class LinkedFiles:
    """The pictures of an export, and other files of a run."""

    def __init__(self) -> None:
        """Has none yet."""
        self._first: dict[str, Path] = {}

    @property
    def count(self) -> int:
        """How many pictures there are, each counted once."""
        return len(self._first)

    def add_picture(self, name: str, source: Path, place: Path) -> None:
        """Puts a picture to a place; a file that is there stays.

        Args:
            name: The same for pictures of the same content alone.
            source: Its file in the run's folder.
            place: Where it goes, in a folder that exists.

        Raises:
            OSError: It is not a regular file, or cannot be read or written.
        """
        first = self._first.get(name)
        if first is not None and first == place:
            return
        if not _link(first or source, place):
            place.write_bytes(read_picture(first or source))
        if first is None:
            self._first[name] = place

    def add_file(self, source: Path, place: Path) -> bool:
        """Puts another file to a place, if it is a regular file; returns whether it is.

        Raises:
            OSError: It cannot be read or written.
        """
        if _link(source, place):
            return True
        try:
            descriptor = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return False
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return False
            with place.open("xb") as copy:
                shutil.copyfileobj(file, copy)
        return True


def _link(source: Path, place: Path) -> bool:
    """Links a regular file, and no symbolic link; returns whether that was possible."""
    try:
        os.link(source, place, follow_symlinks=False)
    except FileExistsError:
        raise
    except OSError:  # another file system, one without links, another user's file, or too many links
        return False
    if stat.S_ISREG(place.lstat().st_mode):
        return True
    place.unlink()  # somebody made it a link out of the folder
    return False
