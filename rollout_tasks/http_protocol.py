"""The HTTP protocol of all our servers' connections: uvicorn's, with limits on how long and how many may be unfinished."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

_logger = logging.getLogger(__name__)
_logger.setLevel(logging.ERROR)  # uvicorn warns of every request that is not HTTP: clients could fill the log

HEAD_SECONDS = 10.0
"""How long a connection may be open, or a request begun, without a whole head."""
BODY_SECONDS = 90.0
"""How long a body may take, whether it is read or not: longer than any handler waits for it, so that it can say so."""
READ_SECONDS = 90.0
"""How long a client may take nothing of what it is sent."""
REST_SECONDS = 10.0
"""How long what is left of a body may take once its request was answered."""
MOST_HEADLESS = 256
"""Connections at a time that have no whole head, go on with an answered request's body, or do not read: anybody can make those,
without a token. When there are more, the oldest is cut: what is honest goes on at once."""
_FULL = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class WritingDeadline:
    """Cuts a connection whose client does not read what it is sent. For protocols of uvicorn, before them among the bases."""

    _stalled: asyncio.TimerHandle | None = None
    _stalled_at = 0.0
    transport: asyncio.Transport
    loop: asyncio.AbstractEventLoop

    def pause_writing(self) -> None:
        """Begins to wait until the client reads."""
        super().pause_writing()  # type: ignore[misc]
        self._stalled = self.loop.call_later(READ_SECONDS, self.transport.abort)
        self._stalled_at = self.loop.time()

    def resume_writing(self) -> None:
        """Ends the waiting."""
        self._wait_no_more()
        super().resume_writing()  # type: ignore[misc]

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends the waiting, too."""
        self._wait_no_more()
        super().connection_lost(exc)  # type: ignore[misc]

    def _wait_no_more(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None


class BoundedProtocol(WritingDeadline, H11Protocol):
    """One connection."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state={**app_state, "abort": self.abort}, _loop=_loop)
        self.logger = _logger
        self._awaited = ""
        """What of a request has begun and is not whole: ``head``, ``body`` or, after the answer, the ``rest`` of the body."""
        self._awaited_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begins to wait for a head."""
        super().connection_made(transport)
        if len(self.connections) > MOST_HEADLESS:
            self._cut_oldest()
        self._await("head")

    def data_received(self, data: bytes) -> None:
        """Waits for what is missing of a request."""
        super().data_received(data)
        self._await(self._missing())

    def on_response_complete(self) -> None:
        """Waits for what is missing of the next request, which may have come already."""
        super().on_response_complete()
        self._await(self._missing())

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Leaves the connection to the WebSocket's protocol, unless there are as many connections as there may be."""
        if event.method != b"GET":  # that protocol would wait for ever
            self.send_400_response("A WebSocket is opened by GET.")
        elif self.limit_concurrency is not None and len(self.connections) >= self.limit_concurrency:
            self.transport.write(_FULL)
            self.transport.close()
        else:
            super().handle_websocket_upgrade(event)

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends the waiting."""
        self._await("")
        super().connection_lost(exc)

    def abort(self) -> None:
        """Cuts the connection at once."""
        self._await("")
        if self.transport is not None:
            self.transport.abort()

    def _missing(self) -> str:
        if self.transport.is_closing() or self.transport.get_protocol() is not self:
            return ""
        if self.conn.their_state is h11.IDLE:
            return "head" if self.cycle is None or self.conn.trailing_data[0] else ""
        if self.conn.their_state is not h11.SEND_BODY:
            return ""
        return "rest" if self.cycle is not None and self.cycle.response_complete else "body"

    def _await(self, what: str) -> None:
        if what == self._awaited:
            return
        self._awaited, self._awaited_at = what, self.loop.time()
        if self._timer is not None:
            self._timer.cancel()
        seconds = {"head": HEAD_SECONDS, "body": BODY_SECONDS, "rest": REST_SECONDS}.get(what)
        self._timer = None if seconds is None else self.loop.call_later(seconds, self.abort)

    def _cut_oldest(self) -> None:
        idle = [
            (since, one)
            for one in self.connections
            if isinstance(one, BoundedProtocol) and (since := one._idle_since()) is not None
        ]
        if len(idle) >= MOST_HEADLESS:
            min(idle, key=lambda since_and_one: since_and_one[0])[1].abort()

    def _idle_since(self) -> float | None:
        """Returns since when the connection has done nothing for anybody; None if it does."""
        if self._stalled is not None:
            return self._stalled_at
        return self._awaited_at if self._awaited in ("head", "rest") else None


def protocol_config(app: Any, *, keep_alive: int, most_connections: int) -> Config:
    """Returns uvicorn's settings for an ASGI application: nothing is logged for a request, and no header says who serves."""
    config = Config(
        app,
        interface="asgi3",
        lifespan="off",
        ws="none",
        http=BoundedProtocol,
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=keep_alive,
        limit_concurrency=most_connections,
    )
    config.load()
    return config
