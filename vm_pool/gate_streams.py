"""The two ends of a connection through a gate, read and written in an event loop: a socket, or TLS over one."""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import suppress
from typing import Protocol

_CHUNK = 1 << 18


class End(Protocol):
    """One end of a connection."""

    async def receive(self) -> bytes:
        """Returns the data that has come; empty when the other side has finished sending."""

    async def send(self, data: bytes) -> None:
        """Sends all of it, and waits for a slow reader."""

    async def say_last(self) -> None:
        """Tells the other side that no more data comes; it may still send."""


class PlainEnd:
    """A socket.

    Args:
        loop: The event loop that reads and writes it.
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
        context: For this side.
        server: Whether this side has the certificate.
    """

    def __init__(self, plain: PlainEnd, context: ssl.SSLContext, *, server: bool) -> None:
        self._plain = plain
        self._coming, self._going = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._coming, self._going, server_side=server)
        self._sending = asyncio.Lock()

    async def shake_hands(self) -> None:
        """Does the TLS handshake.

        Raises:
            OSError: The other side does not speak TLS, or no accepted version of it.
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
        """The other side's certificate, in DER."""
        return self._tls.getpeercert(binary_form=True)

    async def receive(self) -> bytes:
        """See `End`."""
        while True:
            try:
                return self._tls.read(_CHUNK)
            except ssl.SSLWantReadError:
                await self._flush()  # a key update needs an answer
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
            with suppress(ssl.SSLWantReadError):  # the other side closes in its own time
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
