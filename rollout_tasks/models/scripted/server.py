"""The scripted model's HTTP server: Chat Completions, and the other endpoints of a served model."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import itertools
import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from benchmark.items import Item
from rollout_tasks.errors import UserError
from rollout_tasks.models.client import SESSION_HEADER
from rollout_tasks.models.scripted.fault_replies import error_response, faulty_response
from rollout_tasks.models.scripted.faults import FaultRule, Faults, parse_faults
from rollout_tasks.models.scripted.pointing import unseen, with_places
from rollout_tasks.models.scripted.policies import summary, verdict
from rollout_tasks.models.scripted.replies import MODEL_NAME, as_response, assistant_message, completion
from rollout_tasks.models.scripted.scripts import Scripts
from rollout_tasks.models.scripted.sessions import SessionId, Sessions, turn_of
from rollout_tasks.models.scripted.wait_turns import is_seen, waiting_message

MARK = ("X-Scripted-Model", "1")
"""The header that every response carries; the server adds it."""


class ScriptedModel:
    """One server's scripts, faults, counters and endpoints."""

    def __init__(
        self,
        items: Iterable[Item],
        scripts: Scripts,
        faults: Iterable[FaultRule] = (),
        *,
        seed: int = 0,
        latency: float = 0.0,
        api_key: str | None = None,
    ) -> None:
        """Prepares the endpoints.

        Args:
            items: The benchmark, for requests that contain only an item's question.
            scripts: The items' scripts.
            faults: The rules at the start.
            seed: For faults with a rate.
            latency: The least seconds that a good reply takes.
            api_key: If given, every endpoint but /health requires it as a bearer token.
        """
        self._sessions = Sessions(items)
        self._scripts = scripts
        self._seed = seed
        self._faults = Faults(list(faults), seed)
        self._latency = latency
        self._expected_authorization = f"Bearer {api_key}".encode() if api_key else None
        self._numbers = itertools.count(1)
        self._in_flight = 0
        self._served: Counter[int] = Counter()
        self._faulted: Counter[str] = Counter()

    def app(self) -> Starlette:
        """The ASGI application."""
        return Starlette(
            routes=[
                Route("/v1/chat/completions", self._chat, methods=["POST"]),
                Route("/v1/models", self._models),
                Route("/health", self._health),
                Route("/metrics", self._metrics),
                Route("/scripted/faults", self._set_faults, methods=["POST"]),
            ]
        )

    async def _chat(self, http_request: Request) -> Response:
        self._in_flight += 1
        try:
            response = await self._answer(http_request)
        finally:
            self._in_flight -= 1
        self._served[response.status_code] += 1
        return response

    async def _answer(self, http_request: Request) -> Response:
        if not self._authorized(http_request):
            return _wrong_key()
        request = _chat_request(await http_request.body())
        if request is None:
            return error_response(
                400, "invalid_request", "The body must be a JSON object whose messages are a list of objects."
            )
        messages = request["messages"]
        session = self._sessions.identify(http_request.headers.get(SESSION_HEADER), messages)
        message = self._message(session, request)
        if isinstance(message, str):
            return error_response(422, "no_script", message)
        body = completion(message, request, f"chatcmpl-{next(self._numbers)}")
        rule = self._faults.draw(session, turn_of(messages))
        if rule is not None:
            self._faulted[rule.kind] += 1
            return await faulty_response(rule, http_request, request, body)
        if self._latency:
            await asyncio.sleep(self._latency)
        return as_response(body, request)

    def _message(self, session: SessionId, request: dict[str, Any]) -> dict[str, Any] | str:
        """Returns the assistant message, or a sentence why there is none."""
        if session.role == "judge":
            return _verdict(request["messages"])
        if session.role == "environment":
            return _summary(request["messages"])
        return self._next_turn(session, request)

    def _next_turn(self, session: SessionId, request: dict[str, Any]) -> dict[str, Any] | str:
        """Returns the assistant message, or a sentence why there is none."""
        if session.item_id is None:
            return f"The scripted model cannot tell the item: no {SESSION_HEADER} header, and no known question."
        turns = self._scripts.find(session.item_id, session.index, session.attempt)
        if turns is None:
            return f"The scripted model has no script for item {session.item_id!r}."
        messages = request["messages"]
        number = turn_of(messages)
        if number >= len(turns):
            return f"The script of item {session.item_id!r} ends after turn {len(turns)}."
        turn = turns[number]
        if turn.when is not None and not is_seen(turn.when, messages):
            return waiting_message(turn.when, request, number)
        if missing := unseen(turn, messages):
            return waiting_message(missing, request, number)
        return assistant_message(with_places(turn, messages), number)

    async def _models(self, http_request: Request) -> Response:
        if not self._authorized(http_request):
            return _wrong_key()
        model = {"id": MODEL_NAME, "object": "model", "created": 0, "owned_by": "scripted"}
        return JSONResponse({"object": "list", "data": [model]})

    async def _health(self, http_request: Request) -> Response:
        del http_request
        return Response()

    async def _metrics(self, http_request: Request) -> Response:
        if not self._authorized(http_request):
            return _wrong_key()
        lines = ["# TYPE scripted_model_requests_total counter"]
        lines += [f'scripted_model_requests_total{{status="{s}"}} {n}' for s, n in sorted(self._served.items())]
        lines += ["# TYPE scripted_model_faults_total counter"]
        lines += [f'scripted_model_faults_total{{kind="{k}"}} {n}' for k, n in sorted(self._faulted.items())]
        lines += ["# TYPE scripted_model_requests_in_flight gauge"]
        lines += [f"scripted_model_requests_in_flight {self._in_flight}", ""]
        return PlainTextResponse("\n".join(lines), media_type="text/plain; version=0.0.4")

    async def _set_faults(self, http_request: Request) -> Response:
        """Replaces the rules by those in the body; an empty list ends all faults."""
        if http_request.client is None or not ipaddress.ip_address(http_request.client.host).is_loopback:
            return error_response(403, "forbidden", "Faults are set from this machine only.")
        if not self._authorized(http_request):
            return _wrong_key()
        try:
            rules = parse_faults(json.loads(await http_request.body()), "faults")
        except (ValueError, RecursionError):
            return error_response(400, "invalid_request", "The body must be a JSON list of rules.")
        except UserError as error:
            return error_response(400, "invalid_request", str(error))
        self._faults = Faults(rules, self._seed)
        return JSONResponse({"rules": len(rules)})

    def _authorized(self, http_request: Request) -> bool:
        if self._expected_authorization is None:
            return True
        given = http_request.headers.get("Authorization", "").encode()
        return hmac.compare_digest(given, self._expected_authorization)


def _chat_request(body: bytes) -> dict[str, Any] | None:
    """Returns the request's JSON; None if it is not a chat request."""
    try:
        request: Any = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(request, dict):
        return None
    messages = request.get("messages")
    return request if messages and isinstance(messages, list) and all(map(_is_message, messages)) else None


def _is_message(message: Any) -> bool:
    if not isinstance(message, dict):
        return False
    calls = message.get("tool_calls") or []
    return isinstance(calls, list) and all(isinstance(call, dict) for call in calls)


def _verdict(messages: list[dict[str, Any]]) -> dict[str, Any] | str:
    text = verdict(messages)
    if text is None:
        return "The judge's request lacks 'Reference answer:' or 'Answer to grade:'."
    return {"role": "assistant", "content": text}


def _summary(messages: list[dict[str, Any]]) -> dict[str, Any] | str:
    text = summary(messages)
    if text is None:
        return "The environment's request is none for a summary, with 'Goal:' and 'Page:'."
    return {"role": "assistant", "content": text}


def _wrong_key() -> Response:
    return error_response(401, "invalid_api_key", "The API key is missing or wrong.")
