"""The lock on a run's folder, for commands that roll the run out here, or resume it on workers.

Two would take each other's attempts away.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from desktop_image.locks import hold_file
from rollout_tasks.errors import UserError
from rollout_tasks.runs.folder import RunFolder

_NAME = ".lock"
"""The file stays there, empty. Its name begins with a dot, as no item's folder does."""
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS})
"""Errors of file systems without locks: runs are rolled out there all the same."""


@contextmanager
def held(folder: RunFolder, *, shared: bool = False) -> Iterator[None]:
    """Holds a run's folder for the body; the kernel releases it if this process is killed. No child inherits it.

    Args:
        folder: The run's.
        shared: Together with others that share it, as submitters to workers do: Redis decides which of those has the run.

    Raises:
        UserError: Another command holds it, or it cannot be written.
    """
    descriptor = None
    try:
        descriptor = hold_file(folder.path / _NAME, shared=shared)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise UserError(f"{folder.path} cannot be written: {error.strerror}") from error
    else:
        if descriptor is None:
            raise UserError(
                f"another command is rolling out run {folder.path.name} in {folder.path}; try again once it has ended"
            )
    try:
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)
