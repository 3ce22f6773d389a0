"""Which ids of the host stand for a desktop's users: a range for each desktop, for what the kernel counts, it counts by user.

With a range of its own, no desktop uses up what another may have: watchers of files, pending signals, message queues, watches of
epoll, descriptors in flight, pages in pipes. The image's files belong to one range of ids, whichever desktop reads them: their
owners are shifted where they are mounted (`entry.py`). Where a machine cannot shift them, desktops share the image's range; what
belongs to a user namespace is still counted for each, by the namespace's owner.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from desktop_image import GUEST_ID_COUNT, GUEST_ID_SHIFT

RANGES = 4096
"""As many desktops have a range of their own on one machine."""
_FIRST = 0x60000000
_FILE = "ids"


class NoRangeLeft(RuntimeError):
    """As many desktops as there are ranges run on this machine."""


@dataclass(frozen=True, slots=True)
class IdRange:
    """The ids of one desktop."""

    number: int
    """No other desktop on the machine has it."""
    shared: bool
    """Whether its users are the same ids outside as those of other desktops."""

    @property
    def first(self) -> int:
        """The id outside of the desktop's root."""
        return GUEST_ID_SHIFT if self.shared else _FIRST + self.number * GUEST_ID_COUNT

    @property
    def owner(self) -> int:
        """Whose the user namespace is: an id outside that is no other desktop's owner."""
        return self.first + (self.number if self.shared else 0)


def claim(folder: Path, *, shared: bool) -> IdRange:
    """Takes a range for the desktop that a folder is of; it is taken as long as the folder is there.

    Args:
        folder: The desktop's, beside those of all others on the machine.
        shared: Whether this machine cannot shift owners.

    Raises:
        NoRangeLeft: All are taken.
    """
    descriptor = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        taken = {_number_of(other) for other in folder.parent.iterdir() if other != folder}
        number = next((number for number in range(RANGES) if number not in taken), None)
        if number is None:
            raise NoRangeLeft(f"{RANGES} desktops run on this machine, and no more can")
        (folder / _FILE).write_text(str(number))
    finally:
        os.close(descriptor)
    return IdRange(number, shared)


def _number_of(folder: Path) -> int | None:
    with suppress(OSError, ValueError):
        return int((folder / _FILE).read_text())
    return None
