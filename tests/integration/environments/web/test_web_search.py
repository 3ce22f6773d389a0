"""Search through each protocol, what is shown of its results, and what happens when the service does not answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rollout_tasks.config import RunConfig
from rollout_tasks.environments.web.environment import WebEnvironment
from rollout_tasks.environments.web.search import TRIES, SearchUnavailableError
from rollout_tasks.settings import settings
from tests.hostile.random_replies.answers import Answer
from tests.integration.environments.web.conftest import ITEM, Opened, StandInSearch
from tests.integration.environments.web.search_server import KEY

SHOWN = """Results for 'tide museum':
1. The Tide Museum
   https://museum.example/tide
   Founded in 1887 by Ida Marsh.
2. Harbour
   https://harbour.example/
   Tides for 200 years.
3. Elsewhere
   https://elsewhere.example/page
   Something else."""


@pytest.mark.parametrize("protocol", ["serper", "searxng", "tavily"])
@pytest.mark.parametrize("path", ["", "/", "/search"])
def test_each_protocol_finds_the_same(
    protocol: str, path: str, web: Opened, search: StandInSearch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROLLOUT_SEARCH_URL", f"{search.url}{path}")
    settings.cache_clear()

    said = web(search=protocol).search("tide  museum")

    assert (said.status, said.response) == ("success", SHOWN)
    assert search.queries == ["tide museum"]


def test_several_queries_have_one_answer(web: Opened, search: StandInSearch) -> None:
    said = web(results=1, exclude=["museum.example"]).search("first", "  ", "second")

    assert said.status == "success"
    assert said.response == (
        "Results for 'first':\n1. Harbour\n   https://harbour.example/\n   Tides for 200 years.\n\n"
        "Search '': it has no words.\n\n"
        "Results for 'second':\n1. Harbour\n   https://harbour.example/\n   Tides for 200 years."
    )
    search.found = []
    assert web().search("nothing").response == "No results for 'nothing'."


def test_results_cannot_pass_for_others(web: Opened, search: StandInSearch) -> None:
    search.found = [
        ("A\n2. B\x1b[2J", "https://a.example/\u202e", "c\nd" * 1_000),
        ("no page", "javascript:alert(1)", ""),
    ]

    said = web().search("x").response

    assert said.count("\n") == 3
    assert len(said) < 1_200
    assert "\x1b" not in said
    assert "javascript" not in said


FAILURES = {
    "overloaded": ([Answer(b"", status=503)] * TRIES, "HTTP 503"),
    "no JSON": ([Answer(b"<html>")], "does not speak serper"),
    "another shape": ([Answer(b'{"organic": [{"title": "x"}]}')], "does not speak serper"),
    "deep": ([Answer(b"[" * 200_000)], "does not speak serper"),
    "moved": ([[b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n"]], "redirect"),
    "endless": ([[b"HTTP/1.1 200 OK\r\nContent-Length: 90000000\r\n\r\n", *[b" " * (1 << 20)] * 8]], "more than 4 MiB"),
    "unknown path": ([Answer(b"", status=404)], "HTTP 404: see ROLLOUT_SEARCH_URL"),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_a_service_that_does_not_answer_is_the_infrastructures_failure(
    failure: str, web: Opened, search: StandInSearch
) -> None:
    environment = web(search="serper")
    search.instead, words = list(FAILURES[failure][0]), FAILURES[failure][1]

    with pytest.raises(SearchUnavailableError, match=words) as raised:
        environment.search("tide museum")

    assert KEY not in str(raised.value)
    assert search.url not in str(raised.value)
    assert environment.search("tide museum").status == "success"


LISTS = {"serper": ("organic", "link", "snippet"), "searxng": ("results", "url", "content")}
LISTS["tavily"] = LISTS["searxng"]
NO_RESULTS: list[Any] = [
    *(None, 7, "text", [], {}, ["https://list.example/"], True),
    *({"ADDRESS": None}, {"ADDRESS": 7}, {"ADDRESS": ["https://list.example/"]}, {"ADDRESS": ""}, {"title": "no link"}),
    {"ADDRESS": "javascript:alert(1)"},
    {"ADDRESS": "https://"},
]
"""What a list may hold beside results."""
ODD_RESULTS: list[Any] = [
    {"ADDRESS": "https://a.example/", "title": None, "EXCERPT": None, "date": None},
    {"ADDRESS": "https://a.example/", "title": 7, "EXCERPT": ["x"], "date": {"y": 2020}},
    {"ADDRESS": "https://a.example/", "unknown": {"deep": [[[]]]}},
]


def _answer(protocol: str, rows: list[Any]) -> Answer:
    name, address, excerpt = LISTS[protocol]
    content = json.dumps({name: rows}).replace("ADDRESS", address).replace("EXCERPT", excerpt)
    return Answer(content.encode())


@pytest.mark.parametrize("protocol", LISTS)
def test_what_is_no_result_is_left_out(protocol: str, web: Opened, search: StandInSearch) -> None:
    good = {"ADDRESS": "https://museum.example/", "title": "Museum", "EXCERPT": "Founded."}
    search.instead = [_answer(protocol, [*NO_RESULTS, good])]

    said = web(search=protocol).search("x").response

    assert said == "Results for 'x':\n1. Museum\n   https://museum.example/\n   Founded."


@pytest.mark.parametrize("protocol", LISTS)
@pytest.mark.parametrize("odd", ODD_RESULTS)
def test_a_result_needs_only_an_address(protocol: str, odd: Any, web: Opened, search: StandInSearch) -> None:
    search.instead = [_answer(protocol, [odd])]

    said = web(search=protocol).search("x").response

    assert said == "Results for 'x':\n1. https://a.example/\n   https://a.example/"


OTHER_SHAPES = [
    "null",
    "[]",
    "7",
    '"x"',
    "{LIST: null}",
    "{LIST: 7}",
    '{LIST: "ab"}',
    '{LIST: {"a": 1}}',
    "{LIST: [7]}",
    "",
]


@pytest.mark.parametrize("protocol", LISTS)
@pytest.mark.parametrize("shape", OTHER_SHAPES)
def test_what_is_no_list_of_results_is_said(protocol: str, shape: str, web: Opened, search: StandInSearch) -> None:
    search.instead = [Answer(shape.replace("LIST", f'"{LISTS[protocol][0]}"').encode())]

    with pytest.raises(SearchUnavailableError, match=f"does not speak {protocol}, or no longer"):
        web(search=protocol).search("x")


def test_a_passing_failure_is_tried_again(web: Opened, search: StandInSearch) -> None:
    search.instead = [Answer(b"", status=429, retry_after=0), Answer(b"", status=502)]

    assert web().search("tide museum").response == SHOWN


def test_a_query_that_is_not_taken_is_said_to_the_agent(web: Opened, search: StandInSearch) -> None:
    search.instead = [Answer(b"", status=400)]

    assert web().search("x").response == "Search 'x': the search service does not take it (HTTP 400)."


@pytest.mark.parametrize("protocol", ["serper", "tavily"])
def test_a_wrong_key_is_named_and_not_shown(
    protocol: str, web: Opened, search: StandInSearch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROLLOUT_SEARCH_KEY", "another-key-0123456789")
    settings.cache_clear()

    with pytest.raises(SearchUnavailableError, match=r"HTTP 40[13]: see ROLLOUT_SEARCH_KEY") as raised:
        web(search=protocol).search("x")

    assert "another-key" not in str(raised.value)


@pytest.mark.parametrize(
    ("protocol", "variable"),
    [("serper", "ROLLOUT_SEARCH_KEY"), ("tavily", "ROLLOUT_SEARCH_KEY"), ("searxng", "ROLLOUT_SEARCH_URL")],
)
def test_what_is_not_set_is_said_at_submission_and_at_the_start(
    protocol: str, variable: str, web: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(variable)
    settings.cache_clear()
    config = RunConfig.model_validate({"env_mode": "web", "web": {"search": protocol}})

    with pytest.raises(SearchUnavailableError, match=f"set {variable}$"):
        web(search=protocol)
    [sentence] = WebEnvironment.unmet(config, [ITEM])
    assert variable in sentence
