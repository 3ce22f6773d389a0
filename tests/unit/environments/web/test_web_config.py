"""The options of web runs, and the addresses of pages."""

from __future__ import annotations

from pathlib import Path

import pytest

from rollout_tasks.config import RunConfig, parse_config
from rollout_tasks.environments.web.download import page_url
from rollout_tasks.environments.web.host_turns import wait_for_turn
from rollout_tasks.environments.web.politeness import check_domain
from rollout_tasks.environments.web.refusal import Refused
from rollout_tasks.environments.web.search import SearchService, SearchUnavailableError
from rollout_tasks.errors import UserError
from rollout_tasks.settings import settings


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"cache": "record"}, "web: cache record needs a folder: --web-cache-dir FOLDER"),
        ({"cache": "replay"}, "web: cache replay needs a folder: --web-cache-dir FOLDER"),
        ({"cache": "on"}, "--web-cache: must be off, record or replay, got"),
        ({"search": "bing"}, "--web-search: must be serper, searxng or tavily, got"),
        ({"results": 11}, "--web-results: "),
        ({"exclude": ["https://example.org/"]}, "--web-exclude: must be a domain, as in example.org"),
        ({"exclude": [""]}, "--web-exclude: must be a domain"),
        ({"user_agent": "a\nb"}, "--web-user-agent: must look like name/1.0"),
        ({"user_agent": ""}, "--web-user-agent: must look like name/1.0"),
        ({"delay": -1}, "--web-delay: "),
        ({"visit_seconds": 0}, "--web-visit-timeout: "),
    ],
)
def test_wrong_options_are_named(given: dict[str, object], says: str) -> None:
    with pytest.raises(UserError) as raised:
        parse_config({"web": given})

    assert str(raised.value).startswith(says)


def test_domains_are_written_in_one_way_and_hold_for_all_below() -> None:
    excluded = parse_config({"web": {"exclude": [" Example.ORG. ", "b.net"]}}).web.exclude

    assert excluded == ("example.org", "b.net")
    for host in ("example.org", "A.example.org", "example.org.", "x.b.net"):
        with pytest.raises(Refused, match="may not be visited here"):
            check_domain(host, excluded)
    check_domain("anexample.org", excluded)
    check_domain("org", excluded)


def test_workers_find_the_record_where_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    config = RunConfig.model_validate({"web": {"cache": "record", "cache_folder": "record"}})

    assert config.web.resolved().cache_folder == tmp_path / "record"
    assert RunConfig().web.resolved() == RunConfig().web


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("example.org", "https://example.org"),
        (" http://example.org/a%2Fb?c=%20#d ", "http://example.org/a%2Fb?c=%20"),
        ("HTTP://user:secret@EXAMPLE.org:80/", "http://example.org/"),
        ("https://例え.example/", "https://xn--r8jz45g.example/"),
    ],
)
def test_addresses_are_written_in_one_way(text: str, url: str) -> None:
    assert page_url(text).copy_with() == url


@pytest.mark.parametrize(
    "text",
    [
        "",
        "http://",
        "http:///a",
        "http://[::1",
        "http://a%41/",
        "x" * 3_000,
        "https://\ud800/",
        "https://xn--x.com/",
        "https://xn--/",
    ],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(Refused, match="address"):
        page_url(text)


@pytest.mark.parametrize("text", ["ftp://a.org/", "file:///etc/passwd", "javascript://a"])
def test_other_schemes_are_refused(text: str) -> None:
    with pytest.raises(Refused, match="only http and https"):
        page_url(text)


@pytest.mark.parametrize(
    "url", ["searx.lan", "ftp://searx.lan", "http://", "http://searx.lan/?q=1", "http://searx.lan/#a"]
)
def test_a_search_service_has_an_address(url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ROLLOUT_SEARCH_URL", url)

    with pytest.raises(UserError, match=r"^ROLLOUT_SEARCH_URL: must look like http://host:port"):
        settings()


def test_a_key_that_no_header_can_hold_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROLLOUT_SEARCH_KEY", "secret\nkey")
    settings.cache_clear()

    with pytest.raises(SearchUnavailableError, match=r"^ROLLOUT_SEARCH_KEY: ") as raised:
        SearchService("serper")

    assert "secret" not in str(raised.value)


def test_turns_at_a_host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    wait_for_turn("a.org", 50, seconds_left=1)
    wait_for_turn("a.org", 0, seconds_left=1)
    with pytest.raises(Refused, match=r"a\.org is asked by too many at once"):
        wait_for_turn("a.org", 1, seconds_left=1)
    wait_for_turn("b.org", 50, seconds_left=1)
    for file in tmp_path.rglob("web-turns/*"):
        file.write_text("not a time")
    wait_for_turn("a.org", 50, seconds_left=1)
