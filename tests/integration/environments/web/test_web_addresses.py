"""No page leads to this machine or its networks: whatever notation, name or redirect it has. A server there is never asked."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from rollout_tasks.environments.web import search
from rollout_tasks.environments.web.search import SearchUnavailableError
from rollout_tasks.settings import settings
from tests.hostile.random_replies.answers import Answer, AnswerServer, Request, Sent
from tests.integration.environments.web.conftest import HostileSite, Opened

pytestmark = pytest.mark.usefixtures("cells")

RESOLVED = {
    "loopback.example": "127.0.0.1",
    "private.example": "10.1.2.3",
    "metadata.example": "169.254.169.254",
    "six.example": "::1",
    "mapped.example": "::ffff:127.0.0.1",
    "nat64.example": "64:ff9b::7f00:1",
    "unique.example": "fd00::1",
}
"""What DNS says."""
PRIVATE = [
    *("127.0.0.1", "127.1", "127.0.0.1.", "2130706433", "0x7f000001", "0177.0.0.1", "0x7f.1", "0", "0.0.0.0"),  # noqa: S104
    *("10.0.0.1", "172.16.0.1", "192.168.0.1", "169.254.169.254", "100.64.0.1", "198.18.0.1", "255.255.255.255"),
    *("[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::1]", "[fe80::1]"),
    *("[fd00::1]", "localhost", "LOCALHOST", "localhost.", "sub.localhost", "user:password@127.0.0.1", "①②⑦.⓪.⓪.①"),
    *(
        "0300.0250.0.1",
        "017700000001",
        "0x7f000001.",
        "0x0.0x0.0.0",
        "127.0x0.1",
        "4294967295",
        "00000000177.1",
        "127.0.0.1..",
    ),
    *(
        "[::1%25lo]",
        "[fe80::1%25eth0]",
        "[::127.0.0.1]",
        "[::ffff:0:127.0.0.1]",
        "[64:ff9b:1::7f00:1]",
        "[::ffff:0.0.0.0]",
    ),
    *(
        "[0:0:0:0:0:ffff:7f00:0001]",
        "[2001:0:7f00:1::]",
        "[ff02::1]",
        "[2002:a9fe:a9fe::]",
        "[64:ff9b::a9fe:a9fe]",
        "[::1].",
    ),
    *(
        "%6cocalhost",
        "127.0.0.1%00.example",
        "127\u30020\u30020\u30021",
        "\uff11\uff12\uff17.0.0.1",
        "localhost.localdomain",
    ),
    *(
        "ip6-localhost",
        "l\u00adocalhost",
        "\u2113ocalhost",
        "xn--localhost-",
        "xn--",
        "..",
        "a..b",
        "-.example",
        "a" * 64 + ".example",
    ),
    *(".".join(["a" * 63] * 5), "a_b.example", "user@127.0.0.1", "a@b@127.0.0.1", "example.org\\@127.0.0.1"),
    *RESOLVED,
]


REFUSED = re.compile(
    "has no address|is not the address of a page|a user or password in it|more than 254 characters|Invalid |A-label"
)
"""What may be said; the last by the HTTP client, of a redirect."""


@pytest.fixture
def inner() -> Iterator[tuple[AnswerServer, list[str]]]:
    """A server of this machine's own, which no page may lead to, and what it was asked."""
    asked: list[str] = []

    def answer(request: Request) -> Sent:
        asked.append(request.path)
        return [b""]

    server = AnswerServer(answer)
    yield server, asked
    server.close()


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> None:
    real = socket.getaddrinfo

    def getaddrinfo(host: Any, *more: Any, **options: Any) -> Any:
        return real(RESOLVED.get(str(host).rstrip("."), host), *more, **options)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)


@pytest.mark.usefixtures("names")
@pytest.mark.parametrize("host", PRIVATE)
def test_no_private_address_is_visited(
    host: str, web: Opened, inner: tuple[AnswerServer, list[str]], site: HostileSite
) -> None:
    server, asked = inner
    place = f"http://{host}:{server.port}/"
    site.robots = lambda: Answer(b"", status=404)
    environment = web(visit_seconds=10)

    direct, redirected = environment.visit(place), environment.visit(f"{site.url}/to/{place}")

    assert (direct.status, redirected.status) == ("failed", "failed")
    assert REFUSED.search(direct.response), direct
    assert REFUSED.search(redirected.response), redirected
    assert "\n" not in direct.response
    assert asked == []


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A resolver that does not answer for names below slow.example."""
    real, over = socket.getaddrinfo, threading.Event()

    def getaddrinfo(host: Any, *more: Any, **options: Any) -> Any:
        if str(host).rstrip(".").endswith("slow.example"):
            over.wait(60)
        return real(host, *more, **options)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    yield
    over.set()


@pytest.mark.usefixtures("stuck")
@pytest.mark.parametrize("place", ["http://slow.example/", "SITE/to/http://slow.example/"])
def test_a_resolver_that_does_not_answer_costs_no_more_than_the_visit(
    place: str, web: Opened, site: HostileSite
) -> None:
    said = web(visit_seconds=1).visit(place.replace("SITE", site.url))

    assert (said.status, "\n" in said.response) == ("failed", False)
    assert said.response.endswith("slow.example has no address: the resolver does not answer in time.")


@pytest.mark.usefixtures("stuck")
def test_a_search_service_whose_name_is_not_resolved_fails_in_time(
    web: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "SECONDS", 1.0)
    monkeypatch.setenv("ROLLOUT_SEARCH_URL", "http://slow.example:8888")
    settings.cache_clear()

    with pytest.raises(SearchUnavailableError, match="does not answer within 1 s"):
        web().search("x")


def test_only_the_port_that_is_allowed_is_visited(web: Opened, inner: tuple[AnswerServer, list[str]]) -> None:
    server, asked = inner

    assert "has no address on the internet" in web().visit(f"http://127.0.0.1:{server.port}/").response
    assert asked == []
