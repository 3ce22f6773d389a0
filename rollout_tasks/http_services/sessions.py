"""Sessions that programs on other machines open, use and close over HTTP, each with a record of its calls.

    POST   /sessions        {"id": ..., "calls": ..., "tokens": ...}, each of which may be left out
                            -> 201 {"id", "base_url", "messages_url", "token"}
    GET    /sessions        -> {"sessions": [{"id", "calls", "reward", "idle_seconds", ...}]}
    DELETE /sessions/{id}   -> {"id", "calls", "reward", ...}: what happened in it

These need a service's token (`ServiceTokens`), and show and end the sessions of its owner alone; what is below a session needs
that session's own.
"""

from __future__ import annotations

import json
import logging
import re
import secrets
import shutil
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmark.whole_file import write_whole
from rollout_tasks.errors import UserError
from rollout_tasks.http_services.tokens import ServiceTokens
from rollout_tasks.models.gateway.engine import Engine
from rollout_tasks.models.gateway.gateway import Gateway, SessionHandle
from rollout_tasks.models.gateway.refused import Refused
from rollout_tasks.models.gateway.session_summary import SessionLimits
from rollout_tasks.models.served_call import ServedCall
from rollout_tasks.trajectories.calls import CallWriter

logger = logging.getLogger(__name__)

MOST_SESSIONS = 1_000
"""Open at a time, of each owner."""
IDLE_SECONDS = 3600.0
"""A session without a call for so long is closed: whoever opened it has died."""
SUMMARY_NAME = "session.json"
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_LARGEST_LIMIT = 10**9


@dataclass(slots=True)
class _Opened:
    handle: SessionHandle
    owner: str
    recorder: _Recorder
    writing: threading.Lock = field(default_factory=threading.Lock)
    """Held while its `session.json` is written, so that the last one has the last reward."""


class _Recorder:
    """The record of one session, which notes when it was last used."""

    def __init__(self, name: str, writer: CallWriter) -> None:
        self._name = name
        self.writer = writer
        self.used = time.monotonic()

    def record(self, call: ServedCall) -> None:
        """See `Recorder`."""
        self.used = time.monotonic()
        if call.outcome == "failed":
            logger.warning("session %s: call %d failed: %s", self._name, call.number, call.sentence[:500])
        self.writer.record(call)


class RemoteSessions:
    """The sessions of a gateway that serves other machines; a `SessionOpener`."""

    def __init__(self, gateway: Gateway, engine: Engine, folder: Path, tokens: ServiceTokens) -> None:
        """Opens nothing yet.

        Args:
            gateway: Where the sessions are; it has to run.
            engine: Answers their calls.
            folder: Gets a folder for each session, with its `calls.jsonl`, and `session.json` once it is closed or rewarded.
            tokens: Who may open sessions.
        """
        self._gateway = gateway
        self._engine = engine
        self._folder = folder
        self._tokens = tokens
        self._opened: dict[str, _Opened] = {}
        self._ended = False
        self._lock = threading.Lock()

    def owner(self, token: bytes) -> str | None:
        """See `SessionOpener`."""
        return self._tokens.name_of(token)

    def open(self, owner: str, wanted: Mapping[str, Any]) -> dict[str, Any]:
        """See `SessionOpener`."""
        unknown = sorted(wanted.keys() - {"id", "calls", "tokens"})
        if unknown:
            raise Refused(400, f"{unknown[0][:100]!r} is not known here: a session has id, calls and tokens")
        name = secrets.token_hex(8) if wanted.get("id") is None else wanted["id"]
        if not isinstance(name, str) or not _ID.fullmatch(name):
            raise Refused(400, "id: use 1 to 128 letters, digits, '_', '.' and '-', a letter or digit first")
        # What a rollout's scheduler would try again nobody tries again here, so a failed call does not end the session.
        limits = SessionLimits(calls=_limit(wanted, "calls"), tokens=_limit(wanted, "tokens"), ends_at_failure=False)
        with self._lock:
            opened = self._opened[name] = self._new(owner, name, limits)
        handle = opened.handle
        handle.when_rewarded(lambda: self._rewarded(name, opened))
        return {
            "id": name,
            "base_url": handle.base_url,
            "messages_url": handle.messages_url,
            "token": handle.token,
        }

    def _new(self, owner: str, name: str, limits: SessionLimits) -> _Opened:
        folder = self._folder / name
        if self._ended:
            raise Refused(503, "the gateway stops", "stopping")
        if sum(one.owner == owner for one in self._opened.values()) >= MOST_SESSIONS:
            raise Refused(429, f"you have {MOST_SESSIONS} open sessions, the most at a time: close some")
        if name in self._opened:
            raise Refused(409, f"there is a session {name!r} already", "session_exists")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            folder.mkdir()
        except FileExistsError:
            used = f"the id {name!r} is used up: there is the record of an earlier session"
            raise Refused(409 if folder.exists() else 507, used, "session_exists") from None
        except OSError as error:
            raise Refused(507, f"the record of a session cannot be written: {error.strerror}") from error
        try:
            header = {"session_id": name, "owner": owner, "model": self._engine.model}
            recorder = _Recorder(name, CallWriter(folder, header))
        except OSError as error:
            shutil.rmtree(folder, ignore_errors=True)
            logger.error("the record of session %s cannot be written: %s", name, error)
            raise Refused(507, f"the record of a session cannot be written: {error.strerror}") from error
        try:
            return _Opened(self._gateway.open(name, self._engine, recorder, limits), owner, recorder)
        except UserError as error:
            recorder.writer.finish()
            shutil.rmtree(folder, ignore_errors=True)
            raise Refused(409, str(error)) from error

    def listed(self, owner: str) -> dict[str, Any]:
        """See `SessionOpener`."""
        with self._lock:
            theirs = {name: one for name, one in self._opened.items() if one.owner == owner}
        return {"sessions": [_told(name, one) for name, one in sorted(theirs.items())]}

    def close(self, owner: str, name: str) -> dict[str, Any]:
        """See `SessionOpener`; waits for the session's calls, so it is called in a thread of its own."""
        with self._lock:
            found = self._opened.get(name)
            if found is None or found.owner != owner:
                raise Refused(404, "there is no such session", "not_found")
            del self._opened[name]
        told = self._end(name, found)
        if why := told.get("not_written"):
            raise Refused(507, f"session {name} is closed, but its record cannot be written: {why}")
        return told

    def close_idle(self) -> list[str]:
        """Closes sessions that nobody has used for `IDLE_SECONDS`; returns their ids."""
        now = time.monotonic()
        with self._lock:
            idle = {
                name: one
                for name, one in self._opened.items()
                if now - one.recorder.used > IDLE_SECONDS and not one.handle.summary().in_flight
            }
            for name in idle:
                del self._opened[name]
        for name, one in idle.items():
            self._end(name, one)
        return list(idle)

    def close_all(self) -> None:
        """Closes all sessions, and makes their records durable."""
        with self._lock:
            left, self._opened, self._ended = self._opened, {}, True
        for name, one in left.items():
            self._end(name, one)

    def _end(self, name: str, one: _Opened) -> dict[str, Any]:
        one.handle.close()
        told = _told(name, one)
        for write in (one.recorder.writer.finish, lambda: self._write(name, one)):
            try:
                write()
            except OSError as error:
                logger.error("the record of session %s cannot be written: %s", name, error)
                told["not_written"] = error.strerror
        return told

    def _rewarded(self, name: str, one: _Opened) -> None:
        one.recorder.used = time.monotonic()
        try:
            self._write(name, one)
        except OSError as error:
            raise Refused(507, f"the reward cannot be written: {error.strerror}") from error

    def _write(self, name: str, one: _Opened) -> None:
        with one.writing:
            text = json.dumps({"owner": one.owner, **_told(name, one)}, indent=2)
            write_whole(self._folder / name / SUMMARY_NAME, text + "\n")


def _told(name: str, one: _Opened) -> dict[str, Any]:
    """Returns what is said of a session."""
    summary = one.handle.summary()
    return {
        "id": name,
        "calls": summary.calls,
        "failed": summary.failed,
        "cut": summary.cut,
        "refused": summary.refused,
        "usage": asdict(summary.usage),
        "reward": summary.reward,
        "failure_class": summary.failure_class,
        "failure": summary.failure,
        "limit": summary.limit,
        "idle_seconds": round(time.monotonic() - one.recorder.used, 3),
    }


def _limit(wanted: Mapping[str, Any], name: str) -> int | None:
    value = wanted.get(name)
    if value is None:
        return None
    if type(value) is not int or not 1 <= value <= _LARGEST_LIMIT:
        raise Refused(400, f"{name} must be a whole number from 1 to {_LARGEST_LIMIT:,}")
    return value
