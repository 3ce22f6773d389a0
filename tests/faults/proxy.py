"""A proxy between one of our processes and Redis that reads every request and lets one of them meet a fault.

All proxies of a playground share one event loop. What is to happen to a request is decided by the `Director` (points.py) as the
request passes; this only carries it out.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from tests.faults.kinds import AFTER_THE_ANSWER, LATE_SECONDS, Kind
from tests.faults.processes import owner_of_connection
from tests.faults.request import Request, Sender
from tests.faults.resp import Command, Commands, Replies

_CHUNK = 1 << 16
_RESET = struct.pack("ii", 1, 0)
_READONLY = b"-READONLY You can't write against a read only replica.\r\n"
_ABORTED = b"-EXECABORT Transaction discarded because of previous errors.\r\n"
_NO_ANSWERS = frozenset({"SUBSCRIBE", "PSUBSCRIBE", "UNSUBSCRIBE", "PUNSUBSCRIBE", "MONITOR"})


class Decides(Protocol):
    """What the proxies ask."""

    def asked(self, request: Request) -> Kind | None:
        """What shall happen to a request that was just sent."""

    def answered(self, request: Request) -> Kind | None:
        """What shall happen to a request that was just answered."""

    def server_killed(self, *, lose_last_second: bool) -> Awaitable[None]:
        """Kills the server and starts it again."""

    def killed(self, sender: Sender) -> None:
        """Kills a process."""

    def memory(self, *, full: bool) -> None:
        """Takes the server's memory away, or gives it back."""


class Proxy:
    """Forwards the connections of one of our processes, and of its children."""

    def __init__(
        self, role: str, target: int, director: Decides, pids: Callable[[], Sequence[tuple[str, int]]]
    ) -> None:
        self.role = role
        self.target = target
        self.director = director
        self.links: set[Link] = set()
        self.port = 0
        self._pids = pids
        self._server: asyncio.Server | None = None
        self.free = asyncio.Event()
        """Cleared while one request has the server to itself."""
        self.free.set()

    async def open(self, free: asyncio.Event) -> None:
        """Begins to listen; `free` is shared by all proxies of one server."""
        self.free = free
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port, limit=_CHUNK)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Ends everything."""
        if self._server is not None:
            self._server.close()
        for link in list(self.links):
            link.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        owner = owner_of_connection(writer.get_extra_info("peername")[1], self.port, self._pids())
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target, limit=_CHUNK)
        except OSError:
            _abort(writer)
            return
        link = Link(self, Sender(*owner), reader, writer, far_reader, far_writer)
        self.links.add(link)
        try:
            await link.run()
        finally:
            self.links.discard(link)


class Link:
    """One connection."""

    def __init__(
        self,
        proxy: Proxy,
        sender: Sender,
        near_in: asyncio.StreamReader,
        near_out: asyncio.StreamWriter,
        far_in: asyncio.StreamReader,
        far_out: asyncio.StreamWriter,
    ) -> None:
        self.proxy, self.sender = proxy, sender
        self.near_in, self.near_out, self.far_in, self.far_out = near_in, near_out, far_in, far_out
        self.waiting: deque[Request] = deque()
        """Requests whose answers are still to come."""
        self.frozen = False
        self.unread = False
        """Whether answers are passed on without being read: a subscriber's belong to no request."""

    async def run(self) -> None:
        """Forwards until one side ends."""
        ways = [asyncio.create_task(self._forth()), asyncio.create_task(self._back())]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            self._close()
            if any(request.kind is Kind.OOM for request in self.waiting):
                self.proxy.director.memory(full=False)
                self.proxy.free.set()

    def abort(self) -> None:
        """Resets the connection."""
        _abort(self.near_out)
        _abort(self.far_out)

    def _close(self) -> None:
        for end in (self.near_out, self.far_out):
            with contextlib.suppress(OSError, RuntimeError):
                end.close()

    # -- from the client --------------------------------------------------------------------------------------------

    async def _forth(self) -> None:
        parser = Commands()
        open_transaction: list[Command] = []
        while data := await _read(self.near_in):
            if self.frozen:
                continue
            commands = open_transaction + parser.feed(data)
            if not commands:
                continue
            if commands[0].name == "MULTI" and commands[-1].name != "EXEC":
                open_transaction = commands
                continue
            open_transaction = []
            if not await self._send(Request(self.sender, commands)):
                return

    async def _send(self, request: Request) -> bool:
        """Forwards a request, or what its fault leaves of it; False when the connection is over."""
        director = self.proxy.director
        while not self.proxy.free.is_set():
            await self.proxy.free.wait()
        request.kind = kind = director.asked(request)
        if kind is Kind.KILL_BEFORE:
            director.killed(self.sender)
            self.abort()
            return False
        if kind is Kind.COMMAND_LOST:
            self._close()
            return False
        if kind is Kind.RESET:
            for link in [link for link in self.proxy.links if link.sender == self.sender]:
                link.abort()
            return False
        if kind is Kind.FROZEN:
            self.frozen = True
            return True
        if kind is Kind.READONLY:
            await self._refuse(request)
            return True
        if kind is Kind.OOM:
            self.proxy.free.clear()
            director.memory(full=True)
        if request.commands[0].name in _NO_ANSWERS:
            self.unread = True
        self.waiting.append(request)
        self.far_out.write(request.raw)
        await self.far_out.drain()
        return True

    async def _refuse(self, request: Request) -> None:
        """Answers in the server's place, once what was asked before is answered."""
        while self.waiting:
            await asyncio.sleep(0.001)
        if request.commands[0].name == "MULTI":
            answers = [b"+OK\r\n", *[_READONLY] * (len(request.commands) - 2), _ABORTED]
        else:
            answers = [_READONLY] * len(request.commands)
        self.near_out.write(b"".join(answers))
        await self.near_out.drain()

    # -- from the server --------------------------------------------------------------------------------------------

    async def _back(self) -> None:
        parser = Replies()
        while data := await _read(self.far_in):
            if self.frozen:
                continue
            if self.unread:
                await self._unread_answer(data)
                continue
            for reply in parser.feed(data):
                if not await self._receive(reply):
                    return

    async def _unread_answer(self, data: bytes) -> None:
        while self.waiting:
            request = self.waiting.popleft()
            request.replies.append(data)
            if not await self._answered(request):
                raise ConnectionError
        self.near_out.write(data)
        await self.near_out.drain()

    async def _receive(self, reply: bytes) -> bool:
        if reply[:1] == b">" or not self.waiting:
            self.near_out.write(reply)
            return True
        request = self.waiting[0]
        request.replies.append(reply)
        if len(request.replies) < len(request.commands):
            return True
        self.waiting.popleft()
        if not await self._answered(request):
            return False
        self.near_out.write(b"".join(request.replies))
        await self.near_out.drain()
        return True

    async def _answered(self, request: Request) -> bool:
        """What happens to a request that the server has carried out; False when the connection is over."""
        director = self.proxy.director
        if request.kind is Kind.OOM:
            director.memory(full=False)
            self.proxy.free.set()
        kind = request.kind if request.kind in AFTER_THE_ANSWER else None
        kind = kind or director.answered(request)
        if kind is Kind.LATE:
            await asyncio.sleep(LATE_SECONDS)
        elif kind is Kind.REPLY_LOST:
            self.abort()
            return False
        elif kind is Kind.KILL_AFTER:
            director.killed(self.sender)
            self.abort()
            return False
        elif kind in {Kind.RESTART, Kind.LOSS}:
            self.abort()
            await asyncio.shield(director.server_killed(lose_last_second=kind is Kind.LOSS))
            return False
        return True


async def _read(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read(_CHUNK)
    except OSError:
        return b""


def _abort(writer: asyncio.StreamWriter) -> None:
    """Closes a connection with a reset."""
    with contextlib.suppress(OSError, RuntimeError):
        connection: socket.socket = writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()
