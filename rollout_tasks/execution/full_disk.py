"""Waits while the disk for results is full, so that this costs time and not rollouts."""

from __future__ import annotations

import errno
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from rollout_tasks.redis_client import REFUSED_SECONDS

logger = logging.getLogger(__name__)

PATIENCE_SECONDS = REFUSED_SECONDS
"""How long to wait for room: as long as for a Redis without memory."""
_PAUSE_SECONDS = (0.1, 5.0)
"""Seconds between two tries: at first, and at most."""
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})

_Made = TypeVar("_Made")


def once_there_is_room(write: Callable[[], _Made], folder: Path, *, wanted: Callable[[], bool]) -> _Made:
    """Writes something; tries again while the disk, or a quota on it, is full.

    Args:
        write: Writes it; safe to repeat after a failure.
        folder: Where it writes, for the log.
        wanted: Called between two tries; returns whether it is still needed, or raises to end the wait.

    Returns:
        What `write` returns.

    Raises:
        OSError: Another problem; or there is still no room after an hour, or it is no longer wanted.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    pause, longest = _PAUSE_SECONDS
    waited = False
    while True:
        try:
            made = write()
        except OSError as error:
            if error.errno not in _FULL or time.monotonic() >= deadline or not wanted():
                raise
            if not waited:
                logger.error("%s: %s; trying again for %.0f s at most", folder, error.strerror, PATIENCE_SECONDS)
            waited = True
        else:
            if waited:
                logger.warning("%s: there is room again", folder)
            return made
        time.sleep(pause)
        pause = min(2 * pause, longest)
