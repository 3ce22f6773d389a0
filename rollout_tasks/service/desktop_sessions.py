"""Sessions in which programs outside a rollout play items of a benchmark on leased desktops.

    acquire -> observe, act, act ... -> evaluate (or release)

Every call may be repeated: its reply may have been lost. A session has an id and the fence of its lease; whoever acts says both,
and is refused once the lease is gone. A session whose client is silent for too long ends, and its VM goes back to the pool. If the
program that serves sessions is killed, their processes give the VMs back; where those are killed, too, the leases expire.
"""

from __future__ import annotations

import re
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmark.items import Item
from rollout_tasks import registry
from rollout_tasks.config import RunConfig
from rollout_tasks.environments.base import Observation
from rollout_tasks.errors import FailureClass, UserError
from rollout_tasks.service import session_ends
from rollout_tasks.service.played_session import PlayedSession
from rollout_tasks.service.session_order import SessionOrder
from rollout_tasks.service.session_record import facts_of, make_folder, write_end
from rollout_tasks.service.session_results import NoRoom, SessionEnd, SessionEnded, SessionRefused, Step, UnknownItem
from rollout_tasks.service.session_spawner import SessionSpawner

SILENT_SECONDS = 300.0
"""How long a client may be silent by default: a trainer may update its weights between two steps."""
_KEPT_ENDED = 1_000
"""Sessions that are remembered after their end, so that a repeated call is answered."""
_LOOK_SECONDS = 0.5
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


class DesktopSessions:
    """The sessions of one program. Threads may share it."""

    def __init__(
        self,
        config: RunConfig,
        items: Iterable[Item],
        folder: Path,
        *,
        most: int,
        silent_seconds: float = SILENT_SECONDS,
    ) -> None:
        """Starts the process from which sessions are forked.

        Args:
            config: How items are played: environment, VMs, limits.
            items: What can be played.
            folder: Gets a folder for each session, with its record.
            most: How many sessions there may be at a time, those that wait for a VM included.
            silent_seconds: How long a session's client may be silent before the session ends.

        Raises:
            UserError: An item's environment gives no score itself, or cannot be used.
        """
        self.config = config
        self.items = {item.id: item for item in items}
        self.most = most
        self._folder = folder
        self._silent_seconds = silent_seconds
        names = {registry.environment_name(item, config) for item in self.items.values()} or {config.env_mode}
        self.environments = frozenset(names)
        for name in names:
            if registry.environment(name).compares_answers:
                raise UserError(f"environment {name!r} gives no score itself: items of it cannot be played in sessions")
        self._lock = threading.Lock()
        self._sessions: dict[str, PlayedSession] = {}
        self._ended: OrderedDict[str, PlayedSession] = OrderedDict()
        self._closed = threading.Event()
        self._spawner = SessionSpawner(names)
        self._spawner.start()
        threading.Thread(target=self._end_silent, name="silent sessions", daemon=True).start()

    # What a client does

    def acquire(self, item_id: str, *, session_id: str = "", index: int = 0) -> PlayedSession:
        """Begins a session: waits for a VM and sets the item up on it.

        Args:
            item_id: The item.
            session_id: Names the session, so that a repeated call finds the same one. Default: a new name.
            index: Which of the item's rollouts it is, for environments in which they differ.

        Raises:
            SessionEnded: No VM came in time, or the item cannot be set up on it; or the session was released meanwhile.
            SessionRefused: There is no such item, the name is used up, or there are as many sessions as there may be.
        """
        session = self.begin(self.item(item_id), session_id=session_id, index=index)
        session.wait_until_ready()
        return session

    def item(self, item_id: str) -> Item:
        """Returns one of the items.

        Raises:
            UnknownItem: There is no such item.
        """
        item = self.items.get(item_id)
        if item is None:
            raise UnknownItem(f"there is no item {item_id[:200]!r}")
        return item

    def begin(
        self,
        item: Item,
        *,
        session_id: str = "",
        index: int = 0,
        silent_seconds: float | None = None,
        lends_ports: bool = False,
    ) -> PlayedSession:
        """Begins a session, and does not wait for its VM.

        Args:
            item: What is played; it need not be one of the items, but its environment has to be one of theirs.
            session_id, index: As for `acquire`.
            silent_seconds: How long its client may be silent. Default: as for all sessions.
            lends_ports: Whether the client gets ports that lead to the VM.

        Raises:
            SessionRefused: The name is used up, or it cannot begin (`NoRoom`).
        """
        name = session_id or secrets.token_hex(8)
        return self._begun(
            item, name, index, self._silent_seconds if silent_seconds is None else silent_seconds, lends_ports
        )

    def renew(self, session_id: str, fence: int) -> PlayedSession:
        """Says that the client is still there.

        Raises:
            SessionEnded: The session is over, or unknown.
            SessionRefused: The fence is another lease's.
        """
        session = self._held(session_id, fence)
        session.used = time.monotonic()
        session.raise_if_ended()
        return session

    def observe(self, session_id: str, fence: int) -> Observation:
        """Returns the latest observation.

        Raises:
            SessionEnded, SessionRefused: As of `renew`.
        """
        observation = self.renew(session_id, fence).observation
        if observation is None:
            raise SessionRefused("the item is not set up yet")
        return observation

    def act(self, session_id: str, fence: int, name: str, arguments: Mapping[str, Any], *, key: str = "") -> Step:
        """Calls one of the environment's tools.

        Args:
            session_id: The session.
            fence: Its lease's.
            name: The tool.
            arguments: The tool's arguments; wrong ones are a failed step, as for an agent.
            key: Names this call: repeated with the same key, it is carried out once. Empty for none.

        Raises:
            SessionEnded: The session is over, by a lost lease for example.
            SessionRefused: The fence is another lease's, or the episode is over.
        """
        return self._held(session_id, fence).act(name, arguments, key)

    def evaluate(self, session_id: str, fence: int) -> SessionEnd:
        """Ends the episode, scores it, and gives the VM back.

        Raises:
            SessionEnded: The session is unknown.
            SessionRefused: The fence is another lease's, or the item is not set up yet.
        """
        return self._held(session_id, fence).evaluate()

    def record(self, session_id: str) -> dict[str, Any]:
        """Returns what is known of a session, and the files of its record so far: JSON values.

        Raises:
            SessionEnded: The session is unknown.
        """
        session = self._found(session_id)
        folder = session.order.folder
        files = sorted(path.name for path in folder.iterdir() if path.is_file()) if folder.is_dir() else []
        return {**facts_of(session, session.end), "folder": str(folder), "files": files}

    def release(self, session_id: str, why: str = "its client released it") -> bool:
        """Ends a session, whatever it does, and gives the VM back; does not wait for that. Harmless when repeated.

        Returns:
            Whether it went on until now.
        """
        with self._lock:
            session = self._sessions.get(session_id)
        if session is None or session.end is not None:
            return False
        session.stop(why)
        return True

    # What the serving program does

    def folder_of(self, session_id: str) -> Path:
        """Returns the folder of a session's record, whether there is one or not."""
        return (self._folder / session_id).absolute()

    def known(self) -> list[dict[str, Any]]:
        """Returns the facts of the sessions that go on."""
        with self._lock:
            sessions = list(self._sessions.values())
        return [facts_of(session, session.end) for session in sessions]

    def close(self) -> None:
        """Ends all sessions, and begins no more."""
        self._closed.set()
        with self._lock:
            sessions = list(self._sessions.values())
        for session in sessions:
            session.stop("the program that served the session is stopping")
        deadline = time.monotonic() + session_ends.END_SECONDS
        for session in sessions:
            if not session.wait_until_ended(max(0.0, deadline - time.monotonic())):
                session.kill()
                session.wait_until_ended(_LOOK_SECONDS * 10)
        self._spawner.close()

    def _begun(
        self, item: Item, session_id: str, index: int, silent_seconds: float, lends_ports: bool
    ) -> PlayedSession:
        if not _ID.fullmatch(session_id):
            raise SessionRefused(
                "a session's name has 1 to 100 letters, digits, '_', '.' and '-', a letter or digit first"
            )
        config = self.config
        if lends_ports:  # its client uses the desktop alone, and may record it: a guest makes one recording at a time
            config = config.model_copy(
                update={"desktop": config.desktop.model_copy(update={"enable_recording": False})}
            )
        order = SessionOrder(session_id, item, config, self.folder_of(session_id), index, lends_ports)
        with self._lock:
            if (known := self._same(order)) is not None:
                return known
        try:
            process = self._spawner.spawn()  # not under the lock: the first one has to wait for imports
        except UserError as error:
            raise NoRoom(str(error)) from error
        try:
            with self._lock:
                if (known := self._same(order)) is None:
                    make_folder(order)
                    begun = self._sessions[session_id] = PlayedSession(order, process, self._when_ended, silent_seconds)
                    return begun
        except BaseException:
            process.close(0)
            raise
        process.close(0)
        return known

    def _same(self, order: SessionOrder) -> PlayedSession | None:
        """Returns the session that a repeated call asks for; None if a new one may begin. Under the lock.

        Raises:
            SessionRefused: It may not.
        """
        if self._closed.is_set():
            raise NoRoom("the program that serves sessions is stopping")
        known = self._sessions.get(order.session_id) or self._ended.get(order.session_id)
        if known is not None and (known.order.item, known.order.index) != (order.item, order.index):
            raise SessionRefused(f"session {order.session_id} plays another item")
        if known is None and len(self._sessions) >= self.most:
            raise NoRoom(f"there are {self.most} sessions, the most at a time")
        return known

    def _found(self, session_id: str) -> PlayedSession:
        with self._lock:
            session = self._sessions.get(session_id) or self._ended.get(session_id)
        if session is None:
            raise SessionEnded(None, f"there is no session {session_id[:100]!r}")
        return session

    def _held(self, session_id: str, fence: int) -> PlayedSession:
        session = self._found(session_id)
        if session.fence != fence:
            raise SessionRefused(f"session {session_id} does not have the lease {fence}")
        return session

    def _when_ended(self, session: PlayedSession, end: SessionEnd) -> None:
        """Gives back what a killed process could not, and writes down how the session ended."""
        if end.failure_class is FailureClass.WORKER_LOST and session.pooled:
            session_ends.give_back(session, self.config.vm.pool)
        write_end(session, end)
        session.observation = None  # nobody asks for it any more, and it is large
        with self._lock:
            self._sessions.pop(session.id, None)
            self._ended[session.id] = session
            while len(self._ended) > _KEPT_ENDED:
                self._ended.popitem(last=False)

    def _end_silent(self) -> None:
        looked = time.monotonic()
        while not self._closed.wait(_LOOK_SECONDS):
            late = time.monotonic() - looked - _LOOK_SECONDS
            looked = time.monotonic()
            with self._lock:
                sessions = list(self._sessions.values())
            if late > _LOOK_SECONDS:  # this program stood still: what clients said meanwhile has not been read yet
                session_ends.forgive(sessions, late)
            session_ends.stop_silent(sessions)
            session_ends.kill_stuck(sessions)
