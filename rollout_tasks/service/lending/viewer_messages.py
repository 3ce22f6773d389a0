"""The client's half of the RFB protocol (VNC), as bytes in and bytes out: only what a viewer may send gets to the desktop.

Who looks sends nothing that could change the desktop; who helps sends keys, clicks and text for its clipboard, too. What is not
known here ends the view: where its end cannot be told, nothing after it can be read as the desktop reads it. For the same reason
only encodings that are known here are asked for: a server uses an extension only if the client lists it.

The protocol is described in RFC 6143; extensions (150, 248, 250, 251, 255) in the community's RFB specification.
"""

from __future__ import annotations

import re
from collections.abc import Callable

LONGEST_TEXT = 1 << 16
"""Bytes of text that may go to the desktop's clipboard at a time."""
_MOST_ENCODINGS = 256
_MOST_HELD = 256
_VERSION = re.compile(rb"RFB (\d{3})\.(\d{3})\n")
_VERSION_BYTES = 12
_TAKEN_VERSIONS = ((3, 7), (3, 8))
_NO_SECURITY = 1
_SHARED = b"\x01"

_SET_PIXEL_FORMAT, _SET_ENCODINGS, _ASK_FOR_UPDATE, _KEY, _POINTER, _CUT_TEXT = 0, 2, 3, 4, 5, 6
_CONTINUOUS_UPDATES, _FENCE, _POWER, _SET_SIZE, _QEMU = 150, 248, 250, 251, 255
_QEMU_KEY = 0
_LENGTHS = {
    _SET_PIXEL_FORMAT: 20,
    _ASK_FOR_UPDATE: 10,
    _KEY: 8,
    _POINTER: 6,
    _CONTINUOUS_UPDATES: 10,
    _POWER: 4,
    _QEMU: 12,
}
"""Bytes of the messages that always have as many."""
_HEADS = {_SET_ENCODINGS: 4, _CUT_TEXT: 8, _FENCE: 9, _SET_SIZE: 8}
"""Bytes of the others up to and with the field that says how long they are."""
_LOOKING = frozenset({_SET_PIXEL_FORMAT, _SET_ENCODINGS, _ASK_FOR_UPDATE, _CONTINUOUS_UPDATES, _FENCE})
_HELPING = frozenset({_KEY, _POINTER, _CUT_TEXT, _QEMU})
"""Neither has power (250) and the screen's size (251): they change what the agent works on, for good."""

_ENCODINGS = frozenset(
    {
        *(0, 1, 2, 5, 6, 7, 16, 21, 50),  # Raw, CopyRect, RRE, Hextile, Zlib, Tight, ZRLE, JPEG, H.264
        -260,  # TightPNG
        *range(-32, -22),  # qualities of JPEG
        *range(-256, -246),  # how much is compressed
        *(-223, -308, -224, -307),  # the screen's size, with its screens, the last rectangle, the desktop's name
        *(-239, -314, 0x574D5664),  # shapes of the pointer
        -258,  # keys as QEMU takes them
        *(-312, -313),  # fences, and updates without being asked
    }
)
"""Not here: the clipboard of other formats (its messages have negative lengths), pointers with more buttons (-316: a message that
is one byte longer), and power (-309)."""


class RFBError(Exception):
    """What came cannot be passed on, nor anything after it. One sentence says why."""


class ViewerMessages:
    """What one viewer sends, and what of it the desktop gets."""

    def __init__(self, may_help: Callable[[], bool], helped: Callable[[], None]) -> None:
        """Takes no bytes yet.

        Args:
            may_help: Whether the viewer may use the desktop at the moment.
            helped: Called for each message that does so.
        """
        self._may_help = may_help
        self._helped = helped
        self._buffer = bytearray()
        self._greeting = bytearray()
        self._offered: tuple[int, int] | None = None
        """The version that the desktop speaks."""
        self._next: Callable[[bytearray], int] = self._version
        self._wanted = _VERSION_BYTES
        """Bytes of what comes next, as far as that is known."""
        self._held: dict[bytes, bytes] = {}
        """What releases each key, and the pointer's buttons, that the viewer holds down."""

    def read_greeting(self, content: bytes) -> None:
        """Takes what the desktop sent, of which only the first line matters: it names the version.

        Raises:
            RFBError: It is no VNC server.
        """
        if self._offered is not None:
            return
        self._greeting += content[: _VERSION_BYTES - len(self._greeting)]
        if len(self._greeting) == _VERSION_BYTES:
            self._offered = _version_in(self._greeting, "the desktop")

    def allowed(self, content: bytes) -> bytes:
        """Takes what the viewer sent, in whatever pieces, and returns what the desktop gets now.

        Raises:
            RFBError: The view has to end.
        """
        self._buffer += content
        out = bytearray()
        while len(self._buffer) >= self._wanted:
            taken = self._next(out)
            del self._buffer[:taken]
        return bytes(out)

    def release_held(self) -> bytes:
        """Returns what releases all that the viewer still holds down: a key that stays down would change what the agent types."""
        held, self._held = self._held, {}
        return b"".join(held.values())

    # Each takes what is complete from the buffer's start, and returns how many bytes that were; 0 if it wants more.

    def _version(self, out: bytearray) -> int:
        said = bytes(self._buffer[:_VERSION_BYTES])
        version = _version_in(said, "the viewer")
        if self._offered is None:
            raise RFBError("the viewer spoke before the desktop did")
        if version not in _TAKEN_VERSIONS or version > self._offered:
            # With 3.3 the desktop alone says what security there is, and so what the viewer sends next.
            known = f"3.7 or 3.8, and not above the desktop's {_shown(self._offered)}"
            raise RFBError(f"the viewer speaks version {_shown(version)} of RFB; it must be {known}")
        out += said
        self._next, self._wanted = self._security, 1
        return _VERSION_BYTES

    def _security(self, out: bytearray) -> int:
        if self._buffer[0] != _NO_SECURITY:
            raise RFBError(
                f"the viewer chose security type {self._buffer[0]}; only None ({_NO_SECURITY}) can be followed"
            )
        out.append(_NO_SECURITY)
        self._next = self._begin
        return 1

    def _begin(self, out: bytearray) -> int:
        out += _SHARED  # whatever the viewer said: others who look stay connected
        self._next = self._message
        return 1

    def _message(self, out: bytearray) -> int:
        kind = self._buffer[0]
        length = _LENGTHS.get(kind) or self._length_after(_HEADS.get(kind), kind)
        if length > len(self._buffer):
            self._wanted = length
            return 0
        message = bytes(self._buffer[:length])
        if kind == _QEMU and message[1] != _QEMU_KEY:
            raise RFBError(f"the viewer sent a message of QEMU's that is not known here: {message[1]}")
        self._wanted = 1
        if kind == _SET_ENCODINGS:
            out += _known_encodings(message)
        elif kind in _LOOKING:
            out += message
        elif kind in _HELPING:
            out += self._helping(kind, message)
        return length

    def _helping(self, kind: int, message: bytes) -> bytes:
        """Returns what the desktop gets of a message that uses it."""
        key, release, holds = _held_by(kind, message)
        held = None if holds else self._held.pop(key, None)
        if not self._may_help():
            return held or b""  # what was pressed while help was allowed is released
        self._helped()
        if holds:
            self._held[key] = release
            _at_most(len(self._held), _MOST_HELD, "keys that are down")
        return message

    def _length_after(self, head: int | None, kind: int) -> int:
        """Returns the length of a message, or of its head while that is not there yet."""
        if head is None:
            raise RFBError(f"the viewer sent a message of a type that is not known here: {kind}")
        if len(self._buffer) < head:
            return head
        if kind == _SET_ENCODINGS:
            count = int.from_bytes(self._buffer[2:4])
            return head + 4 * _at_most(count, _MOST_ENCODINGS, "encodings")
        if kind == _CUT_TEXT:
            count = int.from_bytes(self._buffer[4:8], signed=True)
            return head + _at_most(count, LONGEST_TEXT, "bytes of text")
        if kind == _FENCE:
            return head + _at_most(self._buffer[8], 64, "bytes in a fence")
        return head + 16 * self._buffer[6]


def _held_by(kind: int, message: bytes) -> tuple[bytes, bytes, bool]:
    """Returns what a message presses or releases, what releases it, and whether it is pressed."""
    if kind == _KEY:
        return message[4:], bytes([_KEY, 0, 0, 0]) + message[4:], message[1] != 0
    if kind == _QEMU:
        return message[4:], bytes([_QEMU, _QEMU_KEY, 0, 0]) + message[4:], message[2:4] != b"\x00\x00"
    if kind == _POINTER:
        return b"pointer", bytes([_POINTER, 0]) + message[2:], message[1] != 0
    return b"", b"", False


def _at_most(count: int, most: int, what: str) -> int:
    if not 0 <= count <= most:
        raise RFBError(f"the viewer sent {count} {what}; it may be {most} at most")
    return count


def _version_in(line: bytes | bytearray, who: str) -> tuple[int, int]:
    found = _VERSION.fullmatch(line)
    if found is None:
        raise RFBError(f"{who} does not speak RFB: {bytes(line)!r}")
    return int(found[1]), int(found[2])


def _shown(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def _known_encodings(message: bytes) -> bytes:
    listed = [message[at : at + 4] for at in range(4, len(message), 4)]
    kept = [one for one in listed if int.from_bytes(one, signed=True) in _ENCODINGS]
    return message[:2] + len(kept).to_bytes(2) + b"".join(kept)
