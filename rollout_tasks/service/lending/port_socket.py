"""The WebSocket of an emulator's port: bytes to and from the desktop, for clients on machines that do not reach the port itself.

Binary messages are passed on as they come; how they are parted means nothing. It ends with the connection to the desktop, and that
with the lease.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Coroutine
from contextlib import suppress
from socket import SO_LINGER, SOL_SOCKET
from typing import Any, Protocol

from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from rollout_tasks.http_services.token_holders import TokenHolders
from rollout_tasks.service.lending.emulator_routes import PURPOSES
from rollout_tasks.service.lending.http_requests import holder_of, problem
from rollout_tasks.service.lending.lease_book import LentDesktop
from rollout_tasks.service.lending.lease_calls import LeaseCalls
from rollout_tasks.service.lending.open_sockets import OpenSockets
from rollout_tasks.service.lending.refusal import Refusal
from vm_pool.gate_login import line_of
from vm_pool.gate_tls import client_context, hash_of
from vm_pool.states import Endpoint

PATH = "/emulators/{emulator_id}/ports/{port}"
_MOST = 64
"""Connections to one desktop at a time; a browser opens many."""
_PIECE = 1 << 16
_CONNECT_SECONDS = 10.0
_LOOK_SECONDS = 0.2
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


class PortSocket:
    """Serves the WebSockets of all emulators' ports."""

    def __init__(self, calls: LeaseCalls, holders: TokenHolders) -> None:
        """Takes whose leases they are, and who may use them."""
        self._calls = calls
        self._holders = holders
        self._open = OpenSockets(_MOST)

    async def serve(self, socket: WebSocket) -> None:
        """Carries one connection until either side ends it."""
        try:
            holder = holder_of(socket, self._holders)
            lent = self._calls.book.find(holder, socket.path_params["emulator_id"])
            # Counted before it is connected: many may ask at once.
            with self._open.counted(lent.id, holder.owner, self._calls.book.most_of(holder)):
                await self._serve_counted(lent, socket)
        except Refusal as refusal:
            await socket.send_denial_response(problem(refusal))

    async def _serve_counted(self, lent: LentDesktop, socket: WebSocket) -> None:
        reader, writer = await self._connected(lent, socket.path_params["port"])
        try:
            await socket.accept()
            await carried(socket, reader, writer, self._ended(lent, socket), lambda: lent.session.closed)
        finally:
            if lent.session.closed:
                drop(writer)
            writer.close()

    async def _ended(self, lent: LentDesktop, socket: WebSocket) -> None:
        """Returns when the lease ends, after which the desktop is somebody else's, or the token is revoked."""
        while not lent.session.closed:
            try:
                holder_of(socket, self._holders)
            except Refusal:
                return
            await asyncio.sleep(_LOOK_SECONDS)

    async def _connected(self, lent: LentDesktop, name: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        endpoint, purpose = lent.session.endpoint, PURPOSES.get(name, "")
        if endpoint is None or purpose not in endpoint.ports or not lent.emulator:
            raise Refusal(404, "there is no such port")
        if lent.session.closed:
            raise Refusal(410, "the lease is over")
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                return await through_gate(endpoint, purpose)
        except OSError as error:  # a timeout, too
            raise Refusal(503, "nothing answers at the desktop's port") from error


async def through_gate(endpoint: Endpoint, purpose: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
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


def drop(writer: asyncio.StreamWriter) -> None:
    """Ends a connection without what was not sent yet: the desktop is the next holder's."""
    no_more = struct.pack("ii", 1, 0)
    with suppress(OSError):
        writer.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, no_more)
    writer.transport.abort()


async def carried(
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
        if closed():
            return
        writer.write(content)
        async with asyncio.timeout(_STALLED_SECONDS):
            await writer.drain()


async def _to_client(reader: Readable, socket: WebSocket, closed: Callable[[], bool]) -> None:
    while (content := await reader.read(_PIECE)) and not closed():
        await socket.send_bytes(content)
