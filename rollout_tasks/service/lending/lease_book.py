"""Who holds which lease: owners, quotas and the leases' records, over the sessions. Knows nothing of HTTP but statuses."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import secrets
import stat
import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmark.items import Item
from benchmark.whole_file import write_whole
from rollout_tasks.http_services.token_holders import TokenHolder, is_operator
from rollout_tasks.service.desktop_sessions import DesktopSessions
from rollout_tasks.service.lending.refusal import Refusal, refusing
from rollout_tasks.service.played_session import PlayedSession
from rollout_tasks.service.session_record import SUMMARY_NAME

OWNER_NAME = "lease.json"
"""Below a session's folder: whose it is, for a service that was started again."""
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,63}")
_ID_CHARACTERS = 32
_NO_LEASE = "there is no such lease"
_MOST_BYTES = 1 << 20
_MOST_REMEMBERED = 500
"""Leases that have ended, fewer than the sessions remember; older ones are found on disk."""


@dataclass(slots=True)
class LentDesktop:
    """One lease, with the calls on it that are under way."""

    session: PlayedSession
    owner: str
    bare: bool
    """Whether it has no task."""
    emulator: bool
    """Whether it was lent by the older routes, with ports."""
    settled: asyncio.Future[None] | None = None
    """Done once the desktop is there with its item, or the lease is over."""
    acting: asyncio.Future[tuple[bytes, float]] | None = None
    act: tuple[str, str, Mapping[str, Any]] | None = field(default=None, repr=False)
    """Key, tool and arguments of the latest act."""
    evaluation: asyncio.Future[Any] | None = None
    releasing: asyncio.Future[bool] | None = None

    @property
    def id(self) -> str:
        """The lease's id, which is its session's."""
        return self.session.id


class LeaseBook:
    """All leases of one service. Threads may share it."""

    def __init__(self, sessions: DesktopSessions) -> None:
        """Takes the sessions; whoever made them closes them."""
        self.sessions = sessions
        self._lock = threading.Lock()
        self._lent: dict[str, LentDesktop] = {}
        self._beginning: dict[str, str] = {}
        """Owners of leases that are about to begin, by id: they count, too."""

    def new_id(self, holder: TokenHolder, key: str | None) -> str:
        """Returns a lease's id; the same one for the same holder and key, even after the service was started again."""
        if key is None:
            return secrets.token_hex(_ID_CHARACTERS // 2)
        return hashlib.sha256(f"{holder.owner}\n{key}".encode()).hexdigest()[:_ID_CHARACTERS]

    def begin(
        self, holder: TokenHolder, lease_id: str, item: Item, *, index: int = 0, bare: bool, emulator: bool = False
    ) -> LentDesktop:
        """Begins a lease, or finds the one that began under its id; does not wait for its desktop.

        Args:
            holder: Whose it will be.
            lease_id: As of `new_id`.
            item: What is played.
            index: Which of the item's rollouts.
            bare: Whether the item stands for no task.
            emulator: Whether its client uses the desktop's ports, and may be silent as long as the lease may last.

        Raises:
            Refusal: The holder has as many leases as its quota allows, or the lease cannot begin.
        """
        with self._lock:
            if lease_id not in self._lent and lease_id not in self._beginning:
                self._check_quota(holder)
                # Also if the service was killed before it wrote down whose it is: ids of keys are their holders' own.
                if os.path.lexists(self.sessions.folder_of(lease_id)):
                    raise Refusal(410, self._over(lease_id))
            self._beginning[lease_id] = holder.owner
        try:
            silent_seconds = float("inf") if emulator else None
            with refusing():
                session = self.sessions.begin(
                    item, session_id=lease_id, index=index, silent_seconds=silent_seconds, lends_ports=emulator
                )
        except BaseException:
            with self._lock:
                self._beginning.pop(lease_id, None)
            raise
        with self._lock:
            self._beginning.pop(lease_id, None)
            known = self._lent.get(lease_id)
            if known is not None and known.session is session:
                return known
            lent = self._lent[lease_id] = LentDesktop(session, holder.owner, bare, emulator)
            self._forget_oldest()
        self._write_owner(lent)
        return lent

    def find(self, holder: TokenHolder, lease_id: str) -> LentDesktop:
        """Returns a lease that the holder may use.

        Raises:
            Refusal: There is none (404), or it ended before the service was started again (410).
        """
        with self._lock:
            lent = self._lent.get(lease_id)
        if lent is not None and (holder.operator or lent.owner == holder.owner):
            return lent
        if lent is None and self._was_ours(holder, lease_id) is not None:
            raise Refusal(410, self._over(lease_id))
        raise Refusal(404, _NO_LEASE)

    def end_on_record(self, holder: TokenHolder, lease_id: str) -> dict[str, Any]:
        """Returns how a lease of an earlier service with a task ended, as its record says; empty where there is no such lease."""
        with self._lock:
            if lease_id in self._lent:
                return {}
        folder = self._was_ours(holder, lease_id)
        if folder is None or _object_in(folder / OWNER_NAME).get("bare"):
            return {}
        return _object_in(folder / SUMMARY_NAME)

    def end_others(self, owners: Collection[str]) -> None:
        """Ends the leases of users who are not among these: their tokens were revoked."""
        for one in self.going_on():
            if one.owner not in owners and not is_operator(one.owner):
                one.session.stop("its client's token was revoked")

    def most_of(self, holder: TokenHolder) -> int:
        """Returns how many leases a holder may have at a time."""
        return self.sessions.most if holder.quota is None else holder.quota

    def going_on(self, owner: str | None = None) -> list[LentDesktop]:
        """Returns the leases that go on, the oldest first.

        Args:
            owner: Whose; None for everybody's.
        """
        with self._lock:
            lent = [one for one in self._lent.values() if one.session.end is None]
        return [one for one in lent if owner is None or one.owner == owner]

    def record_folder(self, holder: TokenHolder, lease_id: str) -> Path:
        """Returns the folder of a lease's record, also of one that is long over.

        Raises:
            Refusal: There is no such lease.
        """
        with self._lock:
            lent = self._lent.get(lease_id)
        if lent is not None and (holder.operator or lent.owner == holder.owner):
            return lent.session.order.folder
        if lent is None and (folder := self._was_ours(holder, lease_id)) is not None:
            return folder
        raise Refusal(404, _NO_LEASE)

    def _check_quota(self, holder: TokenHolder) -> None:
        held = sum(owner == holder.owner for owner in self._beginning.values())
        held += sum(one.owner == holder.owner and one.session.end is None for one in self._lent.values())
        if holder.quota is not None and held >= holder.quota:
            raise Refusal(429, f"{holder.name} has {held} leases, and its quota is {holder.quota}: release one first")

    def _forget_oldest(self) -> None:
        ended = [lease_id for lease_id, one in self._lent.items() if one.session.end is not None]
        for lease_id in ended[: max(0, len(ended) - _MOST_REMEMBERED)]:
            del self._lent[lease_id]

    def _write_owner(self, lent: LentDesktop) -> None:
        text = json.dumps({"owner": lent.owner, "bare": lent.bare, "emulator": lent.emulator})
        try:
            write_whole(lent.session.order.folder / OWNER_NAME, text + "\n")
        except OSError as error:
            lent.session.stop("its record cannot be written")
            raise Refusal(503, f"the record of a lease cannot be written: {error.strerror}") from error

    def _was_ours(self, holder: TokenHolder, lease_id: str) -> Path | None:
        """Returns the folder of a lease that this service no longer knows, if it was the holder's."""
        if not _ID.fullmatch(lease_id):
            return None
        folder = self.sessions.folder_of(lease_id)
        values = _object_in(folder / OWNER_NAME)
        return folder if values and (holder.operator or values.get("owner") == holder.owner) else None

    def _over(self, lease_id: str) -> str:
        end = _object_in(self.sessions.folder_of(lease_id) / SUMMARY_NAME)
        if not end:
            return "the lease ended when the service did; its desktop went back to the pool"
        return f"the lease is over: {str(end.get('error') or 'it was evaluated')[:500]}"


def _object_in(path: Path) -> dict[str, Any]:
    """Returns the JSON object in a small file; an empty one where there is none."""
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            return {}
        with path.open("rb") as file:
            values = json.loads(file.read(_MOST_BYTES))
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}
