"""The Redis protocol as far as a proxy must read it: where a command and a reply end, and what a command says."""

from __future__ import annotations

from dataclasses import dataclass

_LINES = b"+-:_#,("
_BLOBS = b"$!="
_LISTS = b"*~>"
_MAPS = b"%"
_ATTRIBUTES = b"|"


@dataclass(frozen=True, slots=True)
class Command:
    """One command as it travelled."""

    words: tuple[bytes, ...]
    raw: bytes

    @property
    def name(self) -> str:
        """Its first word, in capitals."""
        return self.words[0].decode("latin-1").upper()


def end_of_value(data: bytes | bytearray, at: int = 0) -> int | None:
    """Where the value that begins at a place ends; None when its end has not come yet."""
    line_end = data.find(b"\r\n", at)
    if line_end < 0:
        return None
    kind, after = data[at], line_end + 2
    if kind in _LINES:
        return after
    size = int(data[at + 1 : line_end])
    if kind in _BLOBS:
        if size < 0:
            return after
        end = after + size + 2
        return end if end <= len(data) else None
    count = {True: 2 * size, False: size}[kind in _MAPS or kind in _ATTRIBUTES]
    if kind in _ATTRIBUTES:
        count += 1  # what is attributed follows
    elif kind not in _LISTS and kind not in _MAPS:
        raise ValueError(f"not the Redis protocol: {bytes(data[at : at + 40])!r}")
    for _ in range(count):
        end_or_none = end_of_value(data, after)
        if end_or_none is None:
            return None
        after = end_or_none
    return after


class Commands:
    """What a client sends, cut into commands."""

    def __init__(self) -> None:
        self._left = bytearray()

    def feed(self, data: bytes) -> list[Command]:
        """The commands that are complete now."""
        self._left += data
        found = []
        while self._left and (end := end_of_value(self._left)) is not None:
            raw = bytes(self._left[:end])
            del self._left[:end]
            found.append(Command(_words(raw), raw))
        return found

    @property
    def partial(self) -> bool:
        """Whether a command has begun and not ended."""
        return bool(self._left)


class Replies:
    """What a server sends, cut into replies."""

    def __init__(self) -> None:
        self._left = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The replies that are complete now; those that begin with ``>`` answer no command."""
        self._left += data
        found = []
        while self._left and (end := end_of_value(self._left)) is not None:
            found.append(bytes(self._left[:end]))
            del self._left[:end]
        return found


def _words(raw: bytes) -> tuple[bytes, ...]:
    if raw[:1] != b"*":
        return tuple(raw.split())  # a command as people type it
    words = []
    at = raw.index(b"\r\n") + 2
    while at < len(raw):
        line_end = raw.index(b"\r\n", at)
        size = int(raw[at + 1 : line_end])
        words.append(raw[line_end + 2 : line_end + 2 + size])
        at = line_end + 2 + size + 2
    return tuple(words)
