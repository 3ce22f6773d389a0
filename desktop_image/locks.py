"""Locks on files and folders. The kernel releases them when the holding process ends, even if it is killed."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_LOOK_SECONDS = 0.02


def hold_folder(folder: Path, *, seconds: float = 0.0) -> int | None:
    """Locks a folder until the returned descriptor is closed, in this process and those forked from it.

    Args:
        folder: An existing folder, not a link to one.
        seconds: How long to wait while another process holds it.

    Returns:
        A descriptor; None if another process still holds it.

    Raises:
        OSError: It is missing, or cannot be opened.
    """
    return _hold(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, fcntl.LOCK_EX, seconds)


def hold_file(path: Path, *, seconds: float = 0.0, shared: bool = False) -> int | None:
    """Locks a file, which it creates, as `hold_folder` does a folder; if `shared`, together with others that share it.

    The file may belong to another user who lets this one read it. On NFS, where a lock that is not shared needs the right to
    write, the file must be writable for this user: that depends on the umask of the user who creates it.
    """
    how = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        return _hold(path, os.O_RDWR | os.O_CREAT, how, seconds)
    except PermissionError as refused:
        if not path.exists():
            raise
        try:
            return _hold(path, os.O_RDONLY, how, seconds)
        except OSError as error:
            if error.errno == errno.EBADF:
                raise refused from None
            raise


def is_held(path: Path) -> bool:
    """Whether a process, which may be this one, holds a file or folder.

    Raises:
        OSError: It is missing, or cannot be opened.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: NFS locks nothing alone that is only read
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


@contextmanager
def locked(path: Path, *, seconds: float = 0.0) -> Iterator[bool]:
    """Holds the lock on a file for the body; yields whether it has the lock."""
    descriptor = hold_file(path, seconds=seconds)
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _hold(path: Path, flags: int, how: int, seconds: float) -> int | None:
    deadline = time.monotonic() + seconds
    while True:
        descriptor = os.open(path, flags | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, how | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            if time.monotonic() >= deadline:
                return None
            time.sleep(_LOOK_SECONDS)
            continue
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # it was removed, or replaced, after it was opened
