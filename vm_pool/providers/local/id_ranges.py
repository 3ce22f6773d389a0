"""The host ids of each desktop's users: each desktop has its own range, as the kernel counts many resources by user.

With its own range, no desktop uses up another's share of file watches, pending signals, message queues, epoll watches,
descriptors in flight and pipe pages. The image's files belong to one range of ids, whichever desktop reads them: their
owners are shifted where they are mounted (`entry.py`). Where a machine cannot shift them, desktops share the image's
range; resources of a user namespace are still counted for each, by the namespace's owner.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from desktop_image import GUEST_ID_COUNT, GUEST_ID_SHIFT
from desktop_image.locks import hold_folder

RANGES = 4096
"""The most desktops with their own range on one machine."""
_FIRST = 0x60000000
_FILE = "ids"
_WAIT_SECONDS = 60.0
"""How long to wait for desktops that take their ranges at the same time."""


class NoRangeLeft(RuntimeError):
    """All ranges are used by desktops on this machine."""


@dataclass(frozen=True, slots=True)
class IdRange:
    """The ids of one desktop."""

    number: int
    """Unique among the desktops on the machine."""
    shared: bool
    """Whether its users have the same host ids as those of other desktops."""

    @property
    def first(self) -> int:
        """The host id of the desktop's root."""
        return GUEST_ID_SHIFT if self.shared else _FIRST + self.number * GUEST_ID_COUNT

    @property
    def owner(self) -> int:
        """The host id that owns its user namespace, and no other desktop's."""
        return self.first + (self.number if self.shared else 0)


def claim(folder: Path, *, shared: bool) -> IdRange:
    """Takes a range for the desktop of a folder; it is taken as long as the folder exists.

    Args:
        folder: The desktop's, next to those of all others on the machine.
        shared: Whether this machine cannot shift owners.

    Raises:
        NoRangeLeft: All are taken.
        TimeoutError: Other desktops did not finish taking theirs.
    """
    descriptor = hold_folder(folder.parent, seconds=_WAIT_SECONDS)
    if descriptor is None:
        raise TimeoutError(f"another process has locked {folder.parent} for {_WAIT_SECONDS:.0f} s")
    try:
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
