"""The lock on a run's folder, for commands that roll the run out or prepare that: two would take each other's attempts away."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from desktop_image.locks import locked
from rollout_tasks.errors import UserError
from rollout_tasks.runs.folder import RunFolder

_NAME = ".lock"
"""The file stays there, empty. Its name begins with a dot, as no item's folder does."""
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS})
"""Errors of file systems without locks: runs are rolled out there all the same."""


@contextmanager
def held(folder: RunFolder) -> Iterator[None]:
    """Holds a run's folder for the body; the kernel releases it if this process is killed. No child inherits it.

    Raises:
        UserError: Another command holds it, or it cannot be written.
    """
    with ExitStack() as stack:
        try:
            mine = stack.enter_context(locked(folder.path / _NAME))
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise UserError(f"{folder.path} cannot be written: {error.strerror}") from error
        else:
            if not mine:
                raise UserError(
                    f"another command is rolling out run {folder.path.name} in {folder.path}; try again once it has ended"
                )
        yield
