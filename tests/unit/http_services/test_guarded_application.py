"""What stands before an ASGI application: a guard that asks for a token, and a watch on whether the client is still there."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest

from rollout_tasks.http_services.client_presence import ClientPresence, client_gone
from rollout_tasks.http_services.token_guard import TokenGuard
from rollout_tasks.http_services.tokens import ServiceTokens

TOKEN = "0123456789abcdef"
Headers = list[tuple[bytes, bytes]]


def basic(text: str) -> bytes:
    return b"Basic " + base64.b64encode(text.encode())


async def answered(headers: Headers, *, kind: str = "http", path: str = "/schema") -> list[dict[str, Any]]:
    """What a guarded application, which says "in", sends."""

    async def application(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "in"})

    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(dict(message))

    async def receive() -> Any:
        return {"type": f"{kind}.connect"}

    guard = TokenGuard(application, ServiceTokens(f"alice:{TOKEN}"), free={"/health"})
    await guard({"type": kind, "path": path, "headers": headers}, receive, send)
    return sent


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (b"authorization", b"Bearer " + TOKEN.encode()),
        (b"authorization", b"bearer  " + TOKEN.encode()),
        (b"x-api-key", TOKEN.encode()),
        (b"authorization", basic(f"anybody:{TOKEN}")),
    ],
)
@pytest.mark.parametrize("kind", ["http", "websocket"])
def test_whoever_has_the_token_comes_in(kind: str, name: bytes, value: bytes) -> None:
    assert asyncio.run(answered([(name, value)], kind=kind)) == [{"type": "in"}]


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [(b"authorization", TOKEN.encode())],
        [(b"authorization", b"Bearer " + TOKEN[:-1].encode())],
        [(b"authorization", basic(f"{TOKEN}:anything"))],
        [(b"authorization", b"Basic !")],
        [(b"x-api-key", b"")],
    ],
)
def test_nobody_else_does(headers: Headers) -> None:
    start, body = asyncio.run(answered(headers))
    assert (start["status"], body["body"]) == (401, b'{"detail": "the service\'s token is missing or wrong"}')
    [closed] = asyncio.run(answered(headers, kind="websocket"))
    assert (closed["type"], closed["code"]) == ("websocket.close", 1008)


def test_free_paths_need_no_token() -> None:
    assert asyncio.run(answered([], path="/health")) == [{"type": "in"}]
    assert asyncio.run(answered([], path="/health/"))[0]["status"] == 401
    assert asyncio.run(answered([], kind="lifespan")) == [{"type": "in"}]


def test_an_application_learns_that_its_client_has_gone_before_it_reads_that() -> None:
    seen: list[Any] = []

    async def application(_scope: Any, receive: Any, _send: Any) -> None:
        gone = client_gone()
        assert gone is not None
        seen.append(await receive())
        await asyncio.wait_for(gone.wait(), 10)
        seen.append(await receive())

    async def run() -> None:
        messages = [{"type": "websocket.receive", "text": "reset"}, {"type": "websocket.disconnect"}]

        async def receive() -> Any:
            return messages.pop(0)

        async def send(_message: Any) -> None:
            """Takes nothing."""

        await ClientPresence(application)({"type": "websocket"}, receive, send)
        assert client_gone() is None

    asyncio.run(run())
    assert [message["type"] for message in seen] == ["websocket.receive", "websocket.disconnect"]
