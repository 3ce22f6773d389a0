"""Whether a run is over, as its folder alone shows it: a file that is there from the run's end until it is resumed.

The file is empty, so that it can also be made on a full disk. Its name begins with a dot, as no item's folder does. Runs of
earlier versions have none.
"""

from __future__ import annotations

import os

from benchmark.whole_file import sync_folder
from rollout_tasks.runs.folder import RunFolder

_NAME = ".ended"


def is_over(folder: RunFolder) -> bool:
    """Whether the run has ended and was not resumed since; False also where nobody has recorded that."""
    return (folder.path / _NAME).exists()


def record_end(folder: RunFolder) -> None:
    """Records that the run is over, whether it has a report or not.

    Raises:
        OSError: The folder does not exist or cannot be written.
    """
    os.close(os.open(folder.path / _NAME, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))
    sync_folder(folder.path)


def record_beginning(folder: RunFolder) -> None:
    """Records that the run goes on.

    Raises:
        OSError: The folder cannot be written.
    """
    (folder.path / _NAME).unlink(missing_ok=True)
    sync_folder(folder.path)
