"""Builds parts of a virtual machine's image without root's rights, as the root of a user namespace.

Images of containers cannot be built in this way: their files must belong to ids that the user does not have. On a disk,
owners are only numbers.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from desktop_image import build_locks, namespace
from desktop_image.cache import ProgressCallback
from desktop_image.errors import GuestBuildError

REPOSITORY = Path(__file__).parents[1]


def is_needed() -> bool:
    """Returns whether this user must build in this way: anyone but root."""
    return os.geteuid() != 0


def build(what: str, target: Path, progress: ProgressCallback) -> None:
    """Builds a part into `target`, which must not exist.

    Args:
        what: ``kernel``, or the profile of a disk.
        target: The folder; afterwards it and its content belong to the user.
        progress: Called with each step.

    Raises:
        GuestBuildError: It cannot be built here.
    """
    command = [sys.executable, "-m", "desktop_image", what, str(target), *map(str, build_locks.descriptors())]
    code, said = namespace.run(command, folder=REPOSITORY, on_line=progress)
    if code:
        raise GuestBuildError(said or f"the guest image could not be built, and no reason was given (exit code {code})")
