"""From the bytes of a Chat Completions response to a `Reply`. Everything in them is checked; nothing is sent here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from rollout_tasks.models.base import Message, RawToolCall, Reply, Usage


class NotAReplyError(ValueError):
    """A response that says success and holds no reply; the message completes "the endpoint answered"."""


def parse_reply(body: str, usage_so_far: Usage) -> Reply:
    """Reads a response.

    Args:
        body: The response's JSON text.
        usage_so_far: Requests and seconds the turn took, to which the endpoint's token counts are added.

    Raises:
        NotAReplyError: It is not JSON, or has no choice, or its choice is not as the protocol says.
    """
    response = _json_object(body)
    choices = response.get("choices")
    if not isinstance(choices, list) or not choices:
        raise NotAReplyError(f"without choices: {body[:200]!r}")
    choice = choices[0]
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(message, dict):
        raise NotAReplyError(f"with a choice without a message: {body[:200]!r}")
    text = message.get("content")
    if text is None:
        text = message.get("refusal") or ""
    if not isinstance(text, str):
        raise NotAReplyError(f"with content that is no text: {str(text)[:200]!r}")
    calls = tuple(_tool_call(call) for call in _list(message.get("tool_calls")))
    return Reply(
        message=_for_history(text, calls),
        text=text,
        tool_calls=calls,
        finish_reason=str(choice.get("finish_reason") or ""),
        usage=usage_so_far + _usage(response.get("usage")),
        served_by=str(response.get("model") or ""),
        token_data=_token_data(response, choice),
    )


def _json_object(body: str) -> dict[str, Any]:
    try:
        response = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise NotAReplyError(f"with bad JSON: {body[:200]!r}") from error
    if not isinstance(response, dict):
        raise NotAReplyError(f"with JSON that is no object: {body[:200]!r}")
    return response


def _tool_call(call: Any) -> RawToolCall:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str) or not call.get("id"):
        raise NotAReplyError(f"with a tool call without id or name: {str(call)[:200]!r}")
    arguments = function.get("arguments")
    if not isinstance(arguments, str):
        arguments = "" if arguments is None else json.dumps(arguments)
    return RawToolCall(str(call["id"]), function["name"], arguments)


def _for_history(text: str, calls: tuple[RawToolCall, ...]) -> Message:
    """The message as every endpoint takes it back: fields that only some endpoints write are left out."""
    if not calls:
        return {"role": "assistant", "content": text}
    asked = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in calls
    ]
    return {"role": "assistant", "content": text or None, "tool_calls": asked}


def _usage(counts: Any) -> Usage:
    if not isinstance(counts, dict):
        return Usage()
    return Usage(_count(counts.get("prompt_tokens")), _count(counts.get("completion_tokens")))


def _count(value: Any) -> int:
    return value if isinstance(value, int) and value >= 0 else 0


def _token_data(response: Mapping[str, Any], choice: Mapping[str, Any]) -> dict[str, Any]:
    """Token ids and log-probabilities, under vLLM's names; empty when the endpoint gave none."""
    found: dict[str, Any] = {}
    prompt_ids = response.get("prompt_token_ids") or choice.get("prompt_token_ids")
    if prompt_ids:
        found["prompt_token_ids"] = prompt_ids
    if choice.get("token_ids"):
        found["token_ids"] = choice["token_ids"]
    logprobs = choice.get("logprobs")
    entries = _list(logprobs.get("content")) if isinstance(logprobs, dict) else []
    if entries and all(isinstance(entry, dict) for entry in entries):
        found["logprobs"] = [entry.get("logprob") for entry in entries]
        if "token_ids" not in found:
            found["tokens"] = [entry.get("token") for entry in entries]
    return found


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
