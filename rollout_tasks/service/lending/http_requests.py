"""Requests and replies of the service: bounded bodies of strict JSON in, JSON out, and one sentence for whatever goes wrong."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import Response

from benchmark.entries import too_deep
from rollout_tasks.http_services.token_guard import tokens_of
from rollout_tasks.http_services.token_holders import TokenHolder, TokenHolders
from rollout_tasks.service.lending.refusal import Refusal
from rollout_tasks.strict_json import parse_json
from rollout_tasks.unicode_text import one_line
from rollout_tasks.validation_messages import clause, location_of

logger = logging.getLogger(__name__)

LARGEST_BODY = 1 << 20
"""Bytes."""
_READ_TO_END = 16 << 20
"""Bytes of a body that is too large but read to its end: many clients look for a reply only then."""
_SMALL = 1 << 16
"""Bytes of a body that any number of requests may have; what is larger counts as large while it is read."""
_MOST_LARGE = 64
_MOST_LARGE_OF_OWNER = 16
"""So that one client's slow ones leave some for others."""
_large_bodies = threading.BoundedSemaphore(_MOST_LARGE)
_large_of_owner: Counter[str] = Counter()
BODY_SECONDS = 30.0
_LONGEST_SENTENCE = 2_000
_MOST_VALUES = 20_000
"""Of one body: a megabyte can have half a million, and while they are made and checked nobody else is answered."""
_STRING = re.compile(rb'(?s)"[^"\\]*+(?:\\.[^"\\]*+)*+"?')
"""The last quote may be missing: otherwise each quote of a text without one would be looked at as a beginning."""
_NESTED = "it is nested too deeply"
_CLIENT_GONE = 499
"""What is noted where nobody reads the reply any more."""
Model = TypeVar("Model", bound=BaseModel)
Handler = Callable[[Request], Awaitable[Response]]


def json_reply(status: int, body: BaseModel | Mapping[str, Any] | list[Any] | bytes, **headers: str) -> Response:
    """Returns a reply with JSON, of which every character is ASCII: text may hold what UTF-8 cannot.

    Args:
        status: Its status.
        body: A message, JSON values, or JSON as bytes.
        headers: More headers; underscores stand for dashes.
    """
    if isinstance(body, BaseModel):
        body = body.model_dump(mode="json")
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Response(content, status, named, media_type="application/json")


def problem(refusal: Refusal) -> Response:
    """Returns the reply that says why a call was refused."""
    return json_reply(refusal.status, problem_values(refusal), **headers_of(refusal))


def problem_values(refusal: Refusal) -> dict[str, str]:
    """Returns what a refusal's reply says, as JSON values: one bounded sentence, and why the lease ended if that is known."""
    values = {"detail": one_line(refusal.sentence[:_LONGEST_SENTENCE])}
    if refusal.failure_class is not None:
        values["failure_class"] = str(refusal.failure_class)
    return values


def headers_of(refusal: Refusal) -> dict[str, str]:
    """Returns what the headers of a refusal's reply say, for `json_reply`."""
    if refusal.status == 401:
        return {"WWW_Authenticate": "Bearer"}
    # What is left of a body that nobody wants would otherwise be read to its end.
    return {"Connection": "close"} if refusal.status in (408, 413) else {}


def answering(handler: Handler, shown: Callable[[Refusal], Response] = problem) -> Handler:
    """Returns a handler that answers always, with a sentence where the call was refused or failed.

    Args:
        handler: Answers requests; may raise.
        shown: Makes the reply of a refusal.
    """

    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except Refusal as refusal:
            return shown(refusal)
        except ClientDisconnect:
            return Response(status_code=_CLIENT_GONE)
        except Exception:  # answers for the call: a client must not hang, or be told a traceback
            logger.exception("%s %s failed", request.method, request.url.path)
            return shown(Refusal(503, "the service failed to answer; its log says why"))

    return answer


async def when_http_refuses(_request: Request, error: Exception) -> Response:
    """Answers what no handler takes: unknown paths and methods."""
    assert isinstance(error, HTTPException)  # noqa: S101 - it is registered for these alone
    allowed = dict(error.headers or {})
    sentence = {404: "there is nothing at this path", 405: "this path does not take this method"}.get(error.status_code)
    return json_reply(error.status_code, {"detail": sentence or error.detail}, **allowed)


def holder_of(connection: HTTPConnection, holders: TokenHolders) -> TokenHolder:
    """Returns whose request it is, by the token in its headers.

    Raises:
        Refusal: It has no token (401), or an unknown one (403).
    """
    tokens = [token for token in tokens_of(connection.scope) if token]
    for token in tokens:
        if (holder := holders.holder(token)) is not None:
            return holder
    if not tokens:
        raise Refusal(401, "a token is needed: Authorization: Bearer TOKEN")
    raise Refusal(403, "the token is not known here, or was revoked")


async def body_of(
    request: Request, owner: str = "", *, largest: int = LARGEST_BODY, seconds: float = BODY_SECONDS
) -> bytes:
    """Returns a request's body.

    Args:
        request: The request.
        owner: Whose it is, as far as that is known.
        largest: The most bytes that it may have.
        seconds: How long it may take to come.

    Raises:
        Refusal: It is too large, whatever its headers say of its length, or takes too long to come.
    """
    too_large = Refusal(413, f"the body has more than {largest:,} bytes")
    if int(request.headers.get("content-length", "0")) > _READ_TO_END:  # the server takes none that is not a number
        raise too_large
    body, length = bytearray(), 0
    with ExitStack() as large:
        try:
            async with asyncio.timeout(seconds):
                async for piece in request.stream():
                    if length <= _SMALL < min(length + len(piece), largest):  # no more than that is kept
                        large.enter_context(_large_body(owner))
                    length += len(piece)
                    if length > _READ_TO_END:
                        raise too_large
                    if length <= largest:
                        body += piece
        except TimeoutError as error:
            raise Refusal(408, f"the body did not come within {seconds:g} s") from error
    if length > largest:
        raise too_large
    return bytes(body)


@contextmanager
def _large_body(owner: str) -> Iterator[None]:
    """Counts a large body that is being read.

    Raises:
        Refusal: There are many already (503), or many of its owner (429).
    """
    if _large_of_owner[owner] >= _MOST_LARGE_OF_OWNER:
        raise Refusal(429, f"{_MOST_LARGE_OF_OWNER} of your large bodies are being read, the most: wait for one")
    if not _large_bodies.acquire(blocking=False):
        raise Refusal(503, f"{_MOST_LARGE} large bodies are being read already: try again")
    _large_of_owner[owner] += 1
    try:
        yield
    finally:
        _large_bodies.release()
        _large_of_owner[owner] -= 1
        if not _large_of_owner[owner]:
            del _large_of_owner[owner]


def object_in(body: bytes) -> dict[str, Any]:
    """Returns the JSON object in a body; an empty one if there is no body.

    Raises:
        Refusal: It is no JSON (400), or no object, or has too many values (422).
    """
    if not body.strip():
        return {}
    if _values_in(body) > _MOST_VALUES:
        raise Refusal(422, f"the body has more than {_MOST_VALUES:,} values")
    try:
        values = parse_json(body.decode())
    except UnicodeDecodeError as error:
        raise Refusal(400, f"the body is not UTF-8 at byte {error.start}") from error
    except json.JSONDecodeError as error:
        raise Refusal(400, f"the body is not JSON at line {error.lineno} column {error.colno}: {error.msg}") from error
    except ValueError as error:
        raise Refusal(400, f"the body is not JSON: {error}") from error
    except RecursionError as error:
        raise Refusal(400, f"the body cannot be read: {_NESTED}") from error
    if not isinstance(values, dict):
        raise Refusal(422, "the body must be a JSON object")
    if deep := too_deep(values):
        raise Refusal(422, f"the body {deep}")
    return values


def _values_in(body: bytes) -> int:
    """Returns how many values a body of JSON has at most, without parsing it; it stops counting strings at some time."""
    marks = (b",", b"[", b"{")
    if (most := 1 + sum(map(body.count, marks))) <= _MOST_VALUES:
        return most
    outside = _STRING.sub(b"", body, count=2 * _MOST_VALUES + 1)  # each value has one name at most
    return 1 + sum(map(outside.count, marks))


def read_as(kind: type[Model], values: Mapping[str, Any]) -> Model:
    """Returns what a client sent as a message.

    Raises:
        Refusal: A field is missing, unknown or wrong (422).
    """
    try:
        return kind.model_validate(dict(values))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, location_of(first, values))) or ".".join(map(str, first["loc"])) or "the body"
        raise Refusal(422, f"{place[:100]}: {clause(first, tuple(kind.model_fields))}") from error
    except RecursionError as error:
        raise Refusal(422, _NESTED) from error


async def message_of(request: Request, kind: type[Model], owner: str) -> Model:
    """Returns a request's body as a message.

    Args:
        request: The request.
        kind: The message.
        owner: Whose request it is.

    Raises:
        Refusal: As of `body_of`, `object_in` and `read_as`.
    """
    return read_as(kind, object_in(await body_of(request, owner)))
