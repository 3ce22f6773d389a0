"""Makes the faulty replies, and errors in the form that OpenAI's clients expect."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from rollout_tasks.models.scripted.faults import FaultKind, FaultRule
from rollout_tasks.models.scripted.replies import as_response, completion, tool_call
from rollout_tasks.models.scripted.sessions import FAULTY_CALL_PREFIX

_REFUSALS: dict[FaultKind, tuple[int, str, str]] = {
    FaultKind.RATE_LIMIT: (429, "rate_limit_exceeded", "Too many requests (a fault asked for)."),
    FaultKind.SERVER_ERROR: (500, "server_error", "The server failed (a fault asked for)."),
    FaultKind.UNAVAILABLE: (503, "unavailable", "The server is overloaded (a fault asked for)."),
    FaultKind.UNAUTHORIZED: (401, "invalid_api_key", "The API key is wrong (a fault asked for)."),
    FaultKind.NOT_FOUND: (404, "model_not_found", "The model does not exist (a fault asked for)."),
    FaultKind.CONTEXT_OVERFLOW: (
        400,
        "context_length_exceeded",
        "This model's maximum context length is exceeded (a fault asked for).",
    ),
    FaultKind.HANG: (504, "timeout", "The server took too long (a fault asked for)."),
}
_MADE_UP_CALLS = {
    FaultKind.MALFORMED_ARGUMENTS: ("calculator", '{"expressions": ["1 + 1"'),
    FaultKind.UNKNOWN_TOOL: ("no_such_tool", "{}"),
}


def error_response(status: int, code: str, message: str, *, retry_after: float | None = None) -> JSONResponse:
    """Returns an error in the OpenAI API's form; `retry_after` is in seconds."""
    kind = "server_error" if status >= 500 else "invalid_request_error"
    headers = {} if retry_after is None else {"Retry-After": f"{retry_after:g}"}
    body = {"error": {"message": message, "type": kind, "param": None, "code": code}}
    return JSONResponse(body, status_code=status, headers=headers)


async def faulty_response(
    rule: FaultRule, http_request: Request, request: Mapping[str, Any], good: dict[str, Any]
) -> Response:
    """Makes the faulty reply that a rule asks for.

    Args:
        rule: The fault.
        http_request: The request; a wait ends when its client disconnects.
        request: Its JSON body.
        good: The body of the good reply.
    """
    if rule.wait:
        await _client_gone(http_request, rule.wait)
    if rule.kind in _REFUSALS:
        return error_response(*_REFUSALS[rule.kind], retry_after=rule.retry_after_seconds)
    if rule.kind in _MADE_UP_CALLS:
        call = tool_call(f"{FAULTY_CALL_PREFIX}{good['id']}", *_MADE_UP_CALLS[rule.kind])
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        return as_response(completion(message, request, good["id"]), request)
    return _damaged(rule.kind, as_response(good, request), good)


def _damaged(kind: FaultKind, whole: Response, good: Mapping[str, Any]) -> Response:
    match kind:
        case FaultKind.DISCONNECT:
            return CutResponse(bytes(whole.body), media_type=whole.media_type)
        case FaultKind.BAD_JSON:
            return Response(whole.body[: len(whole.body) // 2], media_type=whole.media_type)
        case FaultKind.EMPTY_CHOICES:
            return JSONResponse({**good, "choices": []})
        case FaultKind.MISSING_CHOICES:
            return JSONResponse({name: value for name, value in good.items() if name != "choices"})
    return whole


class CutResponse(Response):
    """Announces the whole length and sends half of the body; the server then closes the connection."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends it."""
        del scope, receive
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        half = bytes(self.body[: len(self.body) // 2])
        await send({"type": "http.response.body", "body": half, "more_body": True})


async def _client_gone(request: Request, seconds: float) -> None:
    """Waits until the client has disconnected, for `seconds` at most."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while (await request.receive())["type"] != "http.disconnect":
                continue
