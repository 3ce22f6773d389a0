"""Makes a `Reply` from the text of a response of the Responses API, and checks what everything else relies on. Sends nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rollout_tasks.models.base import CUT_OFF, REFUSED, Reply, Usage
from rollout_tasks.models.parsing import NotAReplyError, json_object, plain_name, token_count
from rollout_tasks.unicode_text import storable_json

MOST_ITEMS = 200
"""In one response."""
_DEEPEST = 32
_ANSWER = "computer_call_output"


def parse_response(body: str, usage_so_far: Usage) -> Reply:
    """Reads a response. The reply's message has its items as ``output``, to be sent back as they are.

    Args:
        body: The response's JSON text.
        usage_so_far: Requests and seconds the turn took, to which the endpoint's token counts are added.

    Raises:
        NotAReplyError: It is not JSON, or has no list of items, or says that it has failed.
    """
    response = json_object(body)
    items = response.get("output")
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise NotAReplyError(f"without a list of output items: {body[:200]!r}")
    if len(items) > MOST_ITEMS:
        raise NotAReplyError(f"with {len(items)} output items, more than the {MOST_ITEMS} that are taken")
    if any(item.get("role", "assistant") != "assistant" or item.get("type") == _ANSWER for item in items):
        raise NotAReplyError(f"with an output item that only clients write: {body[:200]!r}")
    status = plain_name(response.get("status")) or "completed"
    if status not in ("completed", "incomplete"):
        raise NotAReplyError(f"with the status {status}: {str(response.get('error'))[:200]!r}")
    try:
        output = storable_json(items, _DEEPEST)
    except ValueError as error:
        raise NotAReplyError(f"with output items that are nested too deeply: {body[:200]!r}") from error
    refusal = _texts(output, "refusal")
    ended = _why_incomplete(response.get("incomplete_details")) if status == "incomplete" else "stop"
    return Reply(
        message={"role": "assistant", "output": output, "status": status},
        text=refusal or _texts(output, "text"),
        tool_calls=(),
        finish_reason=REFUSED if refusal else ended,
        usage=usage_so_far + _usage(response.get("usage")),
        served_by=plain_name(response.get("model")),
    )


def _why_incomplete(details: Any) -> str:
    """Returns why a response is incomplete, in the words of Chat Completions where these have one."""
    reason = plain_name(details.get("reason")) if isinstance(details, dict) else ""
    return CUT_OFF if reason in ("", "max_output_tokens") else reason


def _texts(items: Sequence[Mapping[str, Any]], field: str) -> str:
    """Returns what the model said to the user, or with the field ``refusal``, why it refuses."""
    kind = "refusal" if field == "refusal" else "output_text"
    texts = []
    for item in items:
        parts = item.get("content") if item.get("type") == "message" else None
        for part in parts if isinstance(parts, list) else ():
            text = part.get(field) if isinstance(part, dict) and part.get("type") == kind else None
            texts += [text] if isinstance(text, str) else []
    return "\n\n".join(texts)


def _usage(counts: Any) -> Usage:
    if not isinstance(counts, dict):
        return Usage()
    return Usage(token_count(counts.get("input_tokens")), token_count(counts.get("output_tokens")))
