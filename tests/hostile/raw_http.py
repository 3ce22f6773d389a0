"""A server of single answers that may be anything: what it sends is bytes and pauses, whether or not that is HTTP."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

LARGEST_REQUEST = 64 << 20
SILENCE_SECONDS = 60.0
_PIECE = 1 << 16

Sent = Iterable[bytes | float]
"""What is sent, in order; a number is a pause in seconds."""


@dataclass(frozen=True)
class Request:
    """What was asked."""

    method: str
    path: str
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass
class Answer:
    """An answer as it should be; how it is sent, mutations say."""

    body: bytes
    kind: str = "application/json"
    status: int = 200
    reason: str = "OK"
    headers: list[tuple[str, str]] = field(default_factory=list)

    def sent(self) -> bytes:
        """All of it, well formed."""
        lines = [f"HTTP/1.1 {self.status} {self.reason}", f"Content-Type: {self.kind}"]
        lines += [f"{name}: {value}" for name, value in self.headers]
        lines.append(f"Content-Length: {len(self.body)}")
        return "\r\n".join([*lines, "", ""]).encode() + self.body


class RawServer:
    """Answers on a port of its own. A connection stays open until an answer was none that a client could go on after."""

    def __init__(self, answer: Callable[[Request, Connection], Sent]) -> None:
        """Begins to listen.

        Args:
            answer: What is sent for a request; called by the connections' threads.
        """
        self._answer = answer
        self._over = threading.Event()
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, name="raw server", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Closes all its connections, whatever is being sent."""
        self._over.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        self.drop()

    def drop(self) -> None:
        """Closes the connections that are open."""
        for connection in list(self._open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _address = self._listener.accept()
                threading.Thread(target=self._connected, args=(connection,), name="raw answer", daemon=True).start()

    def _connected(self, raw: socket.socket) -> None:
        self._open.add(raw)
        try:
            with raw, suppress(OSError, ValueError):
                raw.settimeout(SILENCE_SECONDS)
                connection = Connection(raw)
                while (request := connection.request()) is not None:
                    for piece in self._answer(request, connection):
                        if isinstance(piece, bytes):
                            raw.sendall(piece)
                        elif self._over.wait(piece):
                            return
                    if connection.spoiled:
                        return
        finally:
            self._open.discard(raw)


class Connection:
    """One of a client's."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._have = b""
        self.spoiled = False
        """Whether it ends with this answer."""

    def received(self) -> Iterator[bytes]:
        """Whatever comes, once it is no HTTP any more."""
        if self._have:
            have, self._have = self._have, b""
            yield have
        while piece := self._socket.recv(_PIECE):
            yield piece

    def request(self) -> Request | None:
        """The next one; None once there is no more."""
        while b"\r\n\r\n" not in self._have:
            piece = self._socket.recv(_PIECE)
            if not piece or len(self._have) > LARGEST_REQUEST:
                return None
            self._have += piece
        head, _, self._have = self._have.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        method, path, _version = first.split(" ", 2)
        pairs = (line.partition(":") for line in lines)
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        length = int(headers.get("content-length", 0))
        body = bytearray(self._have)
        while len(body) < length:
            piece = self._socket.recv(_PIECE)
            if not piece or len(body) > LARGEST_REQUEST:
                return None
            body += piece
        self._have = bytes(body[length:])
        return Request(method, path, headers, bytes(body[:length]))
