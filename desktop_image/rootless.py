"""Parts of a virtual machine's image, built by a user who is not root: as the root of a user namespace.

What containers use cannot be made like that, for its owners must be ids that the user does not have; a disk can, for the owners
of what is in it are numbers.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from desktop_image import namespace
from desktop_image.cache import Progress
from desktop_image.errors import GuestBuildError

REPOSITORY = Path(__file__).parents[1]


def is_needed() -> bool:
    """Whether this user must build like this."""
    return os.geteuid() != 0


def build(what: str, target: Path, progress: Progress) -> None:
    """Builds a part into `target`, which must not exist.

    Args:
        what: ``kernel``, or the profile of a disk.
        target: The folder; the user's own afterwards, as is all in it.
        progress: Told what is done next.

    Raises:
        GuestBuildError: It cannot be built here.
    """
    command = [sys.executable, "-m", "desktop_image", what, str(target)]
    code, said = namespace.run(command, folder=REPOSITORY, hear=progress)
    if code:
        raise GuestBuildError(said or f"the guest image could not be built, and nothing says why (exit code {code})")
