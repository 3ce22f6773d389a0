"""Messages between a worker and a cell over a socket: JSON, optionally followed by bytes. Both sides use this.

A message is a frame of JSON; with ``bytes`` in it, frames of bytes follow, up to an empty one. The receiver limits and
checks what it reads; nothing is ever unpickled.
"""

from __future__ import annotations

import json
import select
import socket
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

LARGEST_MESSAGE = 16 << 20
"""Bytes of JSON; OSWorld's accessibility trees have a few million."""
PIECE = 1 << 18
"""Maximum bytes in a frame of bytes."""
_HEADER = struct.Struct("!cI")
_MESSAGE, _BYTES = b"m", b"b"
_LARGEST = {_MESSAGE: LARGEST_MESSAGE, _BYTES: PIECE}
_WITH_BYTES = "bytes"


class ChannelEnded(Exception):
    """The other side is gone."""


class ChannelSilent(ChannelEnded):
    """The other side sent nothing within the socket's timeout."""


class BadMessage(Exception):
    """The other side sent an invalid message; the error says what was wrong."""


class MessageChannel:
    """One side of the connection."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._received: list[bytes] = []
        self._in_the_middle = False

    @property
    def usable(self) -> bool:
        """False after sending was interrupted: the next message would be read as the rest of that one."""
        return not self._in_the_middle

    def send(self, message: dict[str, Any], content: Iterable[bytes] | None = None) -> None:
        """Sends a message.

        Args:
            message: JSON values.
            content: Bytes that follow it, in pieces.

        Raises:
            TypeError, ValueError: The message is not JSON.
            ChannelEnded: The other side is gone.
        """
        if content is not None:
            message = {**message, _WITH_BYTES: True}
        frame = frame_of(message)
        self._in_the_middle = True
        self._send_all(frame)
        if content is not None:
            for piece in content:
                for start in range(0, len(piece), PIECE):
                    self._send_frame(_BYTES, piece[start : start + PIECE])
            self._send_frame(_BYTES, b"")
        self._in_the_middle = False

    def send_at_once(self, frame: bytes) -> bytes:
        """Sends what the other side takes without a wait; returns the rest, for `send_rest`. Does not heed `usable`.

        Raises:
            ChannelEnded: The other side is gone.
        """
        try:
            return frame[self.socket.send(frame, socket.MSG_DONTWAIT) :]
        except BlockingIOError:
            return frame
        except OSError as error:
            raise ChannelEnded from error

    def send_rest(self, rest: bytes) -> None:
        """Sends what `send_at_once` left, however long that takes.

        Raises:
            ChannelEnded: The other side is gone.
        """
        self._send_all(rest)

    def receive(self, take: Callable[[bytes], object] | None = None) -> dict[str, Any]:
        """Returns the next message.

        Args:
            take: Called with each piece of the bytes that follow it; None drops them.

        Raises:
            ChannelEnded: The other side is gone.
            BadMessage: The message is invalid.
        """
        message = self._message()
        if message.pop(_WITH_BYTES, False):
            for piece in self.pieces():
                if take is not None:
                    take(piece)
        return message

    def receive_header(self) -> tuple[dict[str, Any], bool]:
        """Returns the next message, and whether bytes follow it; if so, read them with `pieces`.

        Raises:
            ChannelEnded: The other side is gone.
            BadMessage: The message is invalid.
        """
        message = self._message()
        return message, bool(message.pop(_WITH_BYTES, False))

    def pieces(self) -> Iterator[bytes]:
        """Yields the bytes that follow a message.

        Raises:
            ChannelEnded: The other side ended before the last piece.
            BadMessage: Something else arrived.
        """
        while True:
            kind, content = self._frame()
            if kind != _BYTES:
                raise BadMessage("it sent something else in the middle of bytes")
            if not content:
                return
            yield content

    def end(self) -> None:
        """Ends the connection for whoever sends or receives here or at the other side; `close` has to follow."""
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Closes the connection for both sides."""
        self.socket.close()

    def _message(self) -> dict[str, Any]:
        kind, content = self._frame()
        while kind == _BYTES:  # the rest of a message whose receiver was interrupted
            kind, content = self._frame()
        try:
            message = json.loads(content, parse_constant=_refuse)
        except (ValueError, RecursionError) as error:
            raise BadMessage("it sent invalid JSON") from error
        if not isinstance(message, dict):
            raise BadMessage("it sent JSON that is not an object")
        return message

    def _frame(self) -> tuple[bytes, bytes]:
        """Returns the next frame, read entirely or not at all: an alarm may interrupt."""
        received = self._fill(_HEADER.size)
        kind, length = _HEADER.unpack_from(received)
        if length > _LARGEST.get(kind, -1):
            raise BadMessage("it sent an invalid message, or one that is too long")
        end = _HEADER.size + length
        received = self._fill(end)
        self._received[:] = (received[end:],)
        return kind, received[_HEADER.size : end]

    def _fill(self, length: int) -> bytes:
        """Returns the unread bytes received, once there are at least `length`."""
        while sum(map(len, self._received)) < length:
            self._wait()
            there = len(self._received)
            try:
                # In one step, which no alarm can interrupt: received bytes must not be lost.
                self._received.extend(map(self.socket.recv, (PIECE,)))
            except OSError as error:
                raise ChannelEnded from error
            if not any(self._received[there:]):
                raise ChannelEnded
        return b"".join(self._received)

    def _wait(self) -> None:
        """Waits until something can be received; raises after the socket's timeout."""
        try:
            limit = self.socket.gettimeout()
            poll = select.poll()
            poll.register(self.socket, select.POLLIN)
            if not poll.poll(None if limit is None else limit * 1000):
                raise ChannelSilent
        except (OSError, ValueError) as error:  # it was closed
            raise ChannelEnded from error

    def _send_frame(self, kind: bytes, content: bytes) -> None:
        self._send_all(_HEADER.pack(kind, len(content)) + content)

    def _send_all(self, frames: bytes) -> None:
        try:
            self.socket.sendall(frames)
        except OSError as error:
            raise ChannelEnded from error


def frame_of(message: dict[str, Any]) -> bytes:
    """Returns a message without bytes as it is sent.

    Raises:
        TypeError, ValueError: The message is not JSON.
    """
    words = json.dumps(message, separators=(",", ":"), allow_nan=False).encode()
    return _HEADER.pack(_MESSAGE, len(words)) + words


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
