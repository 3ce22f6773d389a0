"""A session's folder: `session.json`, which says how it ended, beside what its process records of the episode."""

from __future__ import annotations

import json
import logging
import time
from dataclasses import asdict
from typing import Any

from benchmark.whole_file import write_whole
from rollout_tasks.service.played_session import PlayedSession
from rollout_tasks.service.session_order import SessionOrder
from rollout_tasks.service.session_results import NoRoom, SessionEnd, SessionRefused

logger = logging.getLogger(__name__)

SUMMARY_NAME = "session.json"


def make_folder(order: SessionOrder) -> None:
    """Makes a session's folder.

    Raises:
        NoRoom: It cannot be made.
        SessionRefused: There is one.
    """
    try:
        order.folder.mkdir(parents=True)
    except FileExistsError:
        used = f"the name {order.session_id!r} is used up: there is the record of an earlier session"
        raise SessionRefused(used) from None
    except OSError as error:
        raise NoRoom(f"the record of a session cannot be written: {error.strerror}") from error


def facts_of(session: PlayedSession, end: SessionEnd | None) -> dict[str, Any]:
    """Returns what is said of a session: JSON values.

    Args:
        session: The session.
        end: How it ended, if it has.
    """
    facts = {
        "session_id": session.id,
        "item_id": session.order.item.id,
        "index": session.order.index,
        "state": _state_of(session, end),
        "vm_id": session.vm_id,
        "fence": session.fence,
        "turns": session.turn,
        "began": session.began,
    }
    if end is None:
        return {**facts, "idle_seconds": round(time.monotonic() - session.used, 3)}
    return {**facts, **asdict(end), "reward": end.reward}


def _state_of(session: PlayedSession, end: SessionEnd | None) -> str:
    if end is not None:
        return "ended"
    if session.over:
        return "over"
    return "ready" if session.ready else "waiting"


def write_end(session: PlayedSession, end: SessionEnd) -> None:
    """Writes down how a session ended; logs it where that fails."""
    try:
        text = json.dumps(facts_of(session, end), indent=2)
        write_whole(session.order.folder / SUMMARY_NAME, text + "\n")
    except OSError as error:
        logger.error("the record of session %s cannot be written: %s", session.id, error)
