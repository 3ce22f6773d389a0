"""Mutators: from something good and a generator of random numbers to something bad. The same seed makes the same."""

from __future__ import annotations

import gzip
import io
import json
import random
import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import Any

from tests.hostile.raw_http import Answer

STRANGE_TEXTS = (
    "",
    "\0",
    "\ud800",
    "\udfff\ud800",
    "\x1b]0;title\x07\x1b[2J\x1b[31m",
    "\u202e\u2066\u200b\ufeff",
    "../../../../etc/passwd",
    "'; DROP TABLE x; --",
    "%s%n{0.__class__}${{7*7}}",
    "__import__('os').system('id')",
    "\r\nX: y\r\n\r\n",
    "é" * 3,
    "\U0001f4a9",
    "NaN",
    "[[[[",
)
STRANGE_NUMBERS = (0, -1, 1, 2**31, 2**63, -(2**63) - 1, 10**400, 1.5, -0.0, 1e308, 5e-324)
RAW_NUMBERS = ("NaN", "Infinity", "-Infinity", "1e999", "-1e999", "9" * 5000, "1" + "0" * 400, "-0", "0.1e-400")
"""As JSON's text has them, whatever JSON allows."""
HEADS: tuple[bytes, ...] = (
    b"",
    b"\r\n\r\n",
    b"\x00\xff" * 50,
    b"HTTP/1.1",
    b"HTTP/9.9 200 OK\r\n\r\n",
    b"HTTP/1.1 99999999999999999999 OK\r\n\r\n",
    b"HTTP/1.1 -5 OK\r\n\r\n",
    b"HTTP/1.1 200 " + b"x" * 200_000,
    b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 20_000 + b"\r\n",
    b"HTTP/1.1 200 OK\r\na: " + b"b" * 300_000 + b"\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n: no name\r\n\xff\xfe: \x00\r\n no colon\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n" * 200,
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n",
    b"HTTP/1.1 204 No Content\r\nContent-Length: 10\r\n\r\n0123456789",
    b"SSH-2.0-OpenSSH_9.9\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(300),
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
)
"""In the place of an answer."""
STATUSES = (*range(100, 104), 200, 201, 202, 204, 206, 226, 300, 301, 302, 303, 304, 307, 308, 400, 401, 402, 403, 404)
STATUSES += (405, 408, 409, 410, 413, 418, 422, 425, 429, 451, 499, 500, 501, 502, 503, 504, 511, 599, 600, 999)
HEADERS: tuple[tuple[str, str], ...] = (
    ("Content-Type", "text/html; charset=zlib_codec"),
    ("Content-Type", "application/json; charset=utf-16"),
    ("Content-Type", "image/png"),
    ("Content-Type", "\xff\x00"),
    ("Content-Encoding", "gzip"),
    ("Content-Encoding", "br"),
    ("Content-Encoding", "gzip, gzip, gzip"),
    ("Content-Encoding", "identity"),
    ("Transfer-Encoding", "gzip, chunked"),
    ("Transfer-Encoding", "x" * 3000),
    ("Location", "http://169.254.169.254/latest/meta-data/"),
    ("Location", "http://[::1"),
    ("Location", "file:///etc/passwd"),
    ("Location", "\x1b[2J"),
    ("Retry-After", "0"),
    ("Retry-After", "-1"),
    ("Retry-After", "1e999"),
    ("Retry-After", "nan"),
    ("Retry-After", "Fri, 31 Dec 9999 23:59:59 GMT"),
    ("Retry-After", "Mon, 00 Jan 0000 99:99:99 +9999"),
    ("Retry-After", "86400"),
    ("Set-Cookie", "a=b; Domain=.; Path=/"),
    ("Connection", "close"),
    ("Connection", "keep-alive, close, upgrade"),
    ("Keep-Alive", "timeout=-1, max=1e9"),
    ("Date", "\x00"),
    ("Refresh", "0; url=//x"),
    ("X" * 5000, "y"),
    ("Warning", "v" * 60_000),
)


class Mutator:
    """Draws from one generator."""

    def __init__(self, seed: object) -> None:
        """Args: seed: Anything that has a text of its own."""
        self.random = random.Random(str(seed))

    def chance(self, share: float) -> bool:
        """Whether to, in a share of cases."""
        return self.random.random() < share

    def of(self, *ways: Callable[[], Any]) -> Any:
        """What one of the ways makes."""
        return self.random.choice(ways)()

    # -- bytes ------------------------------------------------------------------------------------------------------

    def content(self, content: bytes) -> bytes:
        """Bytes that are wrong somewhere."""
        for _ in range(self.random.choice((1, 1, 1, 2, 5))):
            content = self.of(
                lambda content=content: self._flipped(content),
                lambda content=content: self._flipped(content),
                lambda content=content: content[: self._place(content)],
                lambda content=content: content[self._place(content) :],
                lambda content=content: self._repeated(content),
                lambda content=content: self._with(content, self._noise()),
                lambda content=content: self._with(content, self._strange_text()),
                lambda content=content: self._shuffled(content),
                lambda: self.random.choice((b"", b"\0" * 1000, b"\xff\xfe\xfd", b"null", b"{}", b"<x/>", b"<!DOCTYPE x>")),
            )
        return content

    def huge(self) -> bytes:
        """Megabytes of one thing."""
        piece = self.random.choice((b"\0", b"a", b"[", b'{"a":', b"<a>", b"9", b"\xff", b"\n", b'"\\u0000",'))
        return piece * (self.random.choice((1, 8, 70)) * (1 << 20) // len(piece))

    def packed(self, archive: bytes) -> bytes:
        """A zip file, which office documents are too, with one of its members wrong, or with another one."""
        members = _members(archive)
        if not members:
            return self.content(archive)
        name = self.random.choice(sorted(members))
        change = self.random.randrange(6)
        if change == 0:
            del members[name]
        elif change == 1:
            members[self.random.choice(("../../../tmp/out", "/etc/out", "a" * 250, "\u202e", "x/" * 100 + "y"))] = b"out"
        elif change == 2:
            members[name] = self.random.choice((b"\0", b" ", b"<a>")) * (1 << 23)
        elif name.endswith((".xml", ".rels", ".xhtml", ".opf")) and change < 5:
            members[name] = self.xml(members[name])
        else:
            members[name] = self.content(members[name])
        return pack(members)

    def xml(self, text: bytes) -> bytes:
        """XML that is wrong, or right and not what anybody expects."""
        return bytes(
            self.of(
                lambda: self.content(text),
                lambda: self.content(text),
                lambda: doctype("<!ENTITY x SYSTEM 'file:///etc/passwd'>", text, b"&x;"),
                lambda: doctype("<!ENTITY % x SYSTEM 'http://169.254.169.254/x'> %x;", text, b""),
                lambda: doctype(LAUGHS, text, b"&lol9;"),
                lambda: b"<a>" * 100_000 + text,
                lambda: b"<a b='" + b"c" * (1 << 20) + b"'/>",
                lambda: b"<?xml version='1.0' encoding='utf-16'?>" + text,
                lambda: self._values_changed(text),
            )
        )

    def _values_changed(self, text: bytes) -> bytes:
        """Attributes with other values."""
        parts = text.split(b'"')
        for _ in range(min(3, len(parts))):
            place = self.random.randrange(len(parts))
            value = self.random.choice((*map(str, STRANGE_NUMBERS), *STRANGE_TEXTS[4:]))
            parts[place] = value.encode(errors="replace").replace(b"<", b"")[:400]
        return b'"'.join(parts)

    def _place(self, content: bytes) -> int:
        return self.random.randrange(len(content) + 1)

    def _flipped(self, content: bytes) -> bytes:
        if not content:
            return b"\1"
        changed = bytearray(content)
        ahead = min(len(changed), self.random.choice((40, 400, 1 << 30)))  # what begins a file matters most
        for _ in range(self.random.choice((1, 3, 30))):
            changed[self.random.randrange(ahead)] = self.random.randrange(256)
        return bytes(changed)

    def _repeated(self, content: bytes) -> bytes:
        start = self._place(content)
        piece = content[start : start + self.random.choice((1, 8, 300))]
        return content[:start] + piece * self.random.choice((2, 50, 1000)) + content[start:]

    def _with(self, content: bytes, more: bytes) -> bytes:
        place = self._place(content)
        return content[:place] + more + content[place:]

    def _shuffled(self, content: bytes) -> bytes:
        cuts = sorted((self._place(content), self._place(content)))
        first, second, third = content[: cuts[0]], content[cuts[0] : cuts[1]], content[cuts[1] :]
        return third + first + second

    def _noise(self) -> bytes:
        return self.random.randbytes(self.random.choice((1, 4, 500)))

    def _strange_text(self) -> bytes:
        return self.random.choice(STRANGE_TEXTS).encode("utf-8", "surrogatepass")

    # -- JSON -------------------------------------------------------------------------------------------------------

    def json(self, value: Any) -> bytes:
        """JSON with values replaced, or what is hardly any."""
        if self.chance(0.25):
            return self.content(json.dumps(value).encode())
        marks: dict[str, str] = {}
        for _ in range(self.random.choice((1, 1, 2, 4))):
            value = self._changed(value, marks)
        text = json.dumps(value, ensure_ascii=self.chance(0.5))
        for mark, raw in marks.items():
            text = text.replace(f'"{mark}"', raw)
        return text.encode("utf-8", "surrogatepass")

    def _changed(self, value: Any, marks: dict[str, str]) -> Any:
        """A copy with one value replaced, somewhere in it."""
        if isinstance(value, dict) and value and self.chance(0.85):
            copy = dict(value)
            name = self.random.choice(sorted(copy, key=str))
            kept = copy[name]
            if self.chance(0.1):
                del copy[name]
            elif self.chance(0.1):
                copy[self.random.choice(STRANGE_TEXTS)] = copy.pop(name)
            else:
                copy[name] = self._changed(kept, marks)
            return copy
        if isinstance(value, list) and value and self.chance(0.85):
            copies = list(value)
            place = self.random.randrange(len(copies))
            copies[place] = self._changed(copies[place], marks)
            return copies * self.random.choice((1, 1, 1, 2, 300))
        return self._replacement(value, marks)

    def _replacement(self, value: Any, marks: dict[str, str]) -> Any:
        mark = f"raw-{len(marks)}"
        kind = self.random.randrange(10)
        if kind == 0:
            marks[mark] = self.random.choice(RAW_NUMBERS)
        elif kind == 1:
            deep = self.random.choice((20, 300, 5000, 100_000))
            marks[mark] = self.random.choice(("[" * deep + "]" * deep, '{"a":' * deep + "1" + "}" * deep))
        elif kind == 2:
            marks[mark] = '"\\ud800\\u0000\\udc00"'
        if mark in marks:
            return mark
        if isinstance(value, str) and kind < 6:
            return self.of(
                lambda: self.content(value.encode("utf-8", "surrogatepass")).decode("utf-8", "replace"),
                lambda: value + self.random.choice(STRANGE_TEXTS),
                lambda: value * self.random.choice((2, 100, 10_000)),
            )[: 1 << 22]
        return self.random.choice(
            (None, True, False, [], {}, [[]], {"": None}, [value], {"a": value}, *STRANGE_TEXTS, *STRANGE_NUMBERS)
        )

    # -- answers ----------------------------------------------------------------------------------------------------

    def answer(self, answer: Answer, longest_pause: float) -> Iterator[bytes | float]:
        """An answer that is wrong in what it says, how it says it, or when.

        Args:
            answer: As it should be.
            longest_pause: Seconds that stand for never.
        """
        if self.chance(0.15):
            yield self.random.choice(HEADS)
            return
        body, headers = answer.body, [("Content-Type", answer.kind), *answer.headers]
        status, reason = answer.status, answer.reason
        if self.chance(0.5):
            body = self._body(body)
        if self.chance(0.3):
            status = self.random.choice(STATUSES)
        if self.chance(0.1):
            reason = self.random.choice(("", "x" * 5000, "\x1b[2J", "\xff"))
        for _ in range(self.random.choice((0, 0, 1, 2, 10))):
            headers.insert(self.random.randrange(len(headers) + 1), self.random.choice(HEADERS))
        if self.chance(0.15):
            body = self._as_gzip(body, headers)
        framed = self._framed(body, headers)
        lines = [f"HTTP/1.1 {status} {reason}", *(f"{name}: {value}" for name, value in headers)]
        head = "\r\n".join([*lines, "", ""]).encode("latin-1", "replace")
        yield from self._timed(head + framed, longest_pause)

    def _body(self, body: bytes) -> bytes:
        if self.chance(0.04):
            return self.huge()
        try:
            value = json.loads(body)
        except ValueError:
            return self.content(body)
        return self.json(value)

    def _as_gzip(self, body: bytes, headers: list[tuple[str, str]]) -> bytes:
        headers.append(("Content-Encoding", "gzip"))
        packed = self.of(
            lambda: gzip.compress(body),
            lambda: gzip.compress(body)[:-9],
            lambda: self.content(gzip.compress(body)),
            lambda: zlib.compress(body),
            lambda: gzip.compress(bytes(200 << 20), 1),
            lambda: gzip.compress(body) * 3,
        )
        return bytes(packed)

    def _framed(self, body: bytes, headers: list[tuple[str, str]]) -> bytes:
        """The body as it is sent, with a header that says how long it is, or says wrong."""
        way = self.random.randrange(12)
        if way < 5:
            headers.append(("Content-Length", str(len(body))))
        elif way == 5:
            wrong = (len(body) + 1, max(0, len(body) - 1), 0, 1 << 40, -1, "x", "1" * 500, f"{len(body)}, 3", "0x10", " +5 ")
            headers.append(("Content-Length", str(self.random.choice(wrong))))
        elif way == 6:
            headers += [("Content-Length", str(len(body))), ("Content-Length", str(len(body) + 7))]
        elif way == 7:
            headers += [("Content-Length", "3"), ("Transfer-Encoding", "chunked")]
            return _chunked(body, 1000)
        elif way in {8, 9}:
            headers.append(("Transfer-Encoding", "chunked"))
            return _chunked(body, self.random.choice((1 if len(body) < 5000 else 500, 7000)))
        elif way == 10:
            headers.append(("Transfer-Encoding", "chunked"))
            return self.content(_chunked(body, 1000))
        return body  # the connection's end is the body's

    def _timed(self, sent: bytes, longest_pause: float) -> Iterator[bytes | float]:
        way = self.random.randrange(25)
        cut = self._place(sent)
        if way == 0:
            yield longest_pause
        elif way == 1:
            yield sent[:cut]
            yield longest_pause
        elif way == 2:
            for place in range(0, min(len(sent), 60)):
                yield sent[place : place + 1]
                yield longest_pause / 60
            return
        elif way == 3:
            yield sent[:cut]
            return
        elif way == 4:
            yield sent[:cut]
            yield 0.3
            yield sent[cut:]
            return
        yield sent


LAUGHS = "<!ENTITY lol0 'lol'>" + "".join(
    f"<!ENTITY lol{depth} '{f'&lol{depth - 1};' * 10}'>" for depth in range(1, 10)
)


def doctype(declared: str, text: bytes, reference: bytes) -> bytes:
    """XML with declarations of its own, and something of them in its first element."""
    start = text.find(b"?>") + 2 if text.startswith(b"<?xml") else 0
    inside = text.find(b">", text.find(b"<", start)) + 1
    while inside >= 2 and text[inside - 2 : inside] == b"/>":
        inside -= 2
    return text[:start] + f"<!DOCTYPE x [{declared}]>".encode() + text[start:inside] + reference + text[inside:]


def pack(members: dict[str, bytes]) -> bytes:
    """A zip file of them."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED, 1)
    return file.getvalue()


def _members(archive: bytes) -> dict[str, bytes]:
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as opened:
            return {name: opened.read(name) for name in opened.namelist()}
    except zipfile.BadZipFile:
        return {}


def _chunked(body: bytes, size: int) -> bytes:
    pieces = [body[start : start + size] for start in range(0, len(body), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in [*pieces, b""])
