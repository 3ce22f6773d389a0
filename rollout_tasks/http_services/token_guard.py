"""Lets requests through to another ASGI application only if they have a service's token."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Collection
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from rollout_tasks.http_services.tokens import ServiceTokens

_NOT_ALLOWED = 1008
"""The code of a WebSocket that is closed because of a policy; before it is accepted, servers answer 403."""


class TokenGuard:
    """Guards an application. The token comes as a Bearer token, as ``x-api-key``, or as the password of a URL.

    Many clients cannot send headers, but all take ``http://any:TOKEN@HOST``.
    """

    def __init__(self, application: ASGIApp, tokens: ServiceTokens, *, free: Collection[str] = ()) -> None:
        """Guards every path but those in `free`."""
        self._application = application
        self._tokens = tokens
        self._free = free

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request, or has it answered."""
        if scope["type"] == "lifespan" or scope["path"] in self._free or self._allows(scope):
            await self._application(scope, receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": _NOT_ALLOWED, "reason": "the token is missing or wrong"})
        else:
            await _refuse(send)

    def _allows(self, scope: Scope) -> bool:
        return any(self._tokens.name_of(token) for token in tokens_of(scope))


def tokens_of(scope: Scope) -> list[bytes]:
    """Returns the tokens that come with a request's headers."""
    headers: list[tuple[bytes, bytes]] = scope["headers"]
    found = [value for name, value in headers if name == b"x-api-key"]
    for name, value in headers:
        if name != b"authorization":
            continue
        scheme, _, rest = value.partition(b" ")
        if scheme.lower() == b"bearer":
            found.append(rest.strip())
        elif scheme.lower() == b"basic":
            found.append(_password(rest.strip()))
    return found


def _password(encoded: bytes) -> bytes:
    try:
        return base64.b64decode(encoded, validate=True).partition(b":")[2]
    except binascii.Error:
        return b""


async def _refuse(send: Send) -> None:
    body = json.dumps({"detail": "the service's token is missing or wrong"}).encode()
    headers: list[Any] = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"www-authenticate", b"Bearer"),
    ]
    await send({"type": "http.response.start", "status": 401, "headers": headers})
    await send({"type": "http.response.body", "body": body})
