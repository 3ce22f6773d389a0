"""A guest's VNC server as far as a viewer needs it: websockify's WebSocket with RFB 3.8 in it; it keeps what it was sent."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SERVER_INIT = b"\x05\x00\x04\x00" + bytes(16) + b"\x00\x00\x00\x05guest"


class GuestVNC:
    """The server."""

    def __init__(self) -> None:
        self.port = 0
        self.received = bytearray()
        """What came after the beginning."""
        self.paths: list[str] = []
        self.gone = threading.Event()

    def serve(self, connection: Any) -> None:
        self.paths.append(connection.request.path)
        self.gone.clear()
        sent = _Bytes(connection)
        connection.send(b"RFB 003.0")
        connection.send(b"08\n")
        assert sent.take(12) == b"RFB 003.008\n"
        connection.send(b"\x01\x01")
        assert sent.take(1) == b"\x01"
        connection.send(b"\x00\x00\x00\x00")
        assert sent.take(1) == b"\x01"
        connection.send(SERVER_INIT)
        try:
            while True:
                piece = sent.take(1)
                self.received += piece
                if piece == b"\x03":  # asks for what is shown
                    self.received += sent.take(9)
                    connection.send(b"\x00\x00\x00\x00")
        except EOFError:
            self.gone.set()


class _Bytes:
    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._left = b""

    def take(self, count: int) -> bytes:
        from websockets.exceptions import ConnectionClosed  # here: tests are collected without the package, too

        while len(self._left) < count:
            try:
                self._left += self._connection.recv()
            except ConnectionClosed as error:
                raise EOFError from error
        taken, self._left = self._left[:count], self._left[count:]
        return taken


@contextmanager
def guest_vnc() -> Iterator[GuestVNC]:
    """Serves one on this machine."""
    from websockets.sync.server import serve  # here: tests are collected without the package, too

    guest = GuestVNC()
    with serve(guest.serve, "127.0.0.1", 0) as server:
        guest.port = server.socket.getsockname()[1]
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield guest
        server.shutdown()
