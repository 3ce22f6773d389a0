"""A TCP proxy that can cut its clients off: the network failing between a worker and Redis, without anybody dying or hanging up."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from typing import Self

_CHUNK = 65_536


class Proxy:
    """Forwards a loopback port to another until told to swallow everything instead."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.cut = threading.Event()
        self._closing = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._open: set[socket.socket] = set()
        self._frozen: set[socket.socket] = set()

    def freeze(self) -> None:
        """Has the connections that there are swallow everything from now on; new ones work."""
        self._frozen = set(self._open)

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._listener.close()
        for connection in list(self._open):
            connection.close()

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                continue
            self._open |= {client, server}
            threading.Thread(target=self._forward, args=(client, server), daemon=True).start()

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        peers = {client: server, server: client}
        with selectors.DefaultSelector() as selector, contextlib.suppress(OSError, ValueError):
            for peer in peers:
                selector.register(peer, selectors.EVENT_READ)
            while not self._closing.is_set():
                for key, _ in selector.select(timeout=0.2):
                    source = key.fileobj
                    assert isinstance(source, socket.socket)
                    data = source.recv(_CHUNK)
                    if not data:
                        raise OSError("closed")
                    if not self.cut.is_set() and source not in self._frozen:
                        peers[source].sendall(data)
        for peer in peers:
            self._open.discard(peer)
            peer.close()
