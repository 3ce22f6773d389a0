"""Good replies in the form of Chat Completions: whole or streamed, with usage and, on request, token data."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from starlette.responses import JSONResponse, Response

from rollout_tasks.models.scripted.scripts import Turn
from rollout_tasks.models.scripted.tokens import Token, completion_pieces, count, prompt_pieces, tokenise

MODEL_NAME = "scripted"


def assistant_message(turn: Turn, number: int) -> dict[str, Any]:
    """Returns a script's turn as an assistant message; `number` makes the ids of its calls unique in a conversation."""
    message: dict[str, Any] = {"role": "assistant", "content": turn.text or None}
    if turn.tool_calls:
        message["tool_calls"] = [
            tool_call(f"call_{number}_{position}", call.name, json.dumps(call.arguments))
            for position, call in enumerate(turn.tool_calls)
        ]
    return message


def tool_call(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    """Returns a tool call in its form in messages; `arguments` should be JSON text."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def completion(message: dict[str, Any], request: Mapping[str, Any], reply_id: str) -> dict[str, Any]:
    """Returns the body of a whole reply.

    Args:
        message: The assistant message.
        request: The request; its ``logprobs`` and ``return_token_ids`` are honoured.
        reply_id: The reply's id.
    """
    choice: dict[str, Any] = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish(message)}
    body: dict[str, Any] = {
        "id": reply_id,
        "object": "chat.completion",
        "created": int(time.time()),
        "model": MODEL_NAME,
        "choices": [choice],
        "usage": _usage(message, request),
    }
    if request.get("logprobs") or request.get("return_token_ids"):
        tokens = tokenise(completion_pieces(message))
        if request.get("logprobs"):
            choice["logprobs"] = {"content": [_logprob(token) for token in tokens], "refusal": None}
        if request.get("return_token_ids"):
            choice["token_ids"] = [token.id for token in tokens]
            body["prompt_token_ids"] = [token.id for token in tokenise(prompt_pieces(request["messages"]))]
    return body


def as_response(body: dict[str, Any], request: Mapping[str, Any]) -> Response:
    """Returns the HTTP response with a whole reply, streamed if the request asks for it."""
    if not request.get("stream"):
        return JSONResponse(body)
    options = request.get("stream_options")
    events = _events(body, with_usage=isinstance(options, dict) and bool(options.get("include_usage")))
    text = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
    return Response(text, media_type="text/event-stream")


def _events(body: dict[str, Any], *, with_usage: bool) -> list[dict[str, Any]]:
    """Yields the reply as a stream's chunks: its content, why it ended, its usage."""
    choice = body["choices"][0]
    delta = dict(choice["message"])
    if calls := delta.get("tool_calls"):
        delta["tool_calls"] = [{"index": position, **call} for position, call in enumerate(calls)]
    said = {**choice, "delta": delta, "finish_reason": None}
    del said["message"]
    ended = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": choice["finish_reason"]}
    head = {**body, "object": "chat.completion.chunk"}
    del head["usage"]
    events = [{**head, "choices": [said]}, {**head, "choices": [ended]}]
    return [*events, {**head, "choices": [], "usage": body["usage"]}] if with_usage else events


def _finish(message: Mapping[str, Any]) -> str:
    return "tool_calls" if message.get("tool_calls") else "stop"


def _usage(message: Mapping[str, Any], request: Mapping[str, Any]) -> dict[str, int]:
    prompt = count(prompt_pieces(request["messages"]))
    said = count(completion_pieces(message))
    return {"prompt_tokens": prompt, "completion_tokens": said, "total_tokens": prompt + said}


def _logprob(token: Token) -> dict[str, Any]:
    raw = list(token.text.encode(errors="surrogatepass"))
    return {"token": token.text, "logprob": token.logprob, "bytes": raw, "top_logprobs": []}
