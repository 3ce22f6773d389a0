"""Downloads pages of the internet: within a deadline and a size, through the one filter of addresses (`vm_pool.egress`).

httpx parses heads; a body is passed on as it came, for a cell to read.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import httpx

from benchmark.deadline import Deadline, TooSlowError, keep_deadlines
from rollout_tasks.environments.web.refusal import Refused
from rollout_tasks.settings import settings
from vm_pool.egress.addresses import LOOKUP_SECONDS, NotPublic, resolved
from vm_pool.egress.http_transport import PublicTransport, opened

LARGEST_PAGE = 32 << 20
"""Bytes."""
LONGEST_URL = 2_000
LONGEST_HOST = 254
"""Characters of a name that DNS may have, with a dot at its end."""
_NO_TEXT = ("image/", "video/", "audio/", "font/")
"""Types whose files are not downloaded at all; drawings that are text are among them."""
_CHARSET = re.compile(r"charset\s*=\s*[\"']?([a-zA-Z0-9_:.-]{1,40})", re.IGNORECASE)
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://")
_NOT_AN_ADDRESS = "it is not the address of a page"
_OTHER_PORTS = frozenset(
    int(text)
    for text in """1 7 9 11 13 15 17 19 20 21 22 23 25 37 42 43 53 69 77 79 87 95 101 102 103 104 109 110 111 113 115
    117 119 123 135 137 139 143 161 179 389 427 465 512 513 514 515 526 530 531 532 540 548 554 556 563 587 601 636 989
    990 993 995 1719 1720 1723 2049 3659 4045 4190 5060 5061 6000 6566 6665 6666 6667 6668 6669 6679 6697 10080""".split()  # noqa: SIM905
)
"""The ports that are bad by the Fetch standard (https://fetch.spec.whatwg.org/#port-blocking)."""
_TOO_LONG = f"its address has more than {LONGEST_URL:,} characters"


@dataclass(frozen=True, slots=True)
class DownloadedPage:
    """A page as its server sent it."""

    url: str
    """Where it was at the end of all redirects."""
    media_type: str
    """In lower case; may be empty."""
    charset: str
    """May be empty."""
    body: bytes


def page_url(text: str) -> httpx.URL:
    """Returns the address of a page in its plain form, without fragment, user and password.

    Args:
        text: As a model wrote it; without a scheme, https is meant.

    Raises:
        Refused: It is no such address.
    """
    text = text.strip()
    if len(text) > LONGEST_URL:
        raise Refused(_TOO_LONG)
    try:
        url = httpx.URL(text if _SCHEME.match(text) else f"https://{text}")
        host = url.raw_host.decode("ascii")
        _ = url.host  # raises where a name in letters of ASCII stands for none
        plain = url.copy_with(fragment=None, userinfo=b"")
    except (httpx.InvalidURL, UnicodeError, ValueError) as error:
        raise Refused(_NOT_AN_ADDRESS) from error
    if url.scheme not in {"http", "https"}:
        raise Refused("only http and https addresses can be visited")
    if not host or "%" in host or len(host) > LONGEST_HOST:
        raise Refused(_NOT_AN_ADDRESS)
    if len(str(plain)) > LONGEST_URL:  # as it is sent: with all but ASCII in percent signs
        raise Refused(_TOO_LONG)
    return plain


def check_port(url: httpx.URL) -> None:
    """Checks that no other kind of service is asked, for which a request might be a command.

    Raises:
        Refused: The port is one that browsers refuse, too, or none.
    """
    if url.port is not None and (url.port in _OTHER_PORTS or not 0 < url.port < 1 << 16):
        raise Refused(f"it is at port {url.port}, which no page is at")


def check_redirect(url: httpx.URL) -> None:
    """Checks that a page may be asked for at an address that another one leads to.

    Raises:
        Refused: It may not; the message says why.
    """
    if url.scheme not in {"http", "https"}:
        raise Refused("it leads to an address that is neither http nor https")
    if len(url.raw_host) > LONGEST_HOST:
        raise Refused(f"it leads to a host with a name of more than {LONGEST_HOST} characters")
    if url.userinfo:
        raise Refused("it leads to an address with a user or password in it")
    if len(str(url)) > LONGEST_URL:
        raise Refused(f"it leads to an address of more than {LONGEST_URL:,} characters")


def download(
    url: httpx.URL,
    deadline: Deadline,
    user_agent: str,
    before_each: Callable[[httpx.URL], object],
    largest: int = LARGEST_PAGE,
) -> DownloadedPage:
    """Downloads a page.

    Args:
        url: As `page_url` returns it.
        deadline: When it must have come.
        user_agent: What the server is told.
        before_each: Called with the address of each request, redirects included; may raise `Refused`.
        largest: The most bytes of its body.

    Raises:
        HostRefused: A host has no public address, and is not among `ROLLOUT_WEB_HOSTS`.
        StatusRefused: Its server answers with another status than success.
        Refused: It cannot be had; the message says why.
    """

    def checked(each: httpx.URL) -> None:
        check_redirect(each)
        check_port(each)
        before_each(each)

    def resolve(host: str) -> list[str]:
        return resolved(host, min(LOOKUP_SECONDS, deadline.left()))

    transport = PublicTransport(settings().visitable_hosts, resolve, keep_deadlines)
    headers = {
        "User-Agent": user_agent,
        "Accept": "text/html,application/xhtml+xml,application/pdf,text/*;q=0.9,*/*;q=0.5",
    }
    try:
        with opened(
            "GET",
            str(url),
            timeout=httpx.Timeout(deadline),
            before_each=checked,
            transport=transport,
            headers=headers,
        ) as response:
            return _received(response, largest)
    except (TooSlowError, httpx.TimeoutException) as error:
        raise Refused(f"it did not come within {deadline:g} s") from error
    except NotPublic as error:
        raise HostRefused(str(error)) from error
    except httpx.TooManyRedirects as error:
        raise Refused(f"its server answers with {error}") from error
    except httpx.DecodingError as error:
        raise Refused(str(error)) from error
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeError, OSError) as error:
        raise Refused(f"its server cannot be asked: {str(error) or type(error).__name__}") from error


class HostRefused(Refused):
    """A host has no public address."""


class StatusRefused(Refused):
    """The server answered with another status than success."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(f"its server answers HTTP {status} {reason}".strip())
        self.status = status


def _received(response: httpx.Response, largest: int) -> DownloadedPage:
    if not response.is_success:
        raise StatusRefused(response.status_code, response.reason_phrase)
    media_type, _, parameters = response.headers.get("Content-Type", "").partition(";")
    media_type = media_type.strip().lower()[:100]
    if media_type.startswith(_NO_TEXT) and not media_type.endswith("+xml"):
        raise Refused(f"it is {media_type}, which has no text")
    length = response.headers.get("Content-Length", "")
    if length.isdigit() and int(length[:20]) > largest:
        raise _too_large(largest)
    body = bytearray()
    for piece in response.iter_raw():
        body += piece
        if len(body) > largest:
            raise _too_large(largest)
    charset = _CHARSET.search(parameters)
    return DownloadedPage(str(response.url), media_type, charset[1] if charset else "", bytes(body))


def _too_large(largest: int) -> Refused:
    return Refused(
        f"it is larger than {largest >> 20} MiB" if largest >> 20 else f"it is larger than {largest >> 10} KiB"
    )
