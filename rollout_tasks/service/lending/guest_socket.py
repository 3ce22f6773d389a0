"""The WebSocket that a desktop's VNC is behind, as a client over a connection that is open already: bytes to and from it.

The guest is not trusted: its messages are bounded, and nothing that it sends is unpacked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from websockets.client import ClientProtocol

_ADDRESS = "ws://desktop/websockify"
"""The path is that of websockify behind noVNC, here and in OSWorld's desktops."""
_LARGEST_MESSAGE = 1 << 20
_PIECE = 1 << 14
"""Bytes that are read at a time: while all frames in them are taken apart, others wait."""
_MOST_FRAMES = 1_000
"""In one piece. websockify sends what it has in one; thousands of empty ones, or of pings, come from nobody honest."""
_STALLED_SECONDS = 30.0
"""How long the guest may not take the answers to its pings."""


class GuestSocket:
    """An open WebSocket to a guest."""

    def __init__(
        self,
        protocol: ClientProtocol,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        events: Sequence[object],
    ) -> None:
        """Takes one that is open, as `opened` returns it."""
        self._protocol = protocol
        self._reader = reader
        self._writer = writer
        self._events = events
        """What came with the reply to the request."""

    async def read(self, _most: int) -> bytes:
        """Returns what came next; nothing once the guest has ended it. A message is not parted, however long.

        Raises:
            OSError: The guest sends too many messages, or does not take the answers to its pings.
        """
        from websockets.frames import Frame, Opcode  # here: see `opened`

        while True:
            events, self._events = (*self._events, *self._protocol.events_received()), ()
            if len(events) > _MOST_FRAMES:
                raise ConnectionResetError("the desktop's VNC sends far too many messages")
            frames = [one for one in events if isinstance(one, Frame)]
            carrying = (Opcode.BINARY, Opcode.CONT)
            if content := b"".join(bytes(one.data) for one in frames if one.opcode in carrying):
                return content
            if self._protocol.state.name != "OPEN" or not await _receive(self._protocol, self._reader, self._writer):
                return b""

    def write(self, content: bytes) -> None:
        """Sends bytes, in one message.

        Raises:
            OSError: The guest has ended the connection.
        """
        if content and self._protocol.state.name != "OPEN":
            raise ConnectionResetError("the desktop's VNC has ended the connection")
        if content:
            self._protocol.send_binary(content)
            _flush(self._protocol, self._writer)

    async def drain(self) -> None:
        """Waits until the guest takes more."""
        await self._writer.drain()


async def opened(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> GuestSocket:
    """Opens the WebSocket over a connection.

    Raises:
        OSError: The guest does not answer as a WebSocket does.
    """
    # Here, because the service runs without this package, too, and then has no WebSockets at all.
    from websockets.client import ClientProtocol
    from websockets.uri import parse_uri

    protocol = ClientProtocol(parse_uri(_ADDRESS), max_size=_LARGEST_MESSAGE)
    protocol.send_request(protocol.connect())
    _flush(protocol, writer)
    while protocol.state.name == "CONNECTING":
        if not await _receive(protocol, reader, writer):
            break
    events = protocol.events_received()  # the reply, and what came with it: that may be all there is
    if not events or protocol.handshake_exc is not None:
        raise ConnectionRefusedError(f"the desktop's VNC did not open a WebSocket: {protocol.handshake_exc}")
    return GuestSocket(protocol, reader, writer, events)


async def _receive(protocol: ClientProtocol, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """Takes what the guest sent; returns False once that was all."""
    if content := await reader.read(_PIECE):
        protocol.receive_data(content)
    else:
        protocol.receive_eof()
    _flush(protocol, writer)  # as the answer to a ping
    async with asyncio.timeout(_STALLED_SECONDS):
        await writer.drain()
    return bool(content)


def _flush(protocol: ClientProtocol, writer: asyncio.StreamWriter) -> None:
    for content in protocol.data_to_send():
        if content:
            writer.write(content)
