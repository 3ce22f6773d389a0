"""The two ends of a connection through a gate, as an event loop reads and writes them: a socket, or TLS over one."""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import suppress
from typing import Protocol

_CHUNK = 1 << 18


class End(Protocol):
    """One end."""

    async def receive(self) -> bytes:
        """What has come; empty when the other side has said its last."""

    async def send(self, data: bytes) -> None:
        """Sends all of it; a slow reader is waited for."""

    async def say_last(self) -> None:
        """Tells the other side that nothing more comes; it may still send."""


class PlainEnd:
    """A socket.

    Args:
        loop: Which reads and writes it.
        connection: Connected and not blocking.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, connection: socket.socket) -> None:
        self._loop = loop
        self._socket = connection

    async def receive(self) -> bytes:
        """See `End`."""
        return await self._loop.sock_recv(self._socket, _CHUNK)

    async def send(self, data: bytes) -> None:
        """See `End`."""
        await self._loop.sock_sendall(self._socket, data)

    async def say_last(self) -> None:
        """See `End`."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)


class TLSEnd:
    """TLS over a socket.

    Args:
        plain: The socket's end.
        context: Of the side that this is.
        server: Whether this is the side that has the certificate.
    """

    def __init__(self, plain: PlainEnd, context: ssl.SSLContext, *, server: bool) -> None:
        self._plain = plain
        self._coming, self._going = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._coming, self._going, server_side=server)
        self._sending = asyncio.Lock()

    async def shake_hands(self) -> None:
        """Begins.

        Raises:
            OSError: The other side speaks no TLS that this one takes.
        """
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                await self._flush()
                if not await self._take_in():
                    raise ConnectionResetError("the connection ended in the middle of the handshake") from None
        await self._flush()

    @property
    def certificate(self) -> bytes | None:
        """The other side's, in DER."""
        return self._tls.getpeercert(binary_form=True)

    async def receive(self) -> bytes:
        """See `End`."""
        while True:
            try:
                return self._tls.read(_CHUNK)
            except ssl.SSLWantReadError:
                await self._flush()  # a change of keys wants an answer
                if not await self._take_in():
                    return b""
            except ssl.SSLZeroReturnError:
                return b""

    async def send(self, data: bytes) -> None:
        """See `End`."""
        self._tls.write(data)
        await self._flush()

    async def say_last(self) -> None:
        """See `End`."""
        with suppress(OSError):
            with suppress(ssl.SSLWantReadError):  # the other side's own end comes when it comes
                self._tls.unwrap()
            await self._flush()

    async def _flush(self) -> None:
        async with self._sending:
            if data := self._going.read():
                await self._plain.send(data)

    async def _take_in(self) -> bool:
        data = await self._plain.receive()
        if data:
            self._coming.write(data)
        return bool(data)
