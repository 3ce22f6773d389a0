"""A server whose answer never ends."""

from __future__ import annotations

import socket
import time
from contextlib import suppress


def dribble(listening: socket.socket, head: bytes, piece: bytes) -> None:
    """Answers a request with a piece now and then, until nobody listens any more."""
    connection, _ = listening.accept()
    with connection, suppress(ConnectionError):
        connection.sendall(head)
        for _ in range(1200):
            connection.sendall(piece)
            time.sleep(0.05)
