"""Makes a `Reply` from the text of a response of Anthropic's Messages API, and checks what everything else relies on."""

from __future__ import annotations

from typing import Any

from rollout_tasks.models.base import CUT_OFF, Reply, Usage
from rollout_tasks.models.parsing import NotAReplyError, json_object, plain_name, token_count
from rollout_tasks.unicode_text import storable_json

MOST_BLOCKS = 200
"""In one response."""
_DEEPEST = 32
_CUT_OFF = frozenset({"max_tokens", "model_context_window_exceeded"})


def parse_messages_response(body: str, usage_so_far: Usage) -> Reply:
    """Reads a response. The reply's message has its content blocks, thinking included, to be sent back as they are.

    Args:
        body: The response's JSON text.
        usage_so_far: Requests and seconds the turn took, to which the endpoint's token counts are added.

    Raises:
        NotAReplyError: It is not JSON, or has no list of content blocks.
    """
    response = json_object(body)
    blocks = response.get("content")
    if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
        raise NotAReplyError(f"without a list of content blocks: {body[:200]!r}")
    if len(blocks) > MOST_BLOCKS:
        raise NotAReplyError(f"with {len(blocks)} content blocks, more than the {MOST_BLOCKS} that are taken")
    try:
        content = storable_json(blocks, _DEEPEST)
    except ValueError as error:
        raise NotAReplyError(f"with content blocks that are nested too deeply: {body[:200]!r}") from error
    texts = [block.get("text") for block in content if block.get("type") == "text"]
    stopped = plain_name(response.get("stop_reason"))
    return Reply(
        message={"role": "assistant", "content": content},
        text="\n\n".join(text for text in texts if isinstance(text, str)),
        tool_calls=(),
        finish_reason=CUT_OFF if stopped in _CUT_OFF else stopped,
        usage=usage_so_far + _usage(response.get("usage")),
        served_by=plain_name(response.get("model")),
    )


def _usage(counts: Any) -> Usage:
    """Returns the tokens; those of the prompt that were read from a cache or written to it count like the others."""
    if not isinstance(counts, dict):
        return Usage()
    names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    return Usage(sum(token_count(counts.get(name)) for name in names), token_count(counts.get("output_tokens")))
