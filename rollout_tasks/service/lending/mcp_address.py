"""The address for MCP clients: finds out who calls, checks what is sent, and hands it to `mcp_server` if its package is there."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from rollout_tasks.http_services.token_holders import TokenHolder, TokenHolders
from rollout_tasks.service.lending.http_requests import (
    body_of,
    headers_of,
    holder_of,
    json_reply,
    object_in,
    problem_values,
)
from rollout_tasks.service.lending.lease_calls import LeaseCalls
from rollout_tasks.service.lending.mcp_tools import HOLDER, McpTools
from rollout_tasks.service.lending.refusal import Refusal

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

logger = logging.getLogger(__name__)

PATH = "/mcp"
_THIS_MACHINE = frozenset({"127.0.0.1", "::1", "localhost"})
_NO_PACKAGE = "this address is for MCP clients; the service needs the package mcp, 2.3 or newer, for it"
_NOT_JSON, _NOT_A_REQUEST = -32700, -32600
"""Codes of JSON-RPC."""


class McpAddress:
    """An ASGI application for requests of one path."""

    def __init__(self, calls: LeaseCalls, holders: TokenHolders) -> None:
        """Takes what carries the calls out, and who may make them."""
        self._holders = holders
        self._calls = calls
        self._manager = _manager(McpTools(calls))

    @asynccontextmanager
    async def lifespan(self, _application: object) -> AsyncIterator[None]:
        """Lasts as long as requests are answered."""
        if self._manager is None:
            yield
            return
        async with self._manager.run():
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        request = Request(scope, receive)
        try:
            holder = holder_of(request, self._holders)
            raise_if_foreign_page(request.headers.get("origin"))
            if self._manager is None:
                raise Refusal(501, _NO_PACKAGE)
            with self._calls.requests.counted(holder):
                content = checked(await body_of(request, holder.owner))
                await self._answer(self._manager, holder, content, scope, receive, send)
        except Refusal as refusal:
            await _shown(refusal)(scope, receive, send)
        except ClientDisconnect:
            return

    @staticmethod
    async def _answer(
        manager: StreamableHTTPSessionManager,
        holder: TokenHolder,
        content: bytes,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        unread: list[Message] = [{"type": "http.request", "body": content, "more_body": False}]

        async def receive_again() -> Message:
            return unread.pop() if unread else await receive()

        await manager.handle_request({**scope, HOLDER: holder}, receive_again, send)


def _manager(tools: McpTools) -> StreamableHTTPSessionManager | None:
    """Returns what answers; None without its package."""
    try:
        from rollout_tasks.service.lending import mcp_server  # here, because its package is optional
    except ImportError as error:
        logger.info("MCP clients are not served at %s: %s", PATH, error)
        return None
    return mcp_server.session_manager(tools)


def _shown(refusal: Refusal) -> Response:
    """Returns a refusal as an error of JSON-RPC, of which clients of MCP show the sentence."""
    code = _NOT_JSON if refusal.status == 400 else _NOT_A_REQUEST
    error = {"code": code, "message": problem_values(refusal)["detail"]}
    said = {"jsonrpc": "2.0", "id": None, "error": error}
    return json_reply(refusal.status, said, **headers_of(refusal))


def raise_if_foreign_page(origin: str | None) -> None:
    """Raises if a browser sends a request for a page of another machine, which may have given itself this one's name.

    No host name is asked for: the service cannot know the name of the proxy before it, and whoever calls has shown a token.

    Raises:
        Refusal: It does.
    """
    if origin is None:
        return
    try:
        host = urlsplit(origin).hostname
    except ValueError:
        host = None
    if host not in _THIS_MACHINE:
        raise Refusal(403, "the pages of other machines may not call this address")


def checked(body: bytes) -> bytes:
    """Returns the JSON object in a body, written anew: whoever parses it then finds what was checked.

    Raises:
        Refusal: It is no JSON (400), or nothing that can be a message (422).
    """
    values: dict[str, Any] = object_in(body)
    try:
        return json.dumps(values, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError as error:
        raise Refusal(422, "the body has half of a surrogate pair, which is no text") from error
