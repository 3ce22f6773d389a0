"""The WebSocket to a guest's VNC server, whatever the guest answers: bounded, and over when it breaks the protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

import pytest

from rollout_tasks.service.lending import guest_socket
from rollout_tasks.service.lending.guest_socket import GuestSocket, opened

server = pytest.importorskip("websockets.server", reason="the package websockets is not installed")
_Made = TypeVar("_Made")


def with_guest(answer: Callable[[bytes], bytes], use: Callable[[GuestSocket], Awaitable[_Made]]) -> _Made:
    """Opens a socket to a guest that answers a request with bytes, and then ends the connection."""

    async def run() -> _Made:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(answer(await reader.readuntil(b"\r\n\r\n")))
            writer.write_eof()
            await reader.read()
            writer.close()

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as guest:
            reader, writer = await asyncio.open_connection(*guest.sockets[0].getsockname())
            try:
                return await use(await opened(reader, writer))
            finally:
                writer.close()

    return asyncio.run(run())


def accepting(after: bytes) -> Callable[[bytes], bytes]:
    """What accepts the request, and sends frames with it."""

    def answer(request: bytes) -> bytes:
        protocol = server.ServerProtocol()
        protocol.receive_data(request)
        protocol.send_response(protocol.accept(protocol.events_received()[0]))
        return b"".join(protocol.data_to_send()) + after

    return answer


async def everything(socket: GuestSocket) -> bytes:
    found = b""
    while content := await socket.read(1):
        found += content
    return found


def test_binary_messages_are_read_whole_or_in_parts() -> None:
    frames = b"\x82\x03RFB" + b"\x89\x01p" + b"\x02\x01 " + b"\x80\x01x" + b"\x81\x04text" + b"\x88\x00" + b"\x82\x01y"
    assert with_guest(accepting(frames), everything) == b"RFB x"


@pytest.mark.parametrize(
    "frames",
    [
        b"\x82\x7f\x00\x00\x00\x00\x40\x00\x00\x00",  # says that a gigabyte follows
        b"\x82\x7f\x00\x00\x00\x00\x00\x10\x00\x01" + bytes(100),
        b"\xc2\x03zip",  # packed, which was not agreed
        b"\x83\x00",
        b"",
    ],
)
def test_what_is_too_large_or_wrong_ends_it(frames: bytes) -> None:
    async def use(socket: GuestSocket) -> bytes:
        found = await everything(socket)
        with pytest.raises(OSError, match="has ended the connection"):
            socket.write(b"anything")
        socket.write(b"")
        return found

    assert with_guest(accepting(b"\x82\x01." + frames), use) == b"."


@pytest.mark.parametrize("frame", [b"\x82\x00", b"\x89\x00", b"\x82\x01x"], ids=["empty", "ping", "one byte"])
def test_thousands_of_small_messages_end_it(frame: bytes) -> None:
    """Taking them apart would keep others waiting."""

    async def use(socket: GuestSocket) -> None:
        with pytest.raises(OSError, match="far too many messages"):
            await everything(socket)

    with_guest(accepting(20_000 * frame), use)


def test_a_guest_that_pings_and_reads_nothing_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guest_socket, "_STALLED_SECONDS", 0.3)
    ping = b"\x89\x7d" + bytes(125)

    async def run() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(accepting(b"")(await reader.readuntil(b"\r\n\r\n")))
            writer.transport.pause_reading()  # type: ignore[attr-defined]  # that of a socket has it
            with suppress(ConnectionError):
                while True:
                    writer.write(100 * ping)
                    await writer.drain()

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as guest:
            reader, writer = await asyncio.open_connection(*guest.sockets[0].getsockname())
            socket = await opened(reader, writer)
            with pytest.raises(TimeoutError):
                await socket.read(1)
            assert writer.transport.get_write_buffer_size() < 1 << 20
            writer.transport.abort()

    asyncio.run(asyncio.wait_for(run(), 60))


@pytest.mark.parametrize(
    "reply",
    [
        b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1/\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-accept: no\r\n\r\n",
        b"RFB 003.008\n",
        b"x" * 300_000,
        b"",
    ],
)
def test_no_websocket_is_an_error_of_the_connection(reply: bytes) -> None:
    async def use(_socket: GuestSocket) -> Any:
        raise AssertionError

    with pytest.raises(OSError, match="did not open a WebSocket"):
        with_guest(lambda _request: reply, use)
