"""Reads the text of a downloaded page or PDF file, and the rules of a robots.txt. Runs in a cell: the bytes are a stranger's."""

from __future__ import annotations

import codecs
import re
from io import BytesIO
from typing import Literal

import charset_normalizer
import pypdf
import trafilatura
from protego import Protego

LONGEST_TEXT = 500_000
"""Characters of a page that are kept."""
_SNIFFED = 1024
"""Bytes at the beginning that say what a file is."""
_DECLARED_IN = 4096
"""Bytes at the beginning in which a page may name its charset."""
_PDF = b"%PDF-"
_HTML_START = re.compile(rb"<(!doctype\s+html|html|head|body)\b", re.IGNORECASE)
_HTML = ("text/html", "application/xhtml+xml")
_TEXT = ("application/json", "application/xml", "application/javascript", "application/x-yaml")
_UNKNOWN = ("", "application/octet-stream", "binary/octet-stream", "application/x-download")
_DECLARED = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([a-zA-Z0-9_:.-]{1,40})", re.IGNORECASE)
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # which begins as the next one
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_WIDE = re.compile(r"utf[-_]?(16|32)", re.IGNORECASE)
"""Charsets whose texts have zeros."""
_LINE_END = re.compile(r"\r\n|[\r\v\f\x1c-\x1e\x85\u2028\u2029]")
_BLANK = re.compile(r"[^\S\n\t]")
_NO_WIDTH = re.compile(r"[\u00ad\u200b-\u200d\u2060\ufeff]")
_GAPS = re.compile(r"\n{3,}")


class Unreadable(ValueError):
    """There is no text to read; the message completes "it cannot be read: "."""


def read_page(body: bytes, media_type: str, charset: str, url: str) -> tuple[str, str]:
    """Returns a page's title, which may be empty, and its text, cut at `LONGEST_TEXT`.

    Args:
        body: The file.
        media_type: What its server says it is, in lower case; may be wrong or empty.
        charset: The charset that its server names; may be wrong or empty.
        url: Its address, against which links are resolved.

    Raises:
        Unreadable: It has no text; the message says why.
    """
    kind = kind_of(body, media_type, charset)
    if kind == "pdf":
        title, text = _read_pdf(body)
    elif kind == "html":
        title, text = _read_html(decoded(body, charset), url)
    else:
        title, text = "", decoded(body, charset)
    text = _GAPS.sub("\n\n", _with_plain_blanks(text)).strip()
    if not text:
        raise Unreadable("it has no text")
    return title, text[:LONGEST_TEXT]


def _with_plain_blanks(text: str) -> str:
    """Returns a text whose blanks and line ends are those of ASCII, which all models and terminals read, without hidden ones."""
    return _NO_WIDTH.sub("", _BLANK.sub(" ", _LINE_END.sub("\n", text)))


def kind_of(body: bytes, media_type: str, charset: str = "") -> Literal["pdf", "html", "text"]:
    """Returns what a file is, by its beginning rather than by what its server says.

    Args:
        body: The file.
        media_type: What its server says it is.
        charset: The charset that its server names.

    Raises:
        Unreadable: It is neither a page, a PDF file nor text.
    """
    start = body[:_SNIFFED]
    if _PDF in start:
        return "pdf"
    is_wide = any(body.startswith(mark) for mark, _ in _MARKS) or (_WIDE.match(charset) and _is_text(media_type))
    if b"\0" in body[:_DECLARED_IN] and not is_wide:
        raise Unreadable(
            f"it is not text, although it is said to be {media_type}" if _is_text(media_type) else _of(media_type)
        )
    if media_type in _HTML or _HTML_START.search(start):
        return "html"
    if _is_text(media_type) or media_type in _UNKNOWN:
        return "text"
    raise Unreadable(_of(media_type))


def _is_text(media_type: str) -> bool:
    return media_type.startswith("text/") or media_type in (*_HTML, *_TEXT) or media_type.endswith(("+xml", "+json"))


def _of(media_type: str) -> str:
    return f"it is {media_type or 'of an unknown type'}, which has no text"


def decoded(body: bytes, charset: str) -> str:
    """Returns a file's text: by its byte order mark, by the charset that it or its server names, else by what fits.

    Args:
        body: The file.
        charset: The charset that its server names; may be wrong or empty.
    """
    for mark, name in _MARKS:
        if body.startswith(mark):
            return body.decode(name, "replace")
    declared = _DECLARED.search(body[:_DECLARED_IN])
    names = [charset, declared[1].decode("ascii") if declared else "", "utf-8"]
    for name in filter(None, names):
        try:
            return body.decode(codecs.lookup(name).name)
        except (LookupError, UnicodeError):  # not a charset, one that is not for text, or not this text's
            continue
    best = charset_normalizer.from_bytes(body[:100_000]).best()
    return body.decode(best.encoding if best is not None else "cp1252", "replace")


def _read_html(page: str, url: str) -> tuple[str, str]:
    tree = trafilatura.load_html(page)
    if tree is None:
        raise Unreadable("it has no text")
    title = " ".join((tree.findtext(".//title") or "").split())[:300]
    text = trafilatura.extract(
        tree, url=url, output_format="markdown", include_links=True, include_tables=True, favor_recall=True
    )
    text = text or trafilatura.html2txt(page)
    if not text:
        raise Unreadable("it has no text, at least not without running its scripts")
    return title, text


def _read_pdf(body: bytes) -> tuple[str, str]:
    try:
        reader = pypdf.PdfReader(BytesIO(body))
        if reader.is_encrypted and not reader.decrypt(""):
            raise Unreadable("it is a PDF file with a password")
        title = str((reader.metadata.title if reader.metadata else None) or "")
        pieces: list[str] = []
        room = LONGEST_TEXT
        for number, page in enumerate(reader.pages, 1):
            pieces.append(f"[page {number}]\n{page.extract_text()}")
            room -= len(pieces[-1])
            if room <= 0:
                break
    except (Unreadable, MemoryError):
        raise
    except Exception as error:  # whatever pypdf makes of a broken file
        raise Unreadable(f"it is a PDF file that is broken ({type(error).__name__})") from error
    if not any(piece.partition("\n")[2].strip() for piece in pieces):
        raise Unreadable("it is a PDF file without text, such as a scan")
    return " ".join(title.split())[:300], "\n\n".join(pieces)


def robots_verdict(rules: bytes, agent: str, url: str) -> tuple[bool, float]:
    """Returns whether a robots.txt lets an agent ask for a page, and the seconds that it wants between two requests.

    Args:
        rules: The robots.txt.
        agent: The agent's name.
        url: The page.
    """
    parsed = Protego.parse(rules.decode("utf-8-sig", "replace"))
    return bool(parsed.can_fetch(url, agent)), float(parsed.crawl_delay(agent) or 0.0)
