"""A connection to a port of a lent desktop, through its VM's gate, and the relay between it and a client's WebSocket.

Binary messages are passed on as they come; how they are parted means nothing.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Coroutine
from contextlib import suppress
from socket import SO_LINGER, SOL_SOCKET
from typing import Any, Protocol

from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from vm_pool.gate_login import line_of
from vm_pool.gate_tls import client_context, hash_of
from vm_pool.states import Endpoint

_PIECE = 1 << 16
_SLICE = 1 << 14
"""Bytes that are passed on before others have their turn: a view reads each message in them."""
_STALLED_SECONDS = 30.0
"""How long the desktop may take nothing of what its client sends."""
_OVER = 1000


class Readable(Protocol):
    """What comes from a desktop."""

    async def read(self, most: int, /) -> bytes:
        """Returns what came next; nothing at the end."""


class Writable(Protocol):
    """What goes to a desktop."""

    def write(self, content: bytes, /) -> None:
        """Takes bytes to send."""

    async def drain(self) -> None:
        """Waits until more may be sent."""


async def connected_through_gate(endpoint: Endpoint, purpose: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connects to a VM's port. Not to the relay for programs on this machine, which keeps requests of other hosts' pages away: this
    client has shown its token.

    Args:
        endpoint: Where the VM answers.
        purpose: Of its port.

    Raises:
        OSError: Nothing listens there, or the gate is not the one that the lease names.
    """
    context = client_context() if endpoint.certificate else None
    where = (endpoint.address, endpoint.ports[purpose])
    reader, writer = await asyncio.open_connection(
        *where, ssl=context, server_hostname="" if context else None, limit=_PIECE
    )
    if context is not None:
        shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        if hash_of(shown) != endpoint.certificate:
            writer.close()
            raise ConnectionRefusedError("the gate has another certificate than its lease says")
    if endpoint.token:
        writer.write(line_of(endpoint.token))
    return reader, writer


def abort(writer: asyncio.StreamWriter) -> None:
    """Ends a connection without what was not sent yet: the desktop is the next holder's."""
    no_more = struct.pack("ii", 1, 0)
    with suppress(OSError):
        writer.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, no_more)
    writer.transport.abort()


async def relay(
    socket: WebSocket,
    reader: Readable,
    writer: Writable,
    ended: Coroutine[Any, Any, None],
    closed: Callable[[], bool],
) -> None:
    """Carries bytes both ways until either side ends the connection.

    Args:
        socket: The client's, which is accepted; closed at the end.
        reader: What the desktop sends.
        writer: What it is sent.
        ended: Returns when the connection has to end.
        closed: Whether the desktop is closed to the client; asked before each piece is passed on.
    """
    both = (_to_desktop(socket, writer, closed), _to_client(reader, socket, closed), ended)
    ways = [asyncio.create_task(way) for way in both]
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        if socket.application_state is WebSocketState.CONNECTED:
            with suppress(RuntimeError, WebSocketDisconnect):  # its client may have gone
                await socket.close(_OVER)


async def _to_desktop(socket: WebSocket, writer: Writable, closed: Callable[[], bool]) -> None:
    while True:
        message = await socket.receive()
        if message["type"] == "websocket.disconnect":
            return
        if not (content := message.get("bytes")):
            return  # text: not what a port takes
        for start in range(0, len(content), _SLICE):
            if closed():
                return
            writer.write(content[start : start + _SLICE])
            async with asyncio.timeout(_STALLED_SECONDS):
                await writer.drain()
            await asyncio.sleep(0)


async def _to_client(reader: Readable, socket: WebSocket, closed: Callable[[], bool]) -> None:
    while (content := await reader.read(_PIECE)) and not closed():
        await socket.send_bytes(content)
