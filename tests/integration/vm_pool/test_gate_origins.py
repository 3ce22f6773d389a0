"""Web pages at a relay, a port without a login: what a foreign page makes a browser send reaches no VM; all else does."""

from __future__ import annotations

import http.client
import http.server
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace

import pytest

from tests.integration.vm_pool.test_gate import Server, is_over, received
from vm_pool import gate_origins
from vm_pool.gate import Gates
from vm_pool.gate_login import token_of
from vm_pool.gate_relay import relayed

KEY = b"what only hosts and borrowers know"


class Guest(http.server.BaseHTTPRequestHandler):
    """A VM's server that checks nothing, and keeps connections."""

    protocol_version = "HTTP/1.1"
    bodies: list[bytes]

    def do_GET(self) -> None:
        self.do_POST()

    def do_POST(self) -> None:
        self.bodies.append(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        self.send_response(200)
        self.send_header("Content-Length", "4")
        self.end_headers()
        self.wfile.write(b"done")

    def log_message(self, *_: object) -> None:
        """Says nothing."""


class GuestServer(http.server.ThreadingHTTPServer):
    """Says nothing of connections that the relay reset."""

    daemon_threads, block_on_close = True, False

    def handle_error(self, *_: object) -> None:
        """See `socketserver.BaseServer`."""


Relayed = Callable[[Callable[[str], socket.socket]], int]


@pytest.fixture
def relay() -> Iterator[Relayed]:
    """Returns the port of a relay to what is dialled, with a gate that wants a token in between."""
    with ExitStack() as ends:

        def opened(dial: Callable[[str], socket.socket]) -> int:
            gates = Gates(key=KEY)
            ends.callback(gates.close)
            gate = gates.open(["control"], dial)
            ends.callback(gate.close)
            token = token_of(KEY, gate.endpoint.gate)
            return ends.enter_context(relayed(replace(gate.endpoint, token=token))).ports["control"]

        yield opened


@pytest.fixture
def guest(relay: Relayed) -> Iterator[tuple[int, list[bytes]]]:
    """Yields the port of a relay to a guest's HTTP server, and the bodies of the requests that it gets."""
    bodies: list[bytes] = []
    handler = type("OneGuest", (Guest,), {"bodies": bodies})
    with GuestServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield relay(lambda _purpose: socket.create_connection(server.server_address[:2])), bodies
        server.shutdown()


@pytest.fixture
def raw(relay: Relayed) -> Iterator[Callable[[Callable[[socket.socket], None]], int]]:
    """Returns the port of a relay to a server that does with each connection what it is told."""
    with ExitStack() as ends:

        def opened(serve: Callable[[socket.socket], None]) -> int:
            server = Server(serve)
            ends.callback(server.close)
            return relay(server.dial)

        yield opened


def knock(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=20)


def everything(connection: socket.socket) -> bytes:
    return received(connection, 1 << 30)


def echo(connection: socket.socket) -> None:
    while data := connection.recv(65536):
        connection.sendall(data)
    connection.shutdown(socket.SHUT_WR)


BODY = b"\r\nContent-Length: 4\r\n\r\nevil"
FOREIGN = {
    "a form": b"POST /execute HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nOrigin: https://evil.example" + BODY,
    "a page of no address": b"POST /execute HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nOrigin: null" + BODY,
    "a page of another program": b"POST / HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nOrigin: http://127.0.0.1:1" + BODY,
    "a page like the port": b"POST / HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nOrigin: http://127.0.0.1:PORT.evil.example"
    + BODY,
    "a secure page": b"POST / HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nOrigin: https://127.0.0.1:PORT" + BODY,
    "a WebSocket": b"GET /websockify HTTP/1.1\r\nHost: localhost:PORT\r\nUpgrade: websocket\r\nOrigin: http://evil\r\n\r\n",
    "a name that was rebound": b"GET / HTTP/1.1\r\nHost: evil.example:PORT\r\n\r\n",
    "its own method": b"evil /execute HTTP/1.1\r\nHost: evil.example:PORT" + BODY,
    "another port": b"GET / HTTP/1.1\r\nHost: 127.0.0.1:1\r\n\r\n",
    "no port": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "small letters": b"POST / HTTP/1.1\nhost:127.0.0.1:PORT\norigin:http://evil\ncontent-length:4\n\nevil",
    "two origins": b"GET / HTTP/1.1\r\nOrigin: http://127.0.0.1:PORT\r\nOrigin: http://evil\r\n\r\n",
    "a long address": b"POST /" + b"x" * 60_000 + b" HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nOrigin: http://evil" + BODY,
    "no end": b"POST / HTTP/1.1\r\nOrigin: http://evil\r\n",
}


@pytest.mark.parametrize("way", FOREIGN)
@pytest.mark.parametrize("pieces", [1, 5], ids=["at once", "in pieces"])
def test_what_a_foreign_page_sends_is_refused(way: str, pieces: int, guest: tuple[int, list[bytes]]) -> None:
    port, bodies = guest
    request = FOREIGN[way].replace(b"PORT", b"%d" % port)
    size = -(-len(request) // pieces)

    with knock(port) as connection:
        with suppress(ConnectionError):  # it may be refused before the last piece
            for start in range(0, len(request), size):
                connection.sendall(request[start : start + size])
                time.sleep(0.01)
            connection.shutdown(socket.SHUT_WR)
        answer = everything(connection)

    assert answer.startswith(b"HTTP/1.1 403 Forbidden\r\n")
    assert answer.endswith(
        b"it is reached as 127.0.0.1:%d or localhost:%d, and not by other web pages\n" % (port, port)
    )
    assert bodies == []


def test_a_browser_sends_foreign_pages_requests_on_connections_that_it_has_kept(guest: tuple[int, list[bytes]]) -> None:
    port, bodies = guest
    with knock(port) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Length: 4\r\n\r\ngood" % port)
        while not connection.recv(1 << 16).endswith(b"done"):
            pass
        connection.sendall(FOREIGN["a form"].replace(b"PORT", b"%d" % port))
        assert everything(connection).startswith(b"HTTP/1.1 403 Forbidden\r\n")

    assert bodies == [b"good"]


def test_programs_and_the_ports_own_pages_are_served_on_one_connection(guest: tuple[int, list[bytes]]) -> None:
    port, bodies = guest
    looks_foreign = FOREIGN["a form"] * 10_000
    sent = [b"", b"x" * 3_000_000, looks_foreign, b"", b"last"]
    for name in ("127.0.0.1", "localhost"):
        bodies.clear()
        connection = http.client.HTTPConnection(name, port, timeout=20)
        connection.connect()
        held = connection.sock
        for body in sent:
            headers = {"Origin": f"http://{name}:{port}"} if body else {}
            connection.request("POST" if body else "GET", "/", body, headers)
            assert connection.getresponse().read() == b"done"
        assert connection.sock is held
        connection.close()
        assert bodies == sent


@pytest.mark.parametrize(
    "line", [b"Upgrade: websocket\r\nOrigin: http://localhost:PORT", b"Transfer-Encoding: chunked"]
)
def test_what_follows_without_a_length_passes_as_it_is(line: bytes, raw: Callable[..., int]) -> None:
    port = raw(echo)
    head = b"GET / HTTP/1.1\r\nHost: localhost:PORT\r\n" + line + b"\r\n\r\n"
    with knock(port) as connection:
        for said in (head.replace(b"PORT", b"%d" % port), b"\x81\x05hello", FOREIGN["a form"], b"GET ", b"x"):
            connection.sendall(said)
            assert received(connection, len(said)) == said


def received_exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size and (part := connection.recv(size - len(data))):
        data += part
    return data


def test_a_server_that_speaks_first_is_heard_at_once(raw: Callable[..., int]) -> None:
    def view(connection: socket.socket) -> None:
        connection.sendall(b"RFB 003.008\n")
        echo(connection)

    with knock(raw(view)) as connection:
        began = time.monotonic()
        assert received_exactly(connection, 12) == b"RFB 003.008\n"
        for said in (b"RFB 003.008\n", b"\x01", bytes(range(256)), b"POST /", FOREIGN["a form"]):
            connection.sendall(said)
            assert received_exactly(connection, len(said)) == said
        assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    "said", [b"x", b"half", b"hello, goodbye", b"\x16\x03\x01 GET ", b" ", b"\n", b"a b\n", b"G" * 99]
)
def test_what_is_no_request_passes_at_once(said: bytes, raw: Callable[..., int]) -> None:
    with knock(raw(echo)) as connection:
        began = time.monotonic()
        connection.sendall(said)
        assert received_exactly(connection, len(said)) == said
        assert time.monotonic() - began < 5


def test_half_a_request_is_waited_for_so_long(raw: Callable[..., int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate_origins, "HEADER_SECONDS", 0.3)
    heard: list[bytes] = []
    port = raw(lambda connection: heard.append(connection.recv(100)))
    with knock(port) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n")
        assert is_over(connection)
    assert [said for said in heard if said] == []


def test_nothing_is_kept_beyond_so_many_bytes(raw: Callable[..., int]) -> None:
    heard: list[bytes] = []
    port = raw(lambda connection: heard.append(connection.recv(100)))
    with knock(port) as connection:
        with suppress(ConnectionError):
            connection.sendall(b"GET /" + b"x" * (gate_origins.HEADER_BYTES * 4))
        assert is_over(connection)
    assert [said for said in heard if said] == []


@pytest.mark.parametrize("length", [b"-1", b"x", b"1" * 30])
def test_a_length_that_is_none_ends_the_connection(length: bytes, raw: Callable[..., int]) -> None:
    with knock(raw(echo)) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nContent-Length: " + length + b"\r\n\r\n")
        assert is_over(connection)
