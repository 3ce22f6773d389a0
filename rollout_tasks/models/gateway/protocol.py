"""The HTTP protocol of the gateway's connections: uvicorn's, with a limit on the time that a request's head may take."""

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


class GatewayProtocol(H11Protocol):
    """One connection."""

    def __init__(self, config: Config, server_state: ServerState, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(config, server_state, app_state={"abort": self.abort}, _loop=loop)
        self.logger = _logger
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begins to wait for a head."""
        super().connection_made(transport)
        self._head_timer = self.loop.call_later(HEAD_SECONDS, self.abort)

    def data_received(self, data: bytes) -> None:
        """Waits for a head while there is only a part of one."""
        super().data_received(data)
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            if self._head_timer is None and self.conn.trailing_data[0]:
                self._head_timer = self.loop.call_later(HEAD_SECONDS, self.abort)
        else:
            self._wait_no_more()

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends the waiting."""
        self._wait_no_more()
        super().connection_lost(exc)

    def abort(self) -> None:
        """Cuts the connection at once."""
        if self.transport is not None:
            self.transport.abort()

    def _wait_no_more(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


def protocol_config(app: Any, *, keep_alive: int, most_connections: int) -> Config:
    """Returns uvicorn's settings for an ASGI application: nothing is logged for a request, and no header says who serves."""
    config = Config(
        app,
        interface="asgi3",
        lifespan="off",
        ws="none",
        http=GatewayProtocol,
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
