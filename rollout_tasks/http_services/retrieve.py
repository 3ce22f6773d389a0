"""An ASGI application that finds passages over Search-R1's protocol (`retrieval.search_r1`).

    POST /retrieve  {"queries": [...], "topk": 3, "return_scores": true}
                    -> {"result": [[{"document": {"id", "document_id", "title", "text", "contents"}, "score"}]]}
    GET  /health    -> {"status": "ok"}

Without `return_scores`, the lists hold the documents themselves, as at Search-R1. A refusal is ``{"detail": SENTENCE}``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from rollout_tasks.http_services.token_guard import TokenGuard
from rollout_tasks.http_services.tokens import ServiceTokens
from rollout_tasks.retrieval.errors import RetrievalError
from rollout_tasks.retrieval.index import Retriever
from rollout_tasks.retrieval.search_r1 import PATH, as_document
from rollout_tasks.strict_json import parse_json
from rollout_tasks.unicode_text import storable

DEFAULT_PASSAGES, MOST_PASSAGES = 3, 100
MOST_QUERIES = 4_096
"""Of one request: trainers send a whole batch."""
LONGEST_QUERY = 20_000
"""Characters."""
MOST_CHARACTERS = 400_000
"""Of all queries of one request together."""
LARGEST_BODY = 4 << 20
"""Bytes."""
MOST_MARKS = 100_000
"""Commas and opening brackets in a body: each may be an object that parsing makes, and the others wait for that."""
_PART_QUERIES, _PART_CHARACTERS = 256, 10_000
"""What is searched for at once; requests with more take turns with the others."""
_THREADS = 4
"""Searches at the same time."""
_MOST_WAITING = 64
"""Requests that are searched for, or wait for that; more are refused for now."""
_HEALTH = "/health"


class Refused(Exception):
    """A request that is not answered: its status and one sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a request asks for."""

    queries: list[str]
    topk: int
    return_scores: bool


class RetrieveService:
    """Answers with one retriever."""

    def __init__(self, retriever: Retriever) -> None:
        """Takes the retriever, which must be thread-safe."""
        self._retriever = retriever
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="retrieve")
        self._waiting = 0

    def application(self, tokens: ServiceTokens | None) -> ASGIApp:
        """Returns the application.

        Args:
            tokens: Who may use it; None: everybody.
        """
        routes = [Route(PATH, self._retrieve, methods=["POST"]), Route(_HEALTH, _health)]
        application = Starlette(routes=routes)
        return application if tokens is None else TokenGuard(application, tokens, free={_HEALTH})

    async def _retrieve(self, request: Request) -> Response:
        try:
            return JSONResponse({"result": await self._found(await _body(request))})
        except Refused as refused:
            return JSONResponse({"detail": str(refused)}, refused.status)
        except RetrievalError as error:
            return JSONResponse({"detail": str(error)}, 502)
        except ClientDisconnect:
            return Response(status_code=400)

    async def _found(self, body: bytes) -> list[list[Any]]:
        if self._waiting >= _MOST_WAITING:
            raise Refused(503, f"{_MOST_WAITING} requests are waiting already: try again later")
        self._waiting += 1
        try:
            loop = asyncio.get_running_loop()
            wanted = await loop.run_in_executor(self._threads, read_request, body)
            found: list[list[Any]] = []
            for queries in parts(wanted.queries):
                found += await loop.run_in_executor(self._threads, self._search, queries, wanted)
            return found
        finally:
            self._waiting -= 1

    def _search(self, queries: list[str], wanted: Wanted) -> list[list[Any]]:
        found = self._retriever.search(queries, wanted.topk)
        if wanted.return_scores:
            return [[{"document": as_document(hit.passage), "score": hit.score} for hit in hits] for hits in found]
        return [[as_document(hit.passage) for hit in hits] for hits in found]


async def _health(_request: Request) -> Response:
    return JSONResponse({"status": "ok"})


async def _body(request: Request) -> bytes:
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > LARGEST_BODY:
            raise Refused(413, f"the body is larger than {LARGEST_BODY >> 20} MiB")
    return bytes(body)


def read_request(body: bytes) -> Wanted:
    """Returns what a body asks for; fields that are not known are ignored.

    Raises:
        Refused: It is not a request of the protocol, or asks for too much.
    """
    if (marks := sum(map(body.count, (b",", b"[", b"{")))) > MOST_MARKS:
        raise Refused(422, f"the body may have at most {MOST_MARKS:,} commas and opening brackets, got {marks:,}")
    try:
        fields = parse_json(body.decode())
    except (ValueError, RecursionError) as error:
        raise Refused(400, f"the body is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise Refused(400, 'the body must be an object, as {"queries": ["..."], "topk": 3, "return_scores": true}')
    return Wanted(_queries(fields), _topk(fields), _return_scores(fields))


def _queries(fields: Mapping[str, Any]) -> list[str]:
    queries = fields.get("queries")
    if not isinstance(queries, list) or not all(isinstance(one, str) for one in queries):
        raise Refused(
            422, "queries must be a list of texts"
        )  # an empty one too: Search-R1 sends it where nobody searches
    if len(queries) > MOST_QUERIES:
        raise Refused(422, f"queries may be at most {MOST_QUERIES:,} in one request, got {len(queries):,}")
    if longest := [len(one) for one in queries if len(one) > LONGEST_QUERY]:
        raise Refused(422, f"a query may have at most {LONGEST_QUERY:,} characters, got {longest[0]:,}")
    if (characters := sum(map(len, queries))) > MOST_CHARACTERS:
        raise Refused(
            422, f"the queries of one request may have at most {MOST_CHARACTERS:,} characters, got {characters:,}"
        )
    return list(map(storable, queries))


def parts(queries: Sequence[str]) -> Iterator[list[str]]:
    """Yields the queries in lists that are searched for at once; nothing if there are none."""
    part: list[str] = []
    characters = 0
    for query in queries:
        if part and (len(part) == _PART_QUERIES or characters + len(query) > _PART_CHARACTERS):
            yield part
            part, characters = [], 0
        part.append(query)
        characters += len(query)
    if part:
        yield part


def _topk(fields: Mapping[str, Any]) -> int:
    topk = fields.get("topk")
    if topk is None or (type(topk) is int and topk == 0):  # as at Search-R1
        return DEFAULT_PASSAGES
    if type(topk) is not int or not 1 <= topk <= MOST_PASSAGES:
        raise Refused(422, f"topk must be a whole number from 1 to {MOST_PASSAGES}")
    return topk


def _return_scores(fields: Mapping[str, Any]) -> bool:
    wanted = fields.get("return_scores", False)
    if not isinstance(wanted, bool):
        raise Refused(422, "return_scores must be true or false")
    return wanted
