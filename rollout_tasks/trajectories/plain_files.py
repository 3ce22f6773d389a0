"""Files of a run's folder that may come from elsewhere: read only if they are plain, of a sane size, and really in the folder."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from rollout_tasks.errors import UserError


def check_plain(root: Path, path: Path, most_bytes: int) -> None:
    """Refuses a file that is none, that a link leads to, or that is too large.

    Args:
        root: The folder that it must be in.
        path: The file, below `root`.
        most_bytes: How large it may be.

    Raises:
        FileNotFoundError: There is no such file.
        UserError: It must not be read; one sentence.
    """
    try:
        found = path.lstat()
    except NotADirectoryError as error:
        raise FileNotFoundError(str(path)) from error
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    expected = os.path.join(os.path.realpath(root), path.relative_to(root))  # noqa: PTH118 - twice as fast, for each rollout
    if os.path.realpath(path) != expected:
        raise UserError(f"{path} is not read: a link leads to it")
    if not stat.S_ISREG(found.st_mode):
        raise UserError(f"{path} is not read: it is not a plain file")
    if found.st_size > most_bytes:
        raise UserError(f"{path} is not read: it has {found.st_size:,} bytes, more than {most_bytes:,}")
