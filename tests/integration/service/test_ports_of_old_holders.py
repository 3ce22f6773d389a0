"""No byte of a client reaches a desktop, nor one of the desktop the client, once the desktop is no longer the client's."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket

from rollout_tasks.cli.http_server import running_server
from rollout_tasks.http_services.client_presence import ClientPresence
from rollout_tasks.service.lending import desktop_connection
from tests.virtual_machines import wait_until

client_of = pytest.importorskip("websockets.sync.client", reason="the package websockets is not installed")
exceptions = pytest.importorskip("websockets.exceptions")


class Way:
    """A client's connection through the service to a desktop."""

    def __init__(self, ends: ExitStack) -> None:
        listener = ends.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.closed = False
        self.ended = False

        async def serve(websocket: WebSocket) -> None:
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            await websocket.accept()
            await desktop_connection.relay(websocket, reader, writer, asyncio.sleep(60), lambda: self.closed)
            desktop_connection.abort(writer)
            self.ended = True

        application = ClientPresence(Starlette(routes=[WebSocketRoute("/", serve)]))
        port = socket.create_server(("127.0.0.1", 0))
        ends.enter_context(running_server(application, port, most_connections=9))
        self.client = ends.enter_context(client_of.connect(f"ws://127.0.0.1:{port.getsockname()[1]}"))
        self.desktop = ends.enter_context(listener.accept()[0])
        self.desktop.settimeout(20)

    def left(self) -> bytes:
        """What still comes to the desktop."""
        content = b""
        with suppress(ConnectionResetError):
            while piece := self.desktop.recv(65536):
                content += piece
        return content


@pytest.fixture
def way() -> Iterator[Way]:
    with ExitStack() as ends:
        yield Way(ends)


def test_bytes_go_both_ways_while_the_lease_is_the_clients(way: Way) -> None:
    way.client.send(b"click")
    assert way.desktop.recv(65536) == b"click"
    way.desktop.sendall(b"shown")
    assert way.client.recv(timeout=20) == b"shown"


def test_nothing_of_the_old_holder_reaches_the_desktop(way: Way) -> None:
    way.closed = True
    way.client.send(b"click")
    assert way.left() == b""


def test_nothing_of_the_desktop_reaches_the_old_holder(way: Way) -> None:
    way.closed = True
    way.desktop.sendall(b"the next holder's screen")
    with pytest.raises(exceptions.ConnectionClosed):
        way.client.recv(timeout=20)


def test_what_the_desktop_has_not_taken_yet_is_dropped(way: Way) -> None:
    way.client.send(b"\0" * (1 << 20))
    for _ in range(8):
        way.client.send(b"\0" * (1 << 18))
    way.closed = True
    way.client.send(b"click")
    way.client.close()
    wait_until(lambda: way.ended, seconds=40)
    assert b"click" not in way.left()
