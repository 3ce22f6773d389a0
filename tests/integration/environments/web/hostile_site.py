"""A site that sends pages as they should be, and pages as they should not: a server that keeps what it was asked."""

from __future__ import annotations

import gzip
import itertools
import zlib
from collections.abc import Callable, Iterator
from io import BytesIO

import pytest

from tests.hostile.random_replies.answers import HEADS, Answer, AnswerServer, Request, Sent

HTML = "text/html; charset=utf-8"
MUSEUM = """<!doctype html><html><head><title>The Tide Museum</title></head><body><nav><a href="/">Home</a></nav><main>
<h1>The Tide Museum</h1><p>The museum was founded in 1887 by Ida Marsh, a keeper of the lighthouse, and has stood on the
harbour wall ever since.</p><p>Its clock shows the tides of <a href="/harbour">the harbour</a> for the next 200 years.</p>
<table><tr><th>Ticket</th><th>Price</th></tr><tr><td>Adults</td><td>12 euros</td></tr></table></main></body></html>"""
ROBOTS = "User-agent: *\nDisallow: /private/\nDisallow: /*.secret$\n"


class HostileSite:
    """Runs until `close`."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.agents: set[str] = set()
        self.robots: Callable[[], Sent] = lambda: Answer(ROBOTS.encode(), "text/plain")
        self._server = AnswerServer(self._answer)
        self.host = f"127.0.0.1:{self._server.port}"
        self.url = f"http://{self.host}"

    def close(self) -> None:
        """Ends it."""
        self._server.close()
        assert self._server.mistakes == []

    def pages_asked(self) -> list[str]:
        """The paths that were asked for, but for robots.txt."""
        return [path for path in self.asked if path != "/robots.txt"]

    def _answer(self, request: Request) -> Sent:
        self.asked.append(request.path)
        self.agents.add(request.headers.get("User-Agent", ""))
        if request.path == "/robots.txt":
            return self.robots()
        name, _, rest = request.path.strip("/").partition("/")
        return PAGES[name](rest)


def _head(kind: str, *more: str, status: str = "200 OK") -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", f"Content-Type: {kind}", *more, "", ""]).encode()


def _chunk(content: bytes) -> bytes:
    return f"{len(content):x}\r\n".encode() + content + b"\r\n"


def _page(words: str = "") -> Answer:
    return Answer(MUSEUM.encode(), HTML)


def _endless(_rest: str) -> Iterator[bytes]:
    yield _head(HTML, "Transfer-Encoding: chunked")
    yield from itertools.repeat(_chunk(b"<p>more and more</p>" * 4_000))


def _slow(_rest: str) -> Iterator[bytes | float]:
    yield _head(HTML)
    for letter in itertools.cycle(b"<p>slow</p>"):
        yield bytes([letter])
        yield 0.05


def _slow_head(_rest: str) -> Iterator[bytes | float]:
    yield b"HTTP/1.1 200 OK\r\nX-Slow: "
    while True:
        yield b"a"
        yield 0.05


def _interim(_rest: str) -> Iterator[bytes | float]:
    while True:
        yield b"HTTP/1.1 103 Early Hints\r\n\r\n"
        yield 0.05


def _silent(_rest: str) -> Iterator[bytes | float]:
    while True:
        yield 0.1


def to(place: str) -> list[bytes]:
    """An answer that leads elsewhere."""
    return [_head(HTML, f"Location: {place}", "Content-Length: 0", status="302 Found")]


def _packed(encoding: str) -> list[bytes]:
    bomb = gzip.compress(bytes(16 << 20)) if encoding == "gzip" else zlib.compress(bytes(16 << 20))
    return [_head(HTML, f"Content-Encoding: {encoding}", f"Content-Length: {len(bomb)}"), bomb]


def pdf(text: str, *, compressed_megabytes: int = 0) -> bytes:
    """A PDF file of one page that says a text, or whose content is that many megabytes of blanks when it is unpacked."""
    from pypdf import PdfWriter  # here, because what asks for no PDF file runs without it
    from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject

    writer = PdfWriter()
    page = writer.add_blank_page(300, 300)
    font = DictionaryObject(
        {NameObject("/Type"): NameObject("/Font"), NameObject("/Subtype"): NameObject("/Type1")}
        | {NameObject("/BaseFont"): NameObject("/Helvetica")}
    )
    page[NameObject("/Resources")] = DictionaryObject(
        {NameObject("/Font"): DictionaryObject({NameObject("/F1"): font})}
    )
    content = DecodedStreamObject()
    drawn = b" (x) Tj" * (compressed_megabytes << 17) if compressed_megabytes else f"({text}) Tj".encode()
    content.set_data(b"BT /F1 12 Tf 20 200 Td " + drawn + b" ET")
    page[NameObject("/Contents")] = writer._add_object(content.flate_encode())
    written = BytesIO()
    writer.write(written)
    return written.getvalue()


PAGES: dict[str, Callable[[str], Sent]] = {
    "museum": _page,
    "private": _page,
    "plain": lambda _: Answer(b"The ferry leaves at 07:40.\nIt returns at 19:15.", "text/plain"),
    "long": lambda _: Answer("\n".join(f"Line {n} of the log." for n in range(2_000)).encode(), "text/plain"),
    "pdf": lambda _: Answer(pdf("The report counts 4217 seals."), "application/pdf"),
    "pdf-as-html": lambda _: Answer(pdf("The report counts 4217 seals."), HTML),
    "html-as-binary": lambda _: Answer(MUSEUM.encode(), "application/octet-stream"),
    "latin": lambda _: Answer("<html><body><p>Café in Malmö</p></body></html>".encode("latin-1"), HTML),
    "no-charset": lambda _: Answer("<html><body><p>Café in Malmö</p></body></html>".encode("latin-1"), "text/html"),
    "odd-charset": lambda _: Answer("Café in Malmö, says the guide.".encode(), "text/plain; charset=zlib_codec"),
    "declared": lambda _: Answer(
        '<html><head><meta charset="shift_jis"></head><body><p>港の時計</p></body></html>'.encode("shift_jis"),
        "text/html",
    ),
    "bidi": lambda _: Answer("safe \u202etxt.exe\x1b[2J end".encode(), "text/plain"),
    "huge": lambda _: [_head(HTML, "Content-Length: 1000000000"), b"<p>the first of many</p>"],
    "endless": _endless,
    "slow": _slow,
    "slow-head": _slow_head,
    "interim": _interim,
    "silent": _silent,
    "to": lambda place: to(place),
    "to-password": lambda _: to("//ann:secret@127.0.0.1/museum"),
    "to-long": lambda _: to("/museum?" + "x" * 2_000),
    "to-long-letters": lambda _: to("/museum?" + "\N{LATIN SMALL LETTER E WITH ACUTE}" * 500),
    "loop": lambda _: to("/loop"),
    "packed": _packed,
    "bomb-inside": lambda _: Answer(gzip.compress(bytes(16 << 20)), HTML),
    "picture": lambda _: Answer(b"\x89PNG\r\n\x1a\n" + bytes(100), "image/png"),
    "binary-as-html": lambda _: Answer(b"PK\x03\x04" + bytes(100), HTML),
    "archive": lambda _: Answer(b"PK\x03\x04" + bytes(100), "application/zip"),
    "empty": lambda _: Answer(b"", HTML),
    "scripts-only": lambda _: Answer(b"<html><body><script>render()</script></body></html>", HTML),
    "missing": lambda _: Answer(b"gone", HTML, status=404),
    "broken": lambda _: Answer(b"sorry", HTML, status=503),
    "pdf-explodes": lambda _: Answer(pdf("", compressed_megabytes=64), "application/pdf"),
    "pdf-broken": lambda _: Answer(b"%PDF-1.7\n1 0 obj\n<< /Type /Catalog >>\n%%EOF", "application/pdf"),
    "deep": lambda _: Answer(b"<html><body>" + b"<div>" * 200_000 + b"deep", HTML),
    "many": lambda _: Answer(b"<html><body>" + b"<p>x <b>y</b></p>" * 1_000_000 + b"</body></html>", HTML),
    "head": lambda number: [HEADS[int(number)]],
}


@pytest.fixture(name="site")
def site_fixture() -> Iterator[HostileSite]:
    """A site of the test's own."""
    site = HostileSite()
    yield site
    site.close()
