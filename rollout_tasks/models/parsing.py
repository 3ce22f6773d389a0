"""Makes a `Reply` from the text of a Chat Completions response, and checks everything in it. Sends nothing."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from benchmark.chat_content import ChatContent, read_content
from rollout_tasks.models.base import REFUSED, THINKING_FIELDS, THINKING_IN_PARTS, Message, RawToolCall, Reply, Usage
from rollout_tasks.unicode_text import storable, storable_json

MOST_TOOL_CALLS = 128
"""In one reply."""
MOST_TOKENS = 10**9
"""The most in a request or a reply; a higher count is ignored."""
_NAME_CHARACTERS = 200
"""The longest name kept of those that only the endpoint gives: the model's, and why a reply ended."""


_ID_CHARACTERS = 100_000
"""The longest id kept of a call: gateways put Gemini's signature of its thinking into it."""
_EXTRA_CHARACTERS = 1_000_000
"""The most of a call's `extra_content`, as JSON."""
_DEEPEST_EXTRA = 32


class NotAReplyError(ValueError):
    """A successful response without a reply; the message completes "the endpoint answered"."""


def parse_reply(body: str, usage_so_far: Usage) -> Reply:
    """Reads a response.

    Args:
        body: The response's JSON text.
        usage_so_far: Requests and seconds the turn took, to which the endpoint's token counts are added.

    Raises:
        NotAReplyError: It is not JSON, or has no choice, or its choice does not follow the protocol.
    """
    response = json_object(body)
    choices = response.get("choices")
    if not isinstance(choices, list) or not choices:
        raise NotAReplyError(f"without choices: {body[:200]!r}")
    choice = choices[0]
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(message, dict):
        raise NotAReplyError(f"with a choice without a message: {body[:200]!r}")
    said = _content(message.get("content"))
    refuses = bool(message.get("refusal")) and not said.text.strip()
    text = storable(_content(message["refusal"]).text if refuses else said.text)
    listed_calls = _list(message.get("tool_calls"))
    if len(listed_calls) > MOST_TOOL_CALLS:
        raise NotAReplyError(f"with {len(listed_calls)} tool calls, more than the {MOST_TOOL_CALLS} that are taken")
    calls = tuple(_tool_call(call) for call in listed_calls)
    return Reply(
        message=_for_history(text, calls),
        text=text,
        tool_calls=calls,
        finish_reason=REFUSED if refuses else plain_name(choice.get("finish_reason")),
        usage=usage_so_far + _usage(response.get("usage")),
        served_by=plain_name(response.get("model")),
        token_data=_token_data(response, choice),
        thinking=_thinking(message, said.thinking),
    )


def _content(content: Any) -> ChatContent:
    try:
        return read_content("" if content is None else content)
    except ValueError as error:
        raise NotAReplyError(f"with content that is not text: {str(content)[:200]!r}") from error


def _thinking(message: Mapping[str, Any], in_parts: str) -> dict[str, str]:
    found = {name: storable(message[name]) for name in THINKING_FIELDS if isinstance(message.get(name), str)}
    return {THINKING_IN_PARTS: storable(in_parts)} if in_parts and not found else found


def json_object(body: str) -> dict[str, Any]:
    """Returns a response's object. Numbers that are not finite are None: they could neither be sent back nor stored.

    Raises:
        NotAReplyError: It is something else.
    """
    try:
        response = json.loads(body, parse_constant=lambda _name: None, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise NotAReplyError(f"with bad JSON: {body[:200]!r}") from error
    if not isinstance(response, dict):
        raise NotAReplyError(f"with JSON that is not an object: {body[:200]!r}")
    return response


def _finite(text: str) -> float | None:
    number = float(text)
    return number if math.isfinite(number) else None


def _tool_call(call: Any) -> RawToolCall:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str) or not plain_name(call.get("id")):
        raise NotAReplyError(f"with a tool call without id or name: {str(call)[:200]!r}")
    arguments = function.get("arguments")
    if not isinstance(arguments, str):
        arguments = "" if arguments is None else json.dumps(arguments)
    call_id = plain_name(call["id"], _ID_CHARACTERS)
    return RawToolCall(call_id, storable(function["name"]), storable(arguments), _extra(call.get("extra_content")))


def _extra(content: Any) -> dict[str, Any]:
    """Returns a call's `extra_content`. It is of use only whole, so too much is refused and not cut."""
    if not isinstance(content, dict):
        return {}
    try:
        extra: dict[str, Any] = storable_json(content, _DEEPEST_EXTRA)
    except ValueError as error:
        raise NotAReplyError("with a tool call whose extra_content is nested too deeply") from error
    if len(json.dumps(extra)) > _EXTRA_CHARACTERS:
        raise NotAReplyError(f"with a tool call whose extra_content is longer than {_EXTRA_CHARACTERS} characters")
    return extra


def plain_name(value: Any, most: int = _NAME_CHARACTERS) -> str:
    """Returns a name that an endpoint gives, cut and storable; empty if it is not one."""
    return storable(str(value)[:most]) if value and isinstance(value, str | int) else ""


def _for_history(text: str, calls: tuple[RawToolCall, ...]) -> Message:
    """Returns the message in a form that every endpoint accepts: without fields that only some endpoints write, but for what they
    want back with calls.
    """
    if not calls:
        return {"role": "assistant", "content": text}
    return {"role": "assistant", "content": text or None, "tool_calls": [*map(_call_for_history, calls)]}


def _call_for_history(call: RawToolCall) -> dict[str, Any]:
    call_fields = {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
    return {**call_fields, "extra_content": dict(call.extra_content)} if call.extra_content else call_fields


def _usage(counts: Any) -> Usage:
    if not isinstance(counts, dict):
        return Usage()
    return Usage(token_count(counts.get("prompt_tokens")), token_count(counts.get("completion_tokens")))


def token_count(value: Any) -> int:
    """Returns a number of tokens that an endpoint gives; 0 if it cannot be one."""
    return value if type(value) is int and 0 <= value <= MOST_TOKENS else 0


def _token_data(response: Mapping[str, Any], choice: Mapping[str, Any]) -> dict[str, Any]:
    """Returns token ids and log-probabilities under vLLM's names; empty if the endpoint gave none."""
    found: dict[str, Any] = {}
    if prompt_ids := _token_ids(response.get("prompt_token_ids") or choice.get("prompt_token_ids")):
        found["prompt_token_ids"] = prompt_ids
    if ids := _token_ids(choice.get("token_ids")):
        found["token_ids"] = ids
    logprobs = choice.get("logprobs")
    entries = _list(logprobs.get("content")) if isinstance(logprobs, dict) else []
    if entries and all(isinstance(entry, dict) for entry in entries):
        found["logprobs"] = [_logprob(entry.get("logprob")) for entry in entries]
        if "token_ids" not in found:
            found["tokens"] = [storable(str(entry.get("token"))) for entry in entries]
    return found


def _token_ids(value: Any) -> list[int]:
    """Returns the token ids; none if anything else is among them."""
    ids = _list(value)
    return ids if all(type(one) is int and 0 <= one <= MOST_TOKENS for one in ids) else []


def _logprob(value: Any) -> float | None:
    return float(value) if type(value) in {float, int} and -MOST_TOKENS < value < MOST_TOKENS else None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
