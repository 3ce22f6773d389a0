"""Encodes and decodes D-Bus messages: only what accessibility needs, without a library's cost per call."""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any, NamedTuple

HEADER = struct.Struct("<4B3I")
_METHOD_CALL, _METHOD_RETURN, _ERROR = 1, 2, 3
_PATH, _INTERFACE, _MEMBER, _ERROR_NAME, _REPLY_TO, _DESTINATION, _SENDER, _SIGNATURE = range(1, 9)
LARGEST_MESSAGE = 128 * 1024 * 1024


class Call(NamedTuple):
    """A method call."""

    destination: str
    path: str
    interface: str
    member: str
    signature: str = ""
    body: bytes = b""


class MethodReply(NamedTuple):
    """An answer; an error when `error` is not empty."""

    body: bytes
    signature: str
    error: str


def encode(call: Call, serial: int) -> bytes:
    """Returns a call as the bytes of its message."""
    path = call.path.encode()
    first = b"\x01\x01o\x00" + struct.pack("<I", len(path)) + path + b"\x00"
    fields = _padded(first) + _other_fields(call.destination, call.interface, call.member, call.signature)
    header = HEADER.pack(ord("l"), _METHOD_CALL, 0, 1, len(call.body), serial, len(fields))
    return _padded(header + fields) + call.body


@lru_cache(1024)
def _other_fields(destination: str, interface: str, member: str, signature: str) -> bytes:
    fields = b""
    for code, value in ((_INTERFACE, interface), (_MEMBER, member), (_DESTINATION, destination)):
        if value:
            text = value.encode()
            fields = _padded(fields) + bytes((code, 1)) + b"s\x00" + struct.pack("<I", len(text)) + text + b"\x00"
    if signature:
        fields = (
            _padded(fields)
            + bytes((_SIGNATURE, 1))
            + b"g\x00"
            + bytes((len(signature),))
            + signature.encode()
            + b"\x00"
        )
    return fields


def _padded(data: bytes) -> bytes:
    return data + b"\x00" * (-len(data) % 8)


def decode(buffer: bytearray, start: int) -> tuple[int, int, MethodReply | None]:
    """Decodes the message that begins at `start`.

    Returns:
        Its end, the serial it answers, and the answer. The end is 0 when the message is not complete yet; the answer is
        None when the message is not an answer.

    Raises:
        ValueError: These bytes are not a message.
    """
    if len(buffer) - start < HEADER.size:
        return 0, 0, None
    endian, kind, _flags, _version, body_length, _serial, fields_length = HEADER.unpack_from(buffer, start)
    if endian != ord("l") or max(body_length, fields_length) > LARGEST_MESSAGE:
        raise ValueError("this is no D-Bus message in this machine's byte order")
    body = start + HEADER.size + fields_length + (-fields_length % 8)
    end = body + body_length
    if len(buffer) < end:
        return 0, 0, None
    if kind not in (_METHOD_RETURN, _ERROR):
        return end, 0, None
    reply_to, signature, error = _fields(buffer, start + HEADER.size, start + HEADER.size + fields_length, start)
    return end, reply_to, MethodReply(bytes(buffer[body:end]), signature, error or ("failed" if kind == _ERROR else ""))


def _fields(buffer: bytearray, at: int, end: int, start: int) -> tuple[int, str, str]:
    reply_to, signature, error = 0, "", ""
    while at < end:
        at += -(at - start) % 8
        code, kind = buffer[at], buffer[at + 2]
        at += 4
        if kind == ord("g"):
            length = buffer[at]
            if code == _SIGNATURE:
                signature = buffer[at + 1 : at + 1 + length].decode()
            at += length + 2
            continue
        at += -(at - start) % 4
        (value,) = struct.unpack_from("<I", buffer, at)
        at += 4
        if kind == ord("u"):
            if code == _REPLY_TO:
                reply_to = value
            continue
        if code == _ERROR_NAME:
            error = buffer[at : at + value].decode()
        at += value + 1
    return reply_to, signature, error


class Reader:
    """Reads values from a message's body, one after the other."""

    __slots__ = ("_at", "_body")

    def __init__(self, body: bytes) -> None:
        self._body, self._at = body, 0

    def align(self, size: int) -> None:
        """Skips the padding before a value of this alignment."""
        self._at += -self._at % size

    def u32(self) -> int:
        """Reads an unsigned number of 32 bits."""
        at = self._at + (-self._at % 4)
        self._at = at + 4
        return int.from_bytes(self._body[at : at + 4], "little")

    def i32(self) -> int:
        """Reads a signed number of 32 bits."""
        at = self._at + (-self._at % 4)
        self._at = at + 4
        return int.from_bytes(self._body[at : at + 4], "little", signed=True)

    def text(self) -> str:
        """Reads a string or an object path."""
        length = self.u32()
        start = self._at
        self._at = start + length + 1
        return self._body[start : start + length].decode("utf-8", "replace")

    def reference(self) -> tuple[str, str]:
        """Reads a structure of two strings: a program, and the path of something in it."""
        self.align(8)
        return self.text(), self.text()

    def names(self) -> frozenset[str]:
        """Reads an array of strings, as a set."""
        end = self.begin_array(4)
        start, self._at = self._at, end
        return _names(self._body[start:end])

    def begin_array(self, alignment: int) -> int:
        """Begins an array; returns where it ends."""
        length = self.u32()
        self.align(alignment)
        return self._at + length

    def before(self, end: int) -> bool:
        """Whether an array has more values."""
        return self._at < end

    def value(self, signature: str) -> Any:
        """Reads a basic value, or a variant of one.

        Raises:
            ValueError: It is of another type.
        """
        if signature in ("s", "o"):
            return self.text()
        if signature == "u":
            return self.u32()
        if signature == "i":
            return self.i32()
        if signature == "b":
            return bool(self.u32())
        if signature == "d":
            self.align(8)
            self._at += 8
            return struct.unpack_from("<d", self._body, self._at - 8)[0]
        if signature == "v":
            length = self._body[self._at]
            inner = self._body[self._at + 1 : self._at + 1 + length].decode()
            self._at += length + 2
            return self.value(inner)
        raise ValueError(f"values of type {signature!r} are not read here")


@lru_cache(1024)
def _names(content: bytes) -> frozenset[str]:
    """Decodes the content of an array of strings; cached, since nodes have the same few."""
    found, at = set(), 0
    while at < len(content):
        at += -at % 4
        length = int.from_bytes(content[at : at + 4], "little")
        found.add(content[at + 4 : at + 4 + length].decode())
        at += length + 5
    return frozenset(found)


def texts(*values: str) -> bytes:
    """Encodes strings as a body of signature ``s``, ``ss`` and so on."""
    body = b""
    for value in values:
        encoded = value.encode()
        body += b"\x00" * (-len(body) % 4) + struct.pack("<I", len(encoded)) + encoded + b"\x00"
    return body


def numbers(*values: int) -> bytes:
    """Encodes numbers as a body of signature ``i``, ``ii``, ``u`` and so on."""
    return struct.pack(f"<{len(values)}i", *values)
