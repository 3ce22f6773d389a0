"""Whether the client of a request is still there, for an ASGI application that only hears of that when it reads again."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

_MOST_UNREAD = 16
"""Messages that a client may send ahead; its end is noticed once they are read."""
_gone: ContextVar[asyncio.Event] = ContextVar("gone")


def client_gone() -> asyncio.Event | None:
    """Returns an event that is set once the client of the request that is being answered has gone; None outside a request."""
    return _gone.get(None)


class ClientPresence:
    """Has an application run so that `client_gone` works in it."""

    def __init__(self, application: ASGIApp) -> None:
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        if scope["type"] == "lifespan":
            await self._application(scope, receive, send)
            return
        gone = asyncio.Event()
        unread: asyncio.Queue[Any] = asyncio.Queue(_MOST_UNREAD)

        async def read_ahead() -> None:
            while not gone.is_set():
                message = await receive()
                if message["type"] in {"http.disconnect", "websocket.disconnect"}:
                    gone.set()
                await unread.put(message)

        reading = asyncio.create_task(read_ahead())
        before = _gone.set(gone)
        try:
            await self._application(scope, unread.get, send)
        finally:
            _gone.reset(before)
            reading.cancel()
            with suppress(asyncio.CancelledError):
                await reading
