"""Clients that begin requests and do not finish them: they are cut in time, and others are answered meanwhile."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from importlib.util import find_spec

import httpx
import psutil
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from rollout_tasks.cli.http_server import running_server
from rollout_tasks.http_services.client_presence import ClientPresence, has_gone
from tests.virtual_machines import wait_until

MOST = 12


async def answer(request: Request) -> Response:
    if request.method == "PUT":
        await request.body()
    return Response(b"answered")


async def answer_late(request: Request) -> Response:
    """Answers after what comes meanwhile has come, but was not read: as where the program was busy."""
    del request
    time.sleep(0.5)
    went.append(await has_gone())
    return Response(b"answered")


async def answer_much(request: Request) -> Response:
    del request
    return Response(b"x" * (32 << 20))


went: list[bool] = []


async def serve_socket(websocket: WebSocket) -> None:
    await websocket.accept()
    await websocket.receive()


@pytest.fixture
def port() -> Iterator[int]:
    application = Starlette(
        routes=[
            Route("/", answer, methods=["GET", "POST", "PUT"]),
            Route("/late", answer_late),
            Route("/much", answer_much),
            WebSocketRoute("/ws", serve_socket),
        ]
    )
    listener = socket.create_server(("127.0.0.1", 0))
    went.clear()
    with running_server(ClientPresence(application), listener, most_connections=MOST):
        yield listener.getsockname()[1]


def sent(port: int, content: bytes) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=20)
    connection.sendall(content)
    return connection


def read_all(connection: socket.socket) -> bytes:
    """What comes until the connection is cut; fails if it never is."""
    content = b""
    try:
        while piece := connection.recv(65536):
            content += piece
    except ConnectionResetError:
        pass
    return content


def answers(port: int) -> int:
    return httpx.get(f"http://127.0.0.1:{port}/").status_code


@pytest.mark.parametrize("head", [b"", b"G", b"GET / HTTP/1.1\r\nHost: a\r\nX: "])
def test_a_head_that_does_not_end_is_cut(port: int, head: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rollout_tasks.http_protocol.HEAD_SECONDS", 0.2)

    assert read_all(sent(port, head)) == b""


@pytest.mark.parametrize("method", [b"PUT", b"POST"], ids=["that is read", "that nobody reads"])
def test_a_body_that_drips_is_cut(port: int, method: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte would otherwise begin the time anew in which a connection may be idle."""
    monkeypatch.setattr("rollout_tasks.http_protocol.BODY_SECONDS", 0.5)
    monkeypatch.setattr("rollout_tasks.http_protocol.REST_SECONDS", 0.5)
    connection = sent(port, method + b" / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n")
    with pytest.raises(OSError):  # noqa: PT011 - a broken pipe or a reset
        for _ in range(200):
            connection.sendall(b"x")
            time.sleep(0.05)


def test_unfinished_heads_leave_room_for_others(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rollout_tasks.http_protocol.MOST_HEADLESS", 4)
    with ExitStack() as opened:
        slow = [opened.enter_context(sent(port, b"GET")) for _ in range(3 * MOST)]
        assert answers(port) == 200
        assert read_all(slow[0]) == b""
        slow[-1].sendall(b" / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        assert read_all(slow[-1]).endswith(b"answered")


@pytest.mark.parametrize("kind", ["the body of an answered request drips", "the answer is not read"])
def test_answered_requests_leave_room_for_others(port: int, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rollout_tasks.http_protocol.MOST_HEADLESS", 4)
    drips = kind.startswith("the body")
    request = (
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n"
        if drips
        else b"GET /much HTTP/1.1\r\nHost: a\r\n\r\n"
    )
    with ExitStack() as opened:
        for _ in range(2 * MOST):
            one = opened.enter_context(sent(port, request))
            assert one.recv(10).startswith(b"HTTP/1.1 2")
        assert answers(port) == 200


def test_the_rest_of_an_answered_requests_body_has_little_time(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rollout_tasks.http_protocol.REST_SECONDS", 0.3)
    connection = sent(port, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n")
    assert connection.recv(10).startswith(b"HTTP/1.1 2")
    with pytest.raises(OSError):  # noqa: PT011 - a broken pipe or a reset
        for _ in range(200):
            connection.sendall(b"x")
            time.sleep(0.05)


def test_there_is_a_most_of_connections_with_those_of_sockets(port: int) -> None:
    client_of = pytest.importorskip("websockets.sync.client", reason="the package websockets is not installed")
    exceptions = pytest.importorskip("websockets.exceptions")
    address = f"ws://127.0.0.1:{port}/ws"
    with ExitStack() as opened:
        for _ in range(MOST - 1):
            opened.enter_context(client_of.connect(address))
        with pytest.raises(exceptions.InvalidStatus) as refused:
            client_of.connect(address).__enter__()
        assert refused.value.response.status_code == 503
        assert answers(port) == 503
        opened.pop_all().close()
    assert answers(port) == 200


@pytest.mark.parametrize("goes", [True, False])
def test_a_client_that_went_just_before_its_answer_is_known_to_have_gone(port: int, goes: bool) -> None:
    with sent(port, b"GET /late HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n") as connection:
        time.sleep(0.2)
        if not goes:
            assert read_all(connection).endswith(b"answered")
    wait_until(lambda: went == [goes], seconds=10)


UPGRADE = (
    b" /ws HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
)
needs_websockets = pytest.mark.skipif(find_spec("websockets") is None, reason="websockets is not installed")


@needs_websockets
def test_a_socket_is_opened_by_get_alone(port: int) -> None:
    assert read_all(sent(port, b"POST" + UPGRADE + b"Content-Length: 3\r\n\r\nabc")).startswith(b"HTTP/1.1 400 ")


@needs_websockets
def test_a_message_of_very_many_pieces_is_not_kept(port: int) -> None:
    with sent(port, b"GET" + UPGRADE + b"\r\n") as connection:
        assert connection.recv(4096).startswith(b"HTTP/1.1 101 ")
        first, piece = b"\x01\x80\0\0\0\0", b"\x00\x80\0\0\0\0"
        with suppress(OSError):
            connection.sendall(first + 2_000 * piece)
        assert b"too many pieces of a message" in read_all(connection)


@pytest.mark.slow
@needs_websockets
def test_pings_of_a_client_that_reads_no_answer_are_not_answered_without_end(port: int) -> None:
    with sent(port, b"GET" + UPGRADE + b"\r\n") as connection:
        assert connection.recv(4096).startswith(b"HTTP/1.1 101 ")
        pings = 4_000 * (b"\x89\xfd\0\0\0\0" + b"x" * 125)
        before = psutil.Process().memory_info().rss
        for _ in range(60):  # 31 MB
            connection.sendall(pings)
        assert psutil.Process().memory_info().rss - before < 16 << 20
        assert answers(port) == 200


def test_a_client_that_does_not_read_its_answer_is_cut(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rollout_tasks.http_protocol.READ_SECONDS", 0.2)
    with sent(port, b"GET /much HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n") as connection:
        time.sleep(2)
        assert len(read_all(connection)) < 32 << 20
