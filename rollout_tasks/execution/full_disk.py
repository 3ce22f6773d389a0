"""Waiting for room where results are written: a disk that is full for a while costs time, not rollouts."""

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
"""How long room is waited for: as long as a Redis without memory is."""
_PAUSE_SECONDS = (0.1, 5.0)
"""Between two tries: at first, and at most."""
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})

_Made = TypeVar("_Made")


def once_there_is_room(write: Callable[[], _Made], folder: Path, *, wanted: Callable[[], bool]) -> _Made:
    """Writes something, as often as it takes while the disk, or somebody's share of it, is full.

    Args:
        write: Does it; safe to repeat after it failed.
        folder: Where it writes, for the log.
        wanted: Asked between two tries whether anybody still needs it; may raise what ends the wait.

    Returns:
        What `write` returns.

    Raises:
        OSError: Another problem; or there is still no room after an hour, or it is not wanted any more.
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
