"""A server whose answer never ends."""

from __future__ import annotations

import socket
import time
from contextlib import suppress

_CONNECTS_WITHIN = 10.0


def dribble(listening: socket.socket, head: bytes, piece: bytes) -> None:
    """Answers a request with a piece now and then, until nobody listens any more."""
    listening.settimeout(_CONNECTS_WITHIN)
    try:
        connection, _ = listening.accept()
    except TimeoutError:  # the client gave up before it connected
        return
    connection.settimeout(None)
    with connection, suppress(ConnectionError):
        connection.sendall(head)
        for _ in range(1200):
            connection.sendall(piece)
            time.sleep(0.05)
