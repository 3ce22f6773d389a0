"""Waits while the disk for results is full or fails, so that this costs time and not the rollouts of the whole queue."""

from __future__ import annotations

import errno
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from rollout_tasks.errors import UserError
from rollout_tasks.redis_client import REFUSED_SECONDS

logger = logging.getLogger(__name__)

PATIENCE_SECONDS = REFUSED_SECONDS
"""How long to wait for the disk: as long as for a Redis without memory."""
_PAUSE_SECONDS = (0.1, 5.0)
"""Seconds between two tries: at first, and at most."""
_FULL = {errno.ENOSPC, errno.EDQUOT}
_FAILING = {errno.EROFS, errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN, errno.EHOSTDOWN}
"""Mounted again as read-only, broken, or on a file server that is away or has lost it: somebody may repair that meanwhile."""

_Made = TypeVar("_Made")


def once_usable(use: Callable[[], _Made], folder: Path, *, wanted: Callable[[], bool]) -> _Made:
    """Uses the disk; tries again while it, or a quota on it, is full, and while it is read-only or fails.

    Args:
        use: Reads or writes; safe to repeat after a failure.
        folder: Where it does so, for the log.
        wanted: Called between two tries; returns whether it is still needed, or raises to end the wait.

    Returns:
        What `use` returns.

    Raises:
        OSError: Another problem; or it is still this one after an hour, or nobody wants it any more.
        UserError: The same, where `use` makes a sentence of it.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    pause, longest = _PAUSE_SECONDS
    waited = False
    while True:
        try:
            made = use()
        except (OSError, UserError) as error:
            problem = _of_the_disk(error)
            if problem is None or time.monotonic() >= deadline or not wanted():
                raise
            if not waited:
                logger.error("%s: %s; trying again for %.0f s at most", folder, problem.strerror, PATIENCE_SECONDS)
            waited = True
        else:
            if waited:
                logger.warning("%s: it can be used again", folder)
            return made
        time.sleep(pause)
        pause = min(2 * pause, longest)


def _of_the_disk(error: OSError | UserError) -> OSError | None:
    """Returns the disk's trouble behind an error; None if it is another one."""
    problem = error if isinstance(error, OSError) else error.__cause__
    return problem if isinstance(problem, OSError) and problem.errno in _FULL | _FAILING else None
