"""An engine that asks a Chat Completions endpoint, or a model pool's replicas, with the project's one retry policy."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from benchmark.http_client import BAD_PROXY, UnusableProxy, plain_key, without_key, without_real_key
from benchmark.response_body import UnreadableBodyError
from rollout_tasks.model_config import ModelConfig
from rollout_tasks.models.apis import SAMPLING_FIELDS
from rollout_tasks.models.base import Usage
from rollout_tasks.models.client import LARGEST_RESPONSE, SESSION_HEADER
from rollout_tasks.models.gateway.completion_stream import EventLines, StreamedReply
from rollout_tasks.models.gateway.engine import (
    CONTEXT_OVERFLOW,
    EngineCall,
    EngineError,
    EngineReply,
    OnPiece,
    read_completion,
)
from rollout_tasks.models.parsing import NotAReplyError, json_object
from rollout_tasks.models.refusals import ModelEndpoint, read_refusal
from rollout_tasks.models.retries import KEY_IN_REPLY, FailedTry, decide, no_reply, too_slow, unreachable
from rollout_tasks.models.routes import OneEndpoint, Route, route_of
from rollout_tasks.models.served import Served

if TYPE_CHECKING:
    import httpx2

_ONE_LIMIT = {"max_completion_tokens": "max_tokens"}
"""A field that is fixed takes the place of an older one that means the same."""
_END = "[DONE]"
_END_SECONDS = 1.0
"""How long a stream may stay open after its end: then its connection is not used again."""


@dataclass(frozen=True, slots=True)
class _Failure:
    """A try that brought no reply."""

    failed: FailedTry
    status: int = 0
    code: str = ""


@dataclass(frozen=True, slots=True)
class _Connected:
    """An event loop's client, with the calls' address and common headers: making these takes as long as sending a call."""

    loop: asyncio.AbstractEventLoop
    client: httpx2.AsyncClient
    url: httpx2.URL
    headers: list[tuple[bytes, bytes]]


class EndpointEngine:
    """An `Engine` for one model; for any number of sessions of one gateway."""

    def __init__(self, config: ModelConfig, *, api_key: str = "", base_url: str | None = None) -> None:
        """Connects to nothing yet: the HTTP client is made at the first call, after any fork.

        Args:
            config: The run's model options. Those that it gives take precedence over what a client asks for.
            api_key: The endpoint's key; empty for none.
            base_url: The endpoint; default: that of `route_of`.

        Raises:
            ValueError: The key cannot be sent in a header.
        """
        self.model = config.name
        self._config = config
        self._key = plain_key(api_key)
        self._base_url = base_url
        self._connections: dict[str, _Connected] = {}
        """By base URL."""

    def prepared(self, client_request: Mapping[str, Any]) -> dict[str, Any]:
        """See `Engine`."""
        fixed = {name: value for name in SAMPLING_FIELDS if (value := getattr(self._config, name)) is not None}
        replaced = {_ONE_LIMIT[name] for name in fixed if name in _ONE_LIMIT}
        kept = {name: value for name, value in client_request.items() if name not in replaced}
        return {**kept, **self._config.extra_body, **fixed, "model": self.model}

    async def answer(self, call: EngineCall, on_piece: OnPiece | None) -> EngineReply:
        """See `Engine`."""
        request = dict(call.request)
        if on_piece is not None:
            request |= {"stream": True, "stream_options": {"include_usage": True}}
        body = json.dumps(request).encode()
        route = route_of(self._config, call.session_id, self._base_url)
        began, tries, passed_on = time.monotonic(), 0, False
        failed_replicas: set[str] = set()

        async def pass_on(piece: dict[str, Any]) -> None:
            nonlocal passed_on
            passed_on = True
            assert on_piece is not None  # noqa: S101 - else nothing is streamed
            await on_piece(piece)

        while True:
            tries += 1
            outcome = await self._routed(
                route, failed_replicas, call, body, pass_on if on_piece else None, tries, began
            )
            if isinstance(outcome, EngineReply):
                return outcome
            decision = decide(outcome.failed, tries, self._config.max_retries)
            if decision.delay is None or passed_on:
                failed = outcome.failed
                sentence = self._without_key(decision.sentence)
                raise EngineError(failed.failure_class, sentence, status=outcome.status, code=outcome.code, tries=tries)
            await asyncio.sleep(decision.delay)

    async def close(self) -> None:
        """See `Engine`."""
        connections, self._connections = self._connections, {}
        for connected in connections.values():
            if connected.loop is asyncio.get_running_loop():
                await connected.client.aclose()

    async def _routed(
        self,
        route: Route,
        failed: set[str],
        call: EngineCall,
        body: bytes,
        on_piece: OnPiece | None,
        tries: int,
        began: float,
    ) -> EngineReply | _Failure:
        """Makes a try where the route leads; a replica that has failed is added to `failed`."""
        if isinstance(route, OneEndpoint):
            return await self._try(route.base_url, call, body, on_piece, tries, began)
        picking = asyncio.ensure_future(asyncio.to_thread(route.begin, failed))
        try:
            destination = await asyncio.shield(picking)
        except asyncio.CancelledError:
            picked = await picking
            if not isinstance(picked, FailedTry):
                await asyncio.to_thread(route.end, picked)
            raise
        if isinstance(destination, FailedTry):
            return _Failure(destination)
        try:
            outcome = await self._try(destination.base_url, call, body, on_piece, tries, began)
        finally:
            served = await asyncio.shield(asyncio.to_thread(route.end, destination))
        if isinstance(outcome, EngineReply):
            if outcome.served.spans:  # what the endpoint itself says of its weights
                return replace(outcome, served=replace(outcome.served, replica=served.replica))
            return replace(outcome, served=served)
        if outcome.failed.elsewhere:
            failed.add(destination.replica_id)
            if await asyncio.to_thread(route.another, failed):
                return replace(outcome, failed=outcome.failed.at_another())
        return outcome

    async def _try(
        self, base_url: str, call: EngineCall, body: bytes, on_piece: OnPiece | None, tries: int, began: float
    ) -> EngineReply | _Failure:
        import httpx2  # what the openai package sends with

        text, endpoint = "", ModelEndpoint(self._config.name, base_url)
        try:
            async with asyncio.timeout(self._config.timeout) as clock:
                response = await self._send(base_url, call, body)
                try:
                    text = await self._read(response, min(call.reply_bytes, LARGEST_RESPONSE), on_piece, clock)
                finally:
                    await response.aclose()
            if not response.is_success:
                return self._refused(endpoint, response, text)
            usage = Usage(requests=tries, seconds=time.monotonic() - began)
            return read_completion(without_real_key(text, self._key), usage, Served())
        except TimeoutError:
            return _Failure(too_slow(endpoint, self._config.timeout))
        except httpx2.HTTPError as error:
            return _Failure(unreachable(endpoint, f"{type(error).__name__}: {error}"))
        except (UnusableProxy, httpx2.InvalidURL):  # the error's text may contain a proxy's password
            return _Failure(unreachable(endpoint, BAD_PROXY))
        except NotAReplyError as error:
            why = self._why_no_reply(text) if text else str(error)
            return _Failure(no_reply(endpoint, why))
        except UnreadableBodyError as error:
            return _Failure(no_reply(endpoint, error))

    async def _send(self, base_url: str, call: EngineCall, body: bytes) -> httpx2.Response:
        import httpx2  # the openai package's client: slow to import, and many runs ask no model

        connected = self._connected(base_url)
        request = httpx2.Request(
            "POST",
            connected.url,
            headers=[
                *connected.headers,
                (SESSION_HEADER.encode(), call.session_id.encode()),
                (b"Content-Length", b"%d" % len(body)),
            ],
            stream=httpx2.ByteStream(body),
            extensions={"timeout": {}},  # none of the client's own
        )
        return await connected.client.send(request, stream=True, follow_redirects=False)

    async def _read(
        self, response: httpx2.Response, largest: int, on_piece: OnPiece | None, clock: asyncio.Timeout
    ) -> str:
        """Returns a response's body; of a streamed reply, passes on the pieces and returns what they come to."""
        encoding = response.headers.get("content-encoding", "identity").strip().lower()
        if encoding not in {"", "identity"}:
            raise UnreadableBodyError("in an encoding that was not asked for")
        if on_piece is not None and response.is_success and _is_stream(response):
            async with aclosing(self._timed(_parts(response, largest), clock)) as parts:
                return await _read_stream(parts, on_piece, self._without_key)
        return b"".join([part async for part in _parts(response, largest)]).decode("utf-8-sig", "replace")

    async def _timed(self, parts: AsyncGenerator[bytes], clock: asyncio.Timeout) -> AsyncGenerator[bytes]:
        """Gives each part of a stream the time of a call; the time that the client takes for a part does not count."""
        now = asyncio.get_running_loop().time
        async for part in parts:
            clock.reschedule(None)
            yield part
            clock.reschedule(now() + self._config.timeout)

    def _connected(self, base_url: str) -> _Connected:
        """Returns the client of this event loop, which is made now if there is none.

        Raises:
            UnusableProxy: A proxy's address is wrong, or of a kind that is not known here.
        """
        import httpx2  # as above

        loop = asyncio.get_running_loop()
        known = self._connections.get(base_url)
        if known is None or known.loop is not loop:
            headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
            if self._key:
                headers["Authorization"] = f"Bearer {self._key}"
            limits = httpx2.Limits(max_connections=None, max_keepalive_connections=64)
            try:
                client = httpx2.AsyncClient(headers=headers, limits=limits)
            except (ImportError, ValueError, httpx2.InvalidURL):
                raise UnusableProxy from None
            sample = client.build_request("POST", f"{base_url}/chat/completions")
            del sample.headers["Content-Length"]
            known = self._connections[base_url] = _Connected(loop, client, sample.url, sample.headers.raw)
        return known

    def _refused(self, endpoint: ModelEndpoint, response: httpx2.Response, text: str) -> _Failure:
        status = response.status_code
        refusal = read_refusal(endpoint, status, response.reason_phrase, response.headers, text, self._key)
        if refusal.context_overflow:
            return _Failure(refusal.failed, status, CONTEXT_OVERFLOW)
        is_request_error = 400 <= status < 500 and not refusal.failed.retried and status not in {401, 403, 407}
        return _Failure(refusal.failed, status if is_request_error else 0)

    def _why_no_reply(self, text: str) -> str:
        """Returns what is wrong with a text that is not a reply; what is quoted of it has no part of the key."""
        try:
            read_completion(self._without_key(text), Usage(), Served())
        except NotAReplyError as error:
            return str(error)
        return KEY_IN_REPLY

    def _without_key(self, sentence: str) -> str:
        return without_key(sentence, self._key)


def _is_stream(response: httpx2.Response) -> bool:
    return response.headers.get("content-type", "").startswith("text/event-stream")


async def _parts(response: httpx2.Response, largest: int) -> AsyncGenerator[bytes]:
    """Yields a body of no more than `largest` bytes."""
    size = 0
    async for part in response.aiter_raw():
        size += len(part)
        if size > largest:
            raise UnreadableBodyError(f"with more than {largest:,} bytes")
        yield part


async def _read_stream(parts: AsyncGenerator[bytes], on_piece: OnPiece, without_key: Callable[[str], str]) -> str:
    """Passes on the pieces of a streamed reply; returns the whole one as text.

    Args:
        parts: The response's body.
        on_piece: Gets each piece.
        without_key: Takes the key out of what errors quote.

    Raises:
        NotAReplyError: It is not a stream of pieces, or ends too early.
    """
    events, reply = EventLines(), StreamedReply()
    async for part in parts:
        for data in events.feed(part):
            if data == _END:
                await _read_to_end(parts)
                return reply.body()
            try:
                piece = _added(reply, data)
            except NotAReplyError:
                _added(StreamedReply(), without_key(data))
                raise NotAReplyError(KEY_IN_REPLY) from None
            await on_piece(piece)
    return reply.body()


async def _read_to_end(parts: AsyncGenerator[bytes]) -> None:
    """Reads what follows the end of a stream, so that its connection can be used again."""
    import httpx2  # as above

    with suppress(TimeoutError, httpx2.HTTPError, UnreadableBodyError):
        async with asyncio.timeout(_END_SECONDS):
            async for _ in parts:
                continue


def _added(reply: StreamedReply, data: str) -> dict[str, Any]:
    """Adds a piece to a reply, and returns it."""
    piece = _piece(data)
    reply.add(piece)
    return piece


def _piece(data: str) -> dict[str, Any]:
    piece = json_object(data)
    if piece.get("error"):
        raise NotAReplyError(f"with an error in its stream: {str(piece['error'])[:500]}")
    return piece
