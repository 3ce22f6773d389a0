"""Mutators: from something good and a generator of random numbers to something bad. The same seed makes the same."""

from __future__ import annotations

import io
import json
import random
import zipfile
from collections.abc import Callable
from typing import Any

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
_LONGEST = 1 << 22
"""Characters of a text that was made longer."""


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
                lambda content=content: content[: self.place(content)],
                lambda content=content: content[self.place(content) :],
                lambda content=content: self._repeated(content),
                lambda content=content: self._with(content, self._noise()),
                lambda content=content: self._with(content, self._strange_text()),
                lambda content=content: self._shuffled(content),
                lambda: self.random.choice(
                    (b"", b"\0" * 1000, b"\xff\xfe\xfd", b"null", b"{}", b"<x/>", b"<!DOCTYPE x>")
                ),
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
            members[self.random.choice(("../../../tmp/out", "/etc/out", "a" * 250, "\u202e", "x/" * 100 + "y"))] = (
                b"out"
            )
        elif change == 2:
            members[name] = self.random.choice((b"\0", b" ", b"<a>")) * (1 << 23)
        elif name.endswith((".xml", ".rels", ".xhtml", ".opf")) and change < 5:
            members[name] = self.xml(members[name])
        else:
            members[name] = self.content(members[name])
        return pack(members)

    def file(self, content: bytes, name: str) -> bytes:
        """A file that is wrong, in a way that its kind is read to the place where it is."""
        if self.chance(0.05):
            return self.huge()
        if content.startswith(b"PK") and self.chance(0.75):
            return self.packed(content)
        if name.endswith((".xcu", ".html", ".svg", ".xml")):
            return self.xml(content)
        if content.startswith((b"{", b"[{")) and self.chance(0.75):
            return self.json(json.loads(content))
        return self.content(content)

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

    def place(self, content: bytes) -> int:
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
        start = self.place(content)
        piece = content[start : start + self.random.choice((1, 8, 300))]
        return content[:start] + piece * self.random.choice((2, 50, 1000)) + content[start:]

    def _with(self, content: bytes, more: bytes) -> bytes:
        place = self.place(content)
        return content[:place] + more + content[place:]

    def _shuffled(self, content: bytes) -> bytes:
        cuts = sorted((self.place(content), self.place(content)))
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
                lambda: value * min(self.random.choice((2, 100, 10_000)), _LONGEST // (len(value) or 1) + 1),
            )[:_LONGEST]
        return self.random.choice(
            (None, True, False, [], {}, [[]], {"": None}, [value], {"a": value}, *STRANGE_TEXTS, *STRANGE_NUMBERS)
        )


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
