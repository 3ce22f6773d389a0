"""Searches the web through a service: one small class for each protocol, and one function that asks.

The service is the operator's choice and may be in a private network. Its address and key are in the settings of this
machine, and in no message.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import httpx

from benchmark.backoff import passing, pause, retry_after
from benchmark.deadline import Deadline, TooSlowError, keep_deadlines
from benchmark.http_client import plain_key
from rollout_tasks.environments.web.refusal import Refused
from rollout_tasks.settings import settings
from rollout_tasks.unicode_text import one_line, printable_line, storable
from vm_pool.egress.http_transport import PublicTransport, opened

MOST_RESULTS = 10
"""That are asked for; a run shows as many of them as it says."""
SECONDS = 30.0
"""For one query, with all tries."""
TRIES = 3
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 8.0
_LARGEST_ANSWER = 4 << 20
_LONGEST_TITLE, _LONGEST_SNIPPET, _LONGEST_URL = 300, 1_000, 2_000
_OTHER_SHAPE = (ValueError, LookupError, TypeError, AttributeError, RecursionError)
"""What reading an answer raises that is not what the protocol says."""
URL_VARIABLE, KEY_VARIABLE = "ROLLOUT_SEARCH_URL", "ROLLOUT_SEARCH_KEY"


class SearchUnavailableError(RuntimeError):
    """The search service cannot be used; the message says why, without its address and key."""


@dataclass(frozen=True, slots=True)
class Result:
    """One page that was found."""

    title: str
    url: str
    snippet: str


@dataclass(frozen=True, slots=True)
class Asked:
    """A request to a search service."""

    method: str
    path: str
    headers: Mapping[str, str]
    sent: Mapping[str, Any]
    """Other arguments of `httpx.Client.build_request`."""


class SearchProtocol(Protocol):
    """How one kind of service is asked, and answers."""

    default_url: ClassVar[str | None]
    """Where it is if nothing is set."""
    needs_key: ClassVar[bool]

    def request(self, query: str, key: str) -> Asked:
        """Returns the request for a query."""

    def rows(self, answer: Mapping[str, Any]) -> Any:
        """Returns an answer's list of results; raises `LookupError`, `TypeError` or `AttributeError` if it has none."""

    def result(self, row: Mapping[str, Any]) -> Result:
        """Returns one result of the list, whose texts may still be of any type; raises as `rows` if it is none."""


class Serper:
    """Google's results, from serper.dev and services that speak as it does."""

    default_url: ClassVar[str | None] = "https://google.serper.dev"
    needs_key: ClassVar[bool] = True

    def request(self, query: str, key: str) -> Asked:
        """See `SearchProtocol`."""
        return Asked("POST", "/search", {"X-API-KEY": key}, {"json": {"q": query, "num": MOST_RESULTS}})

    def rows(self, answer: Mapping[str, Any]) -> Any:
        """See `SearchProtocol`."""
        return answer.get("organic", [])

    def result(self, row: Mapping[str, Any]) -> Result:
        """See `SearchProtocol`."""
        date, snippet = _text(row.get("date")), _text(row.get("snippet"))
        return Result(_text(row.get("title")), _text(row["link"]), f"{date}: {snippet}" if date else snippet)


class SearXNG:
    """A SearXNG of one's own, whose settings allow the format ``json``."""

    default_url: ClassVar[str | None] = None
    needs_key: ClassVar[bool] = False

    def request(self, query: str, key: str) -> Asked:  # noqa: ARG002
        """See `SearchProtocol`; there is no key."""
        return Asked("GET", "/search", {}, {"params": {"q": query, "format": "json"}})

    def rows(self, answer: Mapping[str, Any]) -> Any:
        """See `SearchProtocol`."""
        return answer["results"]

    def result(self, row: Mapping[str, Any]) -> Result:
        """See `SearchProtocol`."""
        return Result(_text(row.get("title")), _text(row["url"]), _text(row.get("content")))


class Tavily:
    """Tavily's search."""

    default_url: ClassVar[str | None] = "https://api.tavily.com"
    needs_key: ClassVar[bool] = True

    def request(self, query: str, key: str) -> Asked:
        """See `SearchProtocol`."""
        return Asked(
            "POST",
            "/search",
            {"Authorization": f"Bearer {key}"},
            {"json": {"query": query, "max_results": MOST_RESULTS}},
        )

    def rows(self, answer: Mapping[str, Any]) -> Any:
        """See `SearchProtocol`."""
        return answer["results"]

    def result(self, row: Mapping[str, Any]) -> Result:
        """See `SearchProtocol`."""
        return Result(_text(row.get("title")), _text(row["url"]), _text(row.get("content")))


PROTOCOLS: Mapping[str, type[SearchProtocol]] = {"serper": Serper, "searxng": SearXNG, "tavily": Tavily}


class SearchService:
    """The service that this machine is set up for."""

    def __init__(self, name: str) -> None:
        """Asks nothing yet.

        Args:
            name: Of the protocol.

        Raises:
            SearchUnavailableError: Its address or key is not set, or cannot be used.
        """
        self._name = name
        self._protocol = PROTOCOLS[name]()
        url, key = settings().search_url, settings().search_key
        address = url.get_secret_value().strip() if url is not None else self._protocol.default_url
        if address is None:
            raise SearchUnavailableError(f"--web-search {name} needs the address of the service: set {URL_VARIABLE}")
        self._address = address.rstrip("/").removesuffix("/search")
        if key is None and self._protocol.needs_key:
            raise SearchUnavailableError(f"--web-search {name} needs a key: set {KEY_VARIABLE}")
        try:
            self._key = plain_key(key.get_secret_value()) if key is not None else ""
        except ValueError as error:
            raise SearchUnavailableError(f"{KEY_VARIABLE}: {error}") from error

    def results(self, query: str) -> list[Result]:
        """Returns what is found, the best first.

        Raises:
            Refused: The service does not take the query.
            SearchUnavailableError: It does not answer in all tries, refuses this machine, or answers something else.
        """
        deadline = Deadline(SECONDS)
        for tries in range(1, TRIES + 1):
            requested_pause = None
            try:
                return self._ask(query, deadline)
            except _PassingError as error:
                failure, requested_pause = str(error), error.retry_after
            except (TooSlowError, httpx.TimeoutException):
                raise SearchUnavailableError(f"the search service does not answer within {SECONDS:g} s") from None
            except (
                httpx.HTTPError,
                httpx.InvalidURL,
                UnicodeError,
                OSError,
            ) as error:  # whose text may contain the address
                failure = f"it cannot be asked ({type(error).__name__})"
            seconds = pause(tries, first=_FIRST_PAUSE, longest=_LONGEST_PAUSE, requested_pause=requested_pause)
            if tries == TRIES or seconds >= _left(deadline):
                break
            time.sleep(seconds)
        raise SearchUnavailableError(f"the search service ({self._name}) gives no results: {failure}")

    def _ask(self, query: str, deadline: Deadline) -> list[Result]:
        asked = self._protocol.request(query, self._key)
        url = httpx.URL(f"{self._address}{asked.path}")
        requests = iter([url])

        def only_once(_url: httpx.URL) -> None:
            if next(requests, None) is None:
                raise SearchUnavailableError(
                    "the search service sends this machine elsewhere (a redirect): set its real address"
                )

        with opened(
            asked.method,
            str(url),
            timeout=httpx.Timeout(deadline),
            before_each=only_once,
            transport=PublicTransport([_place(url)], made=keep_deadlines),
            headers=dict(asked.headers),
            **asked.sent,
        ) as response:
            self._check_status(response)
            body = bytearray()
            for piece in response.iter_raw():
                body += piece
                if len(body) > _LARGEST_ANSWER:
                    raise SearchUnavailableError(
                        f"the search service answers with more than {_LARGEST_ANSWER >> 20} MiB"
                    )
        return self._read(bytes(body))

    def _check_status(self, response: httpx.Response) -> None:
        status = response.status_code
        if response.is_success:
            return
        if passing(status):
            raise _PassingError(f"it answers HTTP {status}", retry_after(response.headers))
        if status in {401, 402, 403}:
            hint = "its settings must allow the format json" if self._name == "searxng" else f"see {KEY_VARIABLE}"
            raise SearchUnavailableError(
                f"the search service ({self._name}) refuses this machine, HTTP {status}: {hint}"
            )
        if status in {400, 422}:
            raise Refused(f"the search service does not take it (HTTP {status})")
        raise SearchUnavailableError(f"the search service ({self._name}) answers HTTP {status}: see {URL_VARIABLE}")

    def _read(self, body: bytes) -> list[Result]:
        try:
            rows = self._protocol.rows(json.loads(body))
        except _OTHER_SHAPE as error:
            raise self._not_spoken() from error
        if not isinstance(rows, list):
            raise self._not_spoken()
        found = list(self._results_in(rows))
        if rows and not found:
            raise self._not_spoken()
        return [_clean(one) for one in found[:MOST_RESULTS]]

    def _results_in(self, rows: Iterable[Any]) -> Iterator[Result]:
        """Yields the results that have an address; a service may list what has none, as an answer of its own."""
        for row in rows:
            try:
                result = self._protocol.result(row)
            except _OTHER_SHAPE:
                continue
            if result.url:
                yield result

    def _not_spoken(self) -> SearchUnavailableError:
        return SearchUnavailableError(
            f"the search service does not speak {self._name}, or no longer: see {URL_VARIABLE}"
        )


class _PassingError(Exception):
    """The service may answer a little later."""

    def __init__(self, message: str, seconds: float | None) -> None:
        super().__init__(message)
        self.retry_after = seconds


def recorded_result(title: str, url: str, snippet: str) -> Result:
    """Returns a result of a record as it may be shown; one that was cleaned stays as it is."""
    return Result(
        printable_line(title, _LONGEST_TITLE),
        printable_line(url, _LONGEST_URL),
        printable_line(snippet, _LONGEST_SNIPPET),
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _clean(result: Result) -> Result:
    return recorded_result(*(one_line(storable(text)) for text in (result.title, result.url, result.snippet)))


def _place(url: httpx.URL) -> str:
    """Returns a host with its port, as `PublicTransport` trusts it."""
    host = url.raw_host.decode("ascii").rstrip(".").lower()
    port = url.port or {"http": 80, "https": 443}[url.scheme]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _left(deadline: Deadline) -> float:
    try:
        return deadline.left()
    except TooSlowError:
        return 0.0
