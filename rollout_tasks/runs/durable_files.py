"""Files that are made once, whole and synced to the disk: of several processes, one is the first."""

from __future__ import annotations

import errno
import os
import secrets
from pathlib import Path

from benchmark.whole_file import write_whole

_NO_NAMELESS_FILES = frozenset({errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOSYS})
"""The errors of a file system that cannot make files without a name."""


def write_once(path: Path, text: str) -> bool:
    """Writes a whole file unless one of that name exists, even if others try the same at the same time.

    If the file system allows it, the file has no name until it is whole, so that a killed process leaves nothing.

    Returns:
        Whether the file of that name is this one.

    Raises:
        OSError: It cannot be written.
    """
    try:
        descriptor = os.open(path.parent, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o644)
    except (AttributeError, OSError) as error:
        if isinstance(error, OSError) and error.errno not in _NO_NAMELESS_FILES:
            raise
        return _write_once_by_name(path, text)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(descriptor)
        descriptors = os.open("/proc/self/fd", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.link(str(descriptor), path, src_dir_fd=descriptors, follow_symlinks=True)
        except FileExistsError:
            return os.path.samestat(path.stat(), os.fstat(descriptor))
        finally:
            os.close(descriptors)
    return True


def _write_once_by_name(path: Path, text: str) -> bool:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    write_whole(temporary, text)
    try:
        return link_once(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def link_once(source: Path, path: Path) -> bool:
    """Gives a whole file a second name unless a file of that name exists.

    Returns:
        Whether the file of that name is this one.

    Raises:
        OSError: The link cannot be made.
    """
    try:
        os.link(source, path)
    except FileExistsError:  # also where the answer to the first try was lost on its way from a file server
        return os.path.samefile(source, path)  # noqa: PTH121 - raises where Path's would say False
    return True
