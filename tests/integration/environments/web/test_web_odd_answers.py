"""Answers of servers that nobody sends by mistake, one table: each is read as it should be, or refused in one sentence, in time."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Iterator

import pytest

from tests.hostile.random_replies.answers import Answer, Sent
from tests.integration.environments.web.conftest import HostileSite, Opened
from tests.integration.environments.web.hostile_site import HTML, PAGES, to

pytestmark = pytest.mark.usefixtures("cells")

TEXT = "Café in Malmö, 港の時計."
PAGE = f"<html><head><title>Odd</title></head><body><p>{TEXT}</p></body></html>"
_CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"


def typed(media_type: str, body: str = PAGE) -> Answer:
    return Answer(body.encode(), media_type)


READ: dict[str, Answer] = {
    "utf-16 with a mark": Answer(TEXT.encode("utf-16"), "text/plain"),
    "utf-16 with another charset": Answer(TEXT.encode("utf-16"), "text/plain; charset=latin-1"),
    "utf-16 by its charset": Answer(TEXT.encode("utf-16-le"), "text/plain; charset=utf-16le"),
    "utf-16 page by its charset": Answer(PAGE.encode("utf-16-be"), "text/html; charset=UTF-16BE"),
    "utf-32 with a mark": Answer(TEXT.encode("utf-32"), "text/plain"),
    "mark of utf-8": Answer(b"\xef\xbb\xbf" + TEXT.encode(), "text/plain; charset=latin-1"),
    "charset that is none": typed("text/html; charset=unicode"),
    "charset of bytes": typed("text/html; charset=base64"),
    "empty charset": typed("text/html; charset="),
    "quoted charset": typed("text/html; charset='utf-8"),
    "two charsets": typed("text/html; charset=utf-8; charset=latin-1"),
    "capitals": typed("TEXT/HTML; CHARSET=UTF-8"),
    "two types": typed("text/html, text/plain"),
    "no type": typed(""),
    "type that says nothing": typed(";"),
    "feed": typed("application/rss+xml", f"<rss><channel><title>{TEXT}</title></channel></rss>"),
    "drawing": typed("image/svg+xml", f'<svg xmlns="http://www.w3.org/2000/svg"><text>{TEXT}</text></svg>'),
    "JSON": typed("application/problem+json", f'{{"detail": "{TEXT}"}}'),
    "other line ends": Answer(f"{TEXT}\r\n\f\x85".encode(), "text/plain; charset=utf-8"),
    "what has no width": Answer(f"\u200b{TEXT[:3]}\u00ad{TEXT[3:]}\ufeff".encode(), "text/plain; charset=utf-8"),
    "blanks of other scripts": Answer("Café in\u00a0Malmö,\u3000港の時計.".encode(), "text/plain; charset=utf-8"),
}


@pytest.mark.parametrize("case", READ)
def test_it_is_read(case: str, web: Opened, site: HostileSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PAGES, "odd", lambda _: READ[case])

    said = web().visit(f"{site.url}/odd")

    assert said.status == "success", said
    assert TEXT in said.response
    assert "\N{REPLACEMENT CHARACTER}" not in said.response


def trailers(pause: float) -> Callable[[], Iterator[bytes | float]]:
    def sent() -> Iterator[bytes | float]:
        yield _CHUNKED + b"3\r\nabc\r\n0\r\n"
        for number in itertools.count():
            yield f"X-{number}: y\r\n".encode()
            if pause:
                yield pause

    return sent


def endless(start: bytes, more: bytes, pause: float = 0.0) -> Callable[[], Iterator[bytes | float]]:
    def sent() -> Iterator[bytes | float]:
        yield start
        while True:
            yield more
            if pause:
                yield pause

    return sent


def packed(encoding: str) -> Callable[[], Sent]:
    body = zlib.compress(PAGE.encode())
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {HTML}\r\nContent-Encoding: {encoding}\r\nContent-Length: {len(body)}\r\n\r\n"
    return lambda: [head.encode() + body]


def pdf(*objects: str, trailer: str = "/Root 1 0 R /Size 9") -> Callable[[], Sent]:
    """A PDF file of these objects, numbered from 1, with a table of where they are."""
    content, places = b"%PDF-1.7\n", []
    for number, one in enumerate(objects, 1):
        places.append(len(content))
        content += f"{number} 0 obj\n{one}\nendobj\n".encode()
    rows = "".join(f"{place:010} 00000 n \n" for place in places)
    table = f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{rows}trailer\n<< {trailer} >>\n"
    content += f"{table}startxref\n{len(content)}\n%%EOF".encode()
    return lambda: Answer(content, "application/pdf")


CATALOG = "<< /Type /Catalog /Pages 2 0 R >>"
OTHERS = [
    "ftp://127.0.0.1/",
    "ws://127.0.0.1/",
    "FILE:///etc/passwd",
    "gopher://127.0.0.1:70/_x",
    "data:/x",
    "unix:/run/x.sock",
]
NONE = [
    "data:text/html,x",
    "javascript:alert(1)",
    "about:blank",
    "mailto:a@b.example",
    "view-source:http://127.0.0.1/",
    "tel:1",
]
NONE += ["blob:http://127.0.0.1/1", "http://[::1", "http://127.0.0.1:x/", "http://\x7f/"]
REFUSED: dict[str, tuple[Callable[[], Sent], str]] = {
    **{
        place: (lambda place=place: to(place), "it leads to an address that is neither http nor https")
        for place in OTHERS
    },  # type: ignore[misc]
    **{place: (lambda place=place: to(place), "its server cannot be asked: ") for place in NONE},  # type: ignore[misc]
    **{
        name: (packed(name), f"it is packed as '{name.lower()}', which was not asked for")
        for name in ("zstd", "BR", "x-gzip")
    },
    "packed twice": (packed("gzip, gzip"), "it is packed as 'gzip, gzip', which was not asked for"),
    "empty place": (lambda: to(""), "its server answers with more than 10 redirects"),
    "place of this page": (lambda: to("#top"), "its server answers with more than 10 redirects"),
    "port that is none": (lambda: to("http://127.0.0.1:99999/"), "it is at port 99999, which no page is at"),
    "port of mail": (lambda: to("http://one.one.one.one:25/"), "it is at port 25, which no page is at"),
    "trailers without end": (trailers(0), "its server cannot be asked: "),
    "slow trailers": (trailers(0.05), "it did not come within 1.5 s"),
    "chunk with a long extension": (endless(_CHUNKED + b"3;x=", b"y" * 1000), "its server cannot be asked: "),
    "chunk without a size": (lambda: [_CHUNKED + b"xyz\r\nabc\r\n0\r\n\r\n"], "its server cannot be asked: "),
    "chunk of 2^80 bytes": (lambda: [_CHUNKED + b"100000000000000000000\r\nabc"], "its server cannot be asked: "),
    "chunk that ends early": (lambda: [_CHUNKED + b"a\r\nabc"], "its server cannot be asked: "),
    "chunks of one byte, slowly": (endless(_CHUNKED, b"1\r\nx\r\n", 0.05), "it did not come within 1.5 s"),
    "many early hints": (endless(b"", b"HTTP/1.1 103 Early Hints\r\n\r\n" * 50, 0.001), "it did not come within 1.5 s"),
    "events": (
        endless(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n", b"data: x\n\n", 0.05),
        "it did not come",
    ),
    "no protocol": (lambda: [f"<html><body><p>{TEXT}</p></body></html>".encode()], "its server cannot be asked: "),
    "shorter than it says": (
        lambda: [b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nabc"],
        "its server cannot be asked: ",
    ),
    "two lengths": (
        lambda: [b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 9\r\n\r\nabcdefghi"],
        "its server cannot be asked: ",
    ),
    "negative length": (lambda: [b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nabc"], "its server cannot be asked: "),
    "refresh": (
        lambda: typed(HTML, '<html><head><meta http-equiv="refresh" content="0;url=file:///x">'),
        "it has no text",
    ),
    "frame": (
        lambda: typed(HTML, '<html><frameset><frame src="http://127.0.0.1/"></frameset></html>'),
        "it has no text",
    ),
    "film": (lambda: typed("video/mp4"), "it is video/mp4, which has no text"),
    "long type": (lambda: typed("a/" + "b" * 50_000, "x"), "it is a/bbb"),
    "zeros": (lambda: Answer(bytes(1 << 20), "text/plain"), "it is not text, although it is said to be text/plain"),
    "PDF of nothing": (pdf(), "it is a PDF file that is broken"),
    "PDF without pages": (pdf("<< /Type /Catalog >>"), "it is a PDF file"),
    "PDF whose pages are a circle": (pdf(CATALOG, "<< /Type /Pages /Kids [2 0 R] /Count 1 >>"), "it is a PDF file"),
    "PDF of a billion pages": (pdf(CATALOG, "<< /Type /Pages /Kids [] /Count 1000000000 >>"), "it is a PDF file"),
    "PDF whose object is itself": (pdf("1 0 R"), "it is a PDF file that is broken"),
    "PDF whose tables are a circle": (pdf(CATALOG, trailer="/Root 1 0 R /Size 3 /Prev 9"), "it is a PDF file"),
    "PDF nested deeply": (pdf("[" * 20_000), "it is a PDF file that is broken"),
    "PDF with a password": (
        pdf(CATALOG, "<< /Type /Pages /Kids [] /Count 0 >>", trailer="/Root 1 0 R /Size 3 /Encrypt << /Filter /X >>"),
        "it is a PDF file that is broken",
    ),
}
QUICK = {"slow trailers", "chunks of one byte, slowly", "many early hints", "events"}


@pytest.mark.parametrize("case", REFUSED)
def test_it_is_refused(case: str, web: Opened, site: HostileSite, monkeypatch: pytest.MonkeyPatch) -> None:
    answer, says = REFUSED[case]
    monkeypatch.setitem(PAGES, "odd", lambda _: answer())

    said = web(visit_seconds=1.5 if case in QUICK else 30).visit(f"{site.url}/odd")

    assert (said.status, "\n" in said.response) == ("failed", False), said
    assert said.response.startswith(f"Page '{site.url}/odd': {says}"), said
    assert said.response.isprintable()
    assert len(said.response) < 450


def test_a_redirect_that_grows_ends(web: Opened, site: HostileSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PAGES, "odd", lambda rest: to(f"/odd/{rest}{'x' * 400}"))

    said = web().visit(f"{site.url}/odd").response

    assert said.endswith("it leads to an address of more than 2,000 characters.")
    assert max(map(len, site.asked)) <= 2_000


@pytest.mark.parametrize("port", [0, 1, 22, 6000, 6667, 10080, 65536, 99999])
def test_ports_of_other_services_are_not_visited(port: int, web: Opened) -> None:
    said = web().visit(f"http://one.one.one.one:{port}/").response

    assert said.endswith(f"port {port}, which no page is at.")


ROBOTS: dict[str, tuple[Callable[[], Sent], str]] = {
    "a gigabyte": (lambda: [b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n", b"#" * 1000], "failed"),
    "without end": (endless(b"HTTP/1.1 200 OK\r\n\r\n", b"Disallow: /x\n" * 1000), "failed"),
    "slow": (endless(b"HTTP/1.1 200 OK\r\n\r\n", b"#", 0.05), "failed"),
    "redirects without end": (lambda: to("/robots.txt"), "failed"),
    "leads to a file": (lambda: to("file:///etc/passwd"), "failed"),
    "packed": (packed("gzip"), "failed"),
    "a page": (lambda: typed(HTML), "success"),
    "many groups": (lambda: Answer(b"User-agent: a\nDisallow: /\n\n" * 15_000, "text/plain"), "success"),
    "a picture by its type": (lambda: Answer(b"User-agent: *\nDisallow: /odd", "image/png"), "failed"),
    **{
        f"delay {delay}": (
            lambda delay=delay: Answer(f"User-agent: *\nCrawl-delay: {delay}".encode(), "text/plain"),
            "success",
        )  # type: ignore[misc]
        for delay in ("nan", "inf", "-5", "1e999", "x", "9" * 400)
    },
}


@pytest.mark.parametrize("case", ROBOTS)
def test_odd_rules(case: str, web: Opened, site: HostileSite) -> None:
    site.robots, status = ROBOTS[case]

    said = web(visit_seconds=1.5 if case == "slow" else 30).visit(f"{site.url}/plain")

    assert said.status == status, said
    assert status == "success" or "\n" not in said.response
