"""One HTTP request and its response over ASGI, within bounds of size and time; notices a client that goes away."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from typing import Any

from starlette.types import Receive, Scope, Send

BODY_SECONDS = 60.0
"""How long a request's body may take; a larger one over a slow network is refused."""
SEND_SECONDS = 60.0
"""How long a client may leave a part of a stream unread."""
_DRAIN_SECONDS = 10.0
_DRAIN_TIMES = 4
"""A body that is too large is read on for a while, up to so many times the limit, so that the client reads why it is refused."""
Headers = list[tuple[bytes, bytes]]


class TooLargeError(ValueError):
    """A body with more bytes than allowed."""


class ClientGone(Exception):
    """The client closed the connection, or no longer reads from it."""


class Connection:
    """A request that is being answered."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.streaming = False
        """Whether a stream was begun."""
        self._headers: dict[bytes, bytes] = dict(scope["headers"])
        self._abort = scope["state"]["abort"]
        self._receive = receive
        self._send = send

    def header(self, name: bytes) -> bytes:
        """Returns a header, by its lower-case name; empty if there is none."""
        return self._headers.get(name, b"")

    async def body(self, most: int) -> bytes:
        """Returns the request's body.

        Raises:
            TooLargeError: It has more than `most` bytes.
            TimeoutError: It does not end within `BODY_SECONDS`.
            ClientGone: It was cut off.
        """
        body = bytearray()
        async with asyncio.timeout(BODY_SECONDS):
            more = True
            while more:
                part, more = await self._next_part()
                body += part
                if len(body) > most:
                    del body
                    await self._drain(most, more)
                    raise TooLargeError(f"the body has more than {most:,} bytes")
        return bytes(body)

    async def gone(self) -> None:
        """Returns when the client has gone. What it sends until then is dropped."""
        while (await self._receive())["type"] != "http.disconnect":
            continue

    async def respond(self, status: int, body: Mapping[str, Any], headers: Headers | None = None) -> None:
        """Sends a whole JSON response."""
        data = json.dumps(body).encode()
        head = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(data)), *(headers or [])]
        await self._put({"type": "http.response.start", "status": status, "headers": head})
        await self._put({"type": "http.response.body", "body": data})

    async def stream(self, data: bytes, *, more: bool = True) -> None:
        """Sends a part of a stream of events, which begins with the first part.

        Raises:
            ClientGone: The client does not read it.
        """
        if not self.streaming:
            self.streaming = True
            head = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
            await self._put({"type": "http.response.start", "status": 200, "headers": head})
        await self._put({"type": "http.response.body", "body": data, "more_body": more})

    async def cut(self) -> None:
        """Cuts the connection at once."""
        self._abort()
        await self.gone()

    async def _put(self, message: dict[str, Any]) -> None:
        try:
            async with asyncio.timeout(SEND_SECONDS):
                await self._send(message)
        except TimeoutError as error:
            raise ClientGone("the client does not read the reply") from error

    async def _next_part(self) -> tuple[bytes, bool]:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise ClientGone("the client went away before its request was complete")
        return message.get("body", b""), message.get("more_body", False)

    async def _drain(self, most: int, more: bool) -> None:
        left, deadline = most * _DRAIN_TIMES, time.monotonic() + _DRAIN_SECONDS
        while more and left > 0 and time.monotonic() < deadline:
            part, more = await self._next_part()
            left -= len(part)
