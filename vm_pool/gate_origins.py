"""Keeps foreign web pages from a port without a login: the `Origin` and `Host` of HTTP requests are checked as they pass.

Any page that the user of this machine has open can have the browser send requests to a port of the loopback.
"""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress

from vm_pool.gate_streams import End

HEADER_BYTES = 1 << 16
"""The most that a request's line and headers may have."""
HEADER_SECONDS = 10.0
"""From a request's first bytes to the end of its headers."""
_ANSWER_SECONDS = 1.0
"""For a refused client to read why: data of its that nobody reads would make the kernel discard the answer."""
_BEGINNING = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,32} ")
"""A method, which a browser never sends in two parts, and a space."""
_LINE = re.compile(rb"[^ \n]+ [^\n]* HTTP/[0-9.]+\r?\n")
_END = re.compile(rb"\n\r?\n")
_LENGTH = re.compile(rb"[0-9]{1,18}")
_WITHOUT_END = 1 << 62

_Headers = Mapping[bytes, Sequence[bytes]]
"""Values by name in lower case."""


class OriginCheck:
    """The client's end of a connection, from which no request of a foreign web page is received.

    A browser names the page in `Origin` with every WebSocket and every request that may change something, and names in `Host`
    where it means to connect, which is a page's own host if the page had that name point to this machine. Every request of a
    connection is checked, the later ones too: browsers send requests of several pages on a connection that they have kept.

    Not checked: connections that do not begin like an HTTP request, such as VNC; what follows a request with `Upgrade`, as a
    WebSocket's data, or with `Transfer-Encoding`, which no browser sends to a plain port; requests that lack both headers. A
    foreign page may therefore read (GET, as for an image), but does not see the answer.

    Args:
        end: The client's end.
        port: The port of the loopback that the client connected to.
    """

    def __init__(self, end: End, port: int) -> None:
        self._end = end
        self._addresses = [f"{name}:{port}".encode() for name in ("127.0.0.1", "localhost")]
        self._kept = b""
        """What came after the data that may pass."""
        self._may_pass = 0
        """Bytes until the next request."""

    async def receive(self) -> bytes:
        """See `End`; waits for the whole headers of a request.

        Raises:
            ConnectionRefusedError: A foreign page sent the request, which was answered, or its headers are too long or invalid.
            TimeoutError: The headers did not come in time.
        """
        data = self._kept or await self._end.receive()
        if not self._may_pass:
            data = await self._begun(data)
            self._may_pass = await self._checked(data)
        passing, self._kept = data[: self._may_pass], data[self._may_pass :]
        self._may_pass -= len(passing)
        return passing

    async def send(self, data: bytes) -> None:
        """See `End`."""
        await self._end.send(data)

    async def say_last(self) -> None:
        """See `End`."""
        await self._end.say_last()

    async def _begun(self, data: bytes) -> bytes:
        """Returns the data with the rest of the headers, if it is the beginning of a request."""
        async with asyncio.timeout(HEADER_SECONDS):
            while _is_request(data) and not _END.search(data):
                if len(data) > HEADER_BYTES:
                    raise ConnectionRefusedError(f"a request's headers have more than {HEADER_BYTES} bytes")
                piece = await self._end.receive()
                if not piece:
                    break
                data += piece
        return data

    async def _checked(self, data: bytes) -> int:
        """Returns how many bytes may pass before something must be checked again."""
        if not _is_request(data):
            return _WITHOUT_END
        end = _END.search(data)
        size = end.end() if end else len(data)
        headers = _headers_of(data[:size])
        if self._is_foreign(headers):
            await self._refuse()
        if b"upgrade" in headers or b"transfer-encoding" in headers:
            return _WITHOUT_END
        length = headers.get(b"content-length", [b"0"])[0]
        if not _LENGTH.fullmatch(length):
            raise ConnectionRefusedError("a request has an invalid length")
        return size + int(length)

    def _is_foreign(self, headers: _Headers) -> bool:
        """Whether another address than this port's sent the request, or it was meant for another."""
        origins = [b"http://" + address for address in self._addresses]
        return any(host.lower() not in self._addresses for host in headers.get(b"host", [])) or any(
            origin.lower() not in origins for origin in headers.get(b"origin", [])
        )

    async def _refuse(self) -> None:
        """Answers a request of a foreign page.

        Raises:
            ConnectionRefusedError: Always.
        """
        sentence = b"it is reached as %s or %s, and not by other web pages\n" % tuple(self._addresses)
        head = b"HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
        with suppress(TimeoutError):
            async with asyncio.timeout(_ANSWER_SECONDS):
                await self._end.send(head % len(sentence) + sentence)
                await self._end.say_last()
                while await self._end.receive():
                    pass
        raise ConnectionRefusedError("a foreign web page sent a request")


def _is_request(data: bytes) -> bool:
    """Whether data is an HTTP request, or may be the beginning of one."""
    return bool(_LINE.match(data) if b"\n" in data else _BEGINNING.match(data))


def _headers_of(head: bytes) -> _Headers:
    found = defaultdict(list)
    for line in head.split(b"\n")[1:]:
        name, _, value = line.partition(b":")
        found[name.strip().lower()].append(value.strip())
    return found
