"""The protocol of our servers' WebSockets: uvicorn's, with limits on what clients can send. Needs `websockets`."""

from __future__ import annotations

from asyncio.transports import BaseTransport

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode, Frame

from rollout_tasks.http_protocol import WritingDeadline

_MOST_FRAGMENTS = 1_000
"""Pieces of one message: uvicorn keeps them all, and may get a hundred thousand empty ones in a moment."""
_PIECE = 1 << 14
"""Bytes that are read at a time: all small messages in them are kept, and other clients wait meanwhile."""


class BoundedSocket(WritingDeadline, WebSocketsSansIOProtocol):
    """One connection."""

    _fragments = 0

    def connection_made(self, transport: BaseTransport) -> None:
        """Begins to read, in small pieces."""
        super().connection_made(transport)
        if hasattr(transport, "max_size"):  # of asyncio's own event loop
            transport.max_size = _PIECE

    def handle_cont(self, event: Frame) -> None:
        """Takes a piece of a message, if there are not too many."""
        self._fragments = 0 if event.fin else self._fragments + 1
        if self._fragments > _MOST_FRAGMENTS:
            self.conn.fail(CloseCode.MESSAGE_TOO_BIG, "too many pieces of a message")
            self.handle_parser_exception()
        else:
            super().handle_cont(event)

    def handle_ping(self) -> None:
        """Answers a ping, but not one of many from a client that does not read the answers."""
        if self.writable.is_set():
            super().handle_ping()
        else:
            self.conn.data_to_send()
