"""The client's going is noticed while its request is answered, and little of what it sends is kept unread."""

from __future__ import annotations

import asyncio

import pytest
from starlette.types import Message, Receive, Scope, Send

from rollout_tasks.http_services.client_presence import ClientPresence, client_gone

TURNS = 50
"""Of the event loop: enough for everything that is ready to happen."""
LAST = {"type": "http.request", "body": b"", "more_body": False}


class Client:
    """Sends messages as fast as they are read."""

    def __init__(self, *messages: Message, then: Message | None = None) -> None:
        self._messages = list(messages)
        self._then = then
        self.read = 0

    async def receive(self) -> Message:
        await asyncio.sleep(0)
        if self.read < len(self._messages):
            self.read += 1
            return self._messages[self.read - 1]
        if self._then is None:
            await asyncio.Event().wait()
        assert self._then is not None
        return self._then


async def nothing(_message: Message) -> None:
    """Sends nothing."""


async def turn() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)


def answer(kind: str, client: Client, application: object) -> None:
    asyncio.run(ClientPresence(application)({"type": kind}, client.receive, nothing))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("websocket", {"type": "websocket.receive", "bytes": b"x"}),
        ("http", {"type": "http.request", "body": b"x", "more_body": True}),
    ],
)
def test_one_message_is_read_ahead(kind: str, message: Message) -> None:
    client = Client(*[message] * 100)

    async def application(_scope: Scope, receive: Receive, _send: Send) -> None:
        for taken in range(3):
            await turn()
            assert client.read == taken + 1
            await receive()

    answer(kind, client, application)


@pytest.mark.parametrize(
    ("kind", "messages"),
    [
        ("http", [LAST]),
        ("http", []),
        ("websocket", [{"type": "websocket.connect"}, {"type": "websocket.receive", "text": "{}"}]),
    ],
    ids=["a request without a body", "a body that was cut off", "a call on a socket"],
)
def test_the_clients_going_is_noticed_while_it_is_answered(kind: str, messages: list[Message]) -> None:
    client = Client(*messages, then={"type": f"{kind}.disconnect"})

    async def application(_scope: Scope, receive: Receive, _send: Send) -> None:
        gone = client_gone()
        assert gone is not None
        if kind == "websocket":
            assert [(await receive())["type"] for _ in messages] == [one["type"] for one in messages]
        await turn()
        assert gone.is_set()

    answer(kind, client, application)


def test_a_body_that_is_read_whole_comes_in_order() -> None:
    pieces: list[Message] = [{"type": "http.request", "body": bytes([n]), "more_body": True} for n in range(5)]
    client = Client(*pieces, LAST, then={"type": "http.disconnect"})

    async def application(_scope: Scope, receive: Receive, _send: Send) -> None:
        assert [await receive() for _ in range(7)] == [*pieces, LAST, {"type": "http.disconnect"}]

    answer("http", client, application)
