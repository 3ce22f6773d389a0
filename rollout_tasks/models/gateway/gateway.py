"""The gateway of a process: a server in a thread of its own, to which the embedding program opens sessions."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import secrets
import socket
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from pathlib import Path
from typing import Self
from urllib.parse import quote

from uvicorn.server import ServerState

from rollout_tasks.errors import UserError
from rollout_tasks.http_protocol import BoundedProtocol, protocol_config
from rollout_tasks.models.gateway.app import GatewayApp, OpenedSession, SessionOpener
from rollout_tasks.models.gateway.engine import Engine
from rollout_tasks.models.gateway.session import Session
from rollout_tasks.models.gateway.session_summary import SessionLimits, SessionSummary
from rollout_tasks.models.served_call import Recorder
from rollout_tasks.models.session_ids import LONGEST_SESSION_ID

logger = logging.getLogger(__name__)

_KEEP_ALIVE = 60
"""Seconds that an idle connection stays open: longer than clients keep theirs, so that it is they who close."""
_MOST_CONNECTIONS = 1_000
_KEPT_CLOSED = 100
"""Closed sessions that are remembered, so that a late call is told so."""
_STOP_SECONDS = 10.0
_ACCEPT_STEPS = 5
"""Turns of the event loop in which a connection that was accepted becomes known; it takes three."""


class SessionHandle:
    """An open session, as the embedding program holds it."""

    def __init__(self, gateway: Gateway, session: Session, url: str, token: str) -> None:
        self.base_url = f"{url}/v1"
        """For clients of OpenAI's API, which add ``/chat/completions`` or ``/responses``."""
        self.messages_url = url
        """For clients of Anthropic's API, which add ``/v1/messages``."""
        self.token = token
        """The session's only key: a Bearer token, or ``x-api-key``."""
        self._gateway = gateway
        self._session = session

    def summary(self) -> SessionSummary:
        """Returns what happened so far."""
        return self._session.summary()

    def when_rewarded(self, told: Callable[[], object]) -> None:
        """Has a function called after each reward, in a thread of its own; the reward is answered when it returns."""
        self._session.when_rewarded = told

    def close(self) -> SessionSummary:
        """Ends the session and its calls in flight, and returns what happened; harmless when repeated."""
        self._gateway._end(self._session)
        return self._session.summary()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Gateway:
    """A server in a thread, for the process that starts it: a forked child starts its own.

    An engine may serve several sessions, of this gateway alone; its connections end with the last of them.
    """

    def __init__(
        self, *, socket_path: Path | None = None, host: str = "127.0.0.1", port: int = 0, advertised: str = ""
    ) -> None:
        """Starts nothing yet.

        Args:
            socket_path: Listen on this Unix socket, which only this user may use; default: on `host` and `port`.
            host: The address to listen at.
            port: The port; 0: a free one.
            advertised: The address under which others reach it, as ``http://HOST:PORT``; default: `host` and the port.
        """
        self._host, self._port, self._advertised = host, port, advertised.rstrip("/")
        self.opener: SessionOpener | None = None
        """Opens sessions for programs elsewhere; to be set before `start`."""
        self.socket_path = socket_path
        self.url = ""
        """The server's address, once started; with a Unix socket, its host is a name only."""
        self.port = 0
        """The port that it listens at, once started."""
        self._process = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._stop: asyncio.Event | None = None
        self._sessions: OrderedDict[str, OpenedSession] = OrderedDict()
        self._lock = threading.Lock()
        """Guards what `open` and the ends of sessions change."""

    def start(self) -> None:
        """Starts the server; it accepts connections when this returns.

        Raises:
            UserError: The socket cannot be made.
        """
        listener = self._listen()
        ready: Future[None] = Future()
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._serve, args=(listener, ready), name="model-gateway", daemon=True)
        self._thread.start()
        ready.result()

    def open(
        self,
        session_id: str,
        engine: Engine,
        recorder: Recorder,
        limits: SessionLimits | None = None,
        when_over: Callable[[str], object] | None = None,
        token: str = "",
    ) -> SessionHandle:
        """Opens a session.

        Args:
            session_id: Printable ASCII that no other open session has; it is sent to the engine.
            engine: Answers its calls.
            recorder: Gets each call. The caller finishes it, after the session was closed.
            limits: What it may use.
            when_over: Called once, in the gateway's thread, with why the session answers no more: its engine gave up, or it has
                reached a limit. The call that this ends has its answer after that.
            token: The session's key; default: one of its own.

        Raises:
            UserError: The id is in use or cannot be sent, or the gateway does not run in this process.
        """
        if self._loop is None or self._process != os.getpid():
            raise UserError("the model gateway does not run in this process: start one here")
        if (
            not session_id
            or not session_id.isascii()
            or not session_id.isprintable()
            or len(session_id) > LONGEST_SESSION_ID
        ):
            raise UserError(f"a session's id must be printable ASCII of at most {LONGEST_SESSION_ID} characters")
        token = token or secrets.token_urlsafe(32)
        session = Session(session_id, engine, recorder, limits or SessionLimits(), when_over)
        with self._lock:
            known = self._sessions.pop(session_id, None)
            if known is not None and not known.session.closed:
                self._sessions[session_id] = known
                raise UserError(f"there is a session {session_id!r} already")
            self._sessions[session_id] = OpenedSession(session, hashlib.sha256(token.encode()).digest())
            self._forget_closed()
        return SessionHandle(self, session, f"{self.url}/sessions/{quote(session_id, safe='')}", token)

    def close(self) -> None:
        """Ends all sessions and the server; harmless when repeated, and in a forked child."""
        if self._loop is None or self._thread is None or self._stop is None or self._process != os.getpid():
            return
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_STOP_SECONDS)
        if self._thread.is_alive():
            logger.warning("the model gateway did not end within %g s", _STOP_SECONDS)
        self._loop = self._thread = self._stop = None
        if self.socket_path is not None:
            self.socket_path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _listen(self) -> socket.socket:
        try:
            if self.socket_path is None:
                family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
                listener = socket.create_server((self._host, self._port), family=family, backlog=128)
                # Its connections inherit it: asyncio sets it itself for other kinds of listeners only.
                listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self.port = listener.getsockname()[1]
                host = f"[{self._host}]" if ":" in self._host else self._host
                self.url = self._advertised or f"http://{host}:{self.port}"
                return listener
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                listener.bind(os.fspath(self.socket_path))
                self.socket_path.chmod(0o600)  # nobody can connect before it listens
                listener.listen(128)
            except BaseException:
                listener.close()
                raise
        except OSError as error:
            where = f" at {self._host}:{self._port}" if self._port else ""
            why = os.strerror(error.errno) if error.errno else error
            raise UserError(f"the model gateway cannot listen{where}: {why}") from error
        self.url = "http://gateway"
        return listener

    def _serve(self, listener: socket.socket, ready: Future[None]) -> None:
        try:
            with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:  # whatever the program's policy is
                runner.run(self._run_server(listener, ready))
        except BaseException as error:
            if ready.done():
                raise
            ready.set_exception(error)
        finally:
            listener.close()

    async def _run_server(self, listener: socket.socket, ready: Future[None]) -> None:
        loop = asyncio.get_running_loop()
        config = protocol_config(
            GatewayApp(self._sessions, self.opener), keep_alive=_KEEP_ALIVE, most_connections=_MOST_CONNECTIONS
        )
        state = ServerState()
        server = await loop.create_server(lambda: BoundedProtocol(config, state, {}, loop), sock=listener)
        self._loop, self._stop = loop, asyncio.Event()
        ready.set_result(None)
        await self._stop.wait()
        # A server that is closed while it accepts a connection would leave it open: it has to be known first.
        loop.remove_reader(listener.fileno())
        for _ in range(_ACCEPT_STEPS):
            await asyncio.sleep(0)
        server.close()
        for opened in list(self._sessions.values()):
            await self._close(opened.session)
        for connection in list(state.connections):
            connection.abort()  # type: ignore[union-attr]
        tasks = list(state.tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _end(self, session: Session) -> None:
        """Closes a session, and waits for that; does nothing if the server has ended, or runs in another process."""
        if self._loop is None or self._process != os.getpid():
            return
        closing = self._close(session)
        try:
            ended = asyncio.run_coroutine_threadsafe(closing, self._loop)
        except RuntimeError:  # the server has ended, and its sessions with it
            closing.close()
            return
        with suppress(TimeoutError, CancelledError):  # it ends now
            ended.result(_STOP_SECONDS)

    async def _close(self, session: Session) -> None:
        await session.close()
        with self._lock:
            open_sessions = [opened.session for opened in self._sessions.values() if not opened.session.closed]
        if all(other.engine is not session.engine for other in open_sessions):
            try:
                await session.engine.close()  # a session that is opened meanwhile connects anew
            except Exception:
                logger.exception("connections to the model were not closed in order")

    def _forget_closed(self) -> None:
        closed = [name for name, opened in self._sessions.items() if opened.session.closed]
        for name in closed[: max(0, len(closed) - _KEPT_CLOSED)]:
            del self._sessions[name]
