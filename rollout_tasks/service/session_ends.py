"""Sessions that do not end by themselves: whose clients are silent, whose processes are stuck, or were killed with a VM."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable

from rollout_tasks.redis_client import connect
from rollout_tasks.service.played_session import PlayedSession
from vm_pool.errors import PoolError
from vm_pool.pool import VMPool

logger = logging.getLogger(__name__)

END_SECONDS = 75.0
"""How long a session may take to end once it was told to: longer than a hurried cleanup and its grace."""


def forgive(sessions: Iterable[PlayedSession], seconds: float) -> None:
    """Counts some seconds as no silence: nobody could have been heard. Where the program is always late, leases last longer."""
    now = time.monotonic()
    for session in sessions:
        session.used = max(session.used, min(now, session.used + seconds))


def stop_silent(sessions: Iterable[PlayedSession]) -> None:
    """Stops sessions whose clients are silent for too long. A client whose call is being carried out is not."""
    now = time.monotonic()
    for session in sessions:
        if not session.calls and now - session.used > session.silent_seconds:
            session.stop(f"its client was silent for {session.silent_seconds:g} s")


def kill_stuck(sessions: Iterable[PlayedSession]) -> None:
    """Kills the processes of sessions that were stopped and do not end; not one that boots a VM of its own, which would be left."""
    now = time.monotonic()
    for session in sessions:
        boots = session.vm_id is None and not session.order.config.vm.use_pool
        if session.stopped_at and not boots and now - session.stopped_at > END_SECONDS:
            session.kill()


def give_back(session: PlayedSession, pool: str) -> None:
    """Gives back the VM of a session whose process was killed; where that fails, its lease expires."""
    if session.vm_id is None:
        return
    try:
        with connect(tries=0) as client:
            VMPool(client, pool).release(session.vm_id, session.fence or 0)
    except PoolError as error:
        logger.warning("session %s: %s is left to expire: %s", session.id, session.vm_id, error)
