"""What is read of pages, PDF files and robots.txt, by itself; `tests/integration/environments/web` has the cells around it."""

from __future__ import annotations

import pytest

for package in ("protego", "pypdf", "trafilatura"):
    pytest.importorskip(package, reason="the extra web is not installed")

from rollout_tasks.environments.web import page_reader  # noqa: E402 (the next one needs these packages)
from rollout_tasks.environments.web.page_text import (  # noqa: E402 (it needs these packages)
    LONGEST_TEXT,
    Unreadable,
    decoded,
    kind_of,
    read_page,
    robots_verdict,
)


def test_worker_and_cell_keep_as_much() -> None:
    assert page_reader.LONGEST_TEXT == LONGEST_TEXT


@pytest.mark.parametrize(
    ("body", "media_type", "kind"),
    [
        (b"\n%PDF-1.4", "text/html", "pdf"),
        (b"hello", "text/html", "html"),
        (b"<!DOCTYPE  html>", "text/plain", "html"),
        (b"<HTML>", "image/png", "html"),
        (b"{}", "application/ld+json", "text"),
        (b"hello", "", "text"),
        ("\ufeffhello".encode("utf-16"), "text/plain", "text"),
    ],
)
def test_a_file_is_what_it_begins_with(body: bytes, media_type: str, kind: str) -> None:
    assert kind_of(body, media_type) == kind


@pytest.mark.parametrize("media_type", ["application/zip", "font/woff2"])
def test_other_files_are_refused(media_type: str) -> None:
    with pytest.raises(Unreadable, match=f"^it is {media_type}, which has no text$"):
        kind_of(b"hello", media_type)


@pytest.mark.parametrize(
    ("body", "charset", "text"),
    [
        ("Größe".encode(), "", "Größe"),
        ("Größe".encode("latin-1"), "iso-8859-1", "Größe"),
        ("Größe".encode("utf-16"), "utf-8", "Größe"),
        ("Größe".encode(), "no-such-charset", "Größe"),
        (b'<meta http-equiv="Content-Type" content="text/html; charset=koi8-r">' + "Мир".encode("koi8-r"), "", "Мир"),
        (b"\xff\xfe", "utf-8", ""),
    ],
)
def test_charsets(body: bytes, charset: str, text: str) -> None:
    assert decoded(body, charset).endswith(text)


def test_a_long_text_is_cut() -> None:
    assert len(read_page(b"word " * 200_000, "text/plain", "", "")[1]) == LONGEST_TEXT


def test_rules() -> None:
    rules = (
        b"User-agent: *\nDisallow: /a\nAllow: /a/b\nDisallow: /*.pdf$\nCrawl-delay: 2.5\n\nUser-agent: me\nDisallow:\n"
    )

    assert robots_verdict(rules, "you", "https://e.org/a/c") == (False, 2.5)
    assert robots_verdict(rules, "you", "https://e.org/a/b") == (True, 2.5)
    assert robots_verdict(rules, "you", "https://e.org/x.pdf") == (False, 2.5)
    assert robots_verdict(rules, "me", "https://e.org/a/c") == (True, 0.0)
