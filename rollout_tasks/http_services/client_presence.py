"""Whether the client of a request is still there, for an ASGI application that only hears of that when it reads again."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from contextvars import ContextVar

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_gone: ContextVar[asyncio.Event] = ContextVar("gone")
_STEPS = 8
"""Turns of the event loop in which the end of a connection becomes known here; it takes three."""


def client_gone() -> asyncio.Event | None:
    """Returns an event that is set once the client of the request that is being answered has gone; None outside a request."""
    return _gone.get(None)


async def has_gone() -> bool:
    """Returns whether the client has gone, also if that has come just now and nobody has read it yet: right before an answer."""
    gone = client_gone()
    for _ in range(_STEPS):
        if gone is None or gone.is_set():
            break
        await asyncio.sleep(0)
    return gone is not None and gone.is_set()


class ClientPresence:
    """Has an application run so that `client_gone` works in it. One message is read ahead: clients must not fill the memory."""

    def __init__(self, application: ASGIApp) -> None:
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        if scope["type"] == "lifespan":
            await self._application(scope, receive, send)
            return
        gone = asyncio.Event()
        unread: asyncio.Queue[Message] = asyncio.Queue()
        room = asyncio.Semaphore(1)

        async def read_ahead() -> None:
            while not gone.is_set():
                await room.acquire()
                message = await receive()
                if _is_end(message):
                    gone.set()
                if _is_last(message):  # after it, nothing comes but the client's going
                    room.release()
                unread.put_nowait(message)

        async def next_message() -> Message:
            message = await unread.get()
            if not _is_last(message):
                room.release()
            return message

        reading = asyncio.create_task(read_ahead())
        before = _gone.set(gone)
        try:
            await self._application(scope, next_message, send)
        finally:
            _gone.reset(before)
            reading.cancel()
            with suppress(asyncio.CancelledError):
                await reading


def _is_end(message: Message) -> bool:
    return message["type"] in {"http.disconnect", "websocket.disconnect"}


def _is_last(message: Message) -> bool:
    """Whether a request's body ends with this message."""
    return message["type"] == "http.request" and not message.get("more_body")
