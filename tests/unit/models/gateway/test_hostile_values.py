"""Whatever JSON a client or an engine sends: it is translated or refused, and never ends in another error."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollout_tasks.models.base import Usage
from rollout_tasks.models.gateway.chat import CHAT
from rollout_tasks.models.gateway.client_api import ClientApi
from rollout_tasks.models.gateway.completion_stream import StreamedReply
from rollout_tasks.models.gateway.engine import read_completion
from rollout_tasks.models.gateway.memory import SessionMemory
from rollout_tasks.models.gateway.messages_api import MESSAGES
from rollout_tasks.models.gateway.refused import Refused
from rollout_tasks.models.gateway.responses_api import RESPONSES
from rollout_tasks.models.parsing import NotAReplyError
from rollout_tasks.models.served import Served

WORDS = (
    "message", "user", "assistant", "system", "text", "input_text", "output_text", "image", "input_image", "base64", "url",
    "tool_use", "tool_result", "thinking", "reasoning", "function", "function_call", "function_call_output", "computer",
    "computer_call", "computer_call_output", "computer_use_preview", "computer_20250124", "custom", "tool", "auto", "any",
    "json_schema", "disabled", "enabled", "click", "wait", "f", "{}", '{"action": {"type": "wait"}}', "stop", "length",
    "\ud800", "",
)  # fmt: skip
NAMES = (
    "type", "role", "content", "text", "name", "id", "call_id", "arguments", "input", "output", "tools", "tool_choice",
    "tool_calls", "function", "messages", "system", "source", "media_type", "data", "url", "image_url", "action", "actions",
    "x", "y", "format", "schema", "parameters", "input_schema", "is_error", "tool_use_id", "thinking", "summary", "reasoning",
    "metadata", "stream_options", "include", "stop_sequences", "previous_response_id", "instructions", "n", "stream",
    "display_width", "display_width_px", "current_url", "detail", "functions", "user_id",
)  # fmt: skip
REPLY_NAMES = (
    "choices", "message", "delta", "content", "tool_calls", "function", "name", "arguments", "id", "index", "finish_reason",
    "usage", "prompt_tokens", "completion_tokens", "logprobs", "logprob", "token", "token_ids", "prompt_token_ids",
    "weight_versions", "version", "start", "end", "stop_reason", "reasoning", "reasoning_content", "refusal", "model", "error",
)  # fmt: skip
ATOMS = st.one_of(st.none(), st.booleans(), st.integers(-2, 2**70), st.floats(allow_nan=False), st.sampled_from(WORDS))


def values(names: tuple[str, ...]) -> st.SearchStrategy[Any]:
    return st.recursive(
        ATOMS,
        lambda inner: st.one_of(
            st.lists(inner, max_size=4), st.dictionaries(st.sampled_from(names), inner, max_size=6)
        ),
        max_leaves=25,
    )


PICTURE = {"type": "input_image", "image_url": "data:image/png;base64,b25l", "detail": "high"}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
WHOLE: dict[str, dict[str, Any]] = {
    "chat": {
        "model": "m",
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "x"}]},
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "c1", "content": "x"},
        ],
        "tools": [{"type": "function", "function": {"name": "f"}}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "n": 1,
    },
    "responses": {
        "model": "m",
        "instructions": "i",
        "input": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}, PICTURE]},
            {"type": "reasoning", "summary": [{"text": "a"}], "content": [{"text": "a"}], "encrypted_content": None},
            {
                "role": "assistant",
                "content": [{"type": "output_text", "text": "a"}, {"type": "refusal", "refusal": "a"}],
            },
            {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "x"}, PICTURE]},
            {"type": "computer_call", "call_id": "c2", "action": {"type": "wait"}, "pending_safety_checks": []},
            {"type": "computer_call", "call_id": "c3", "actions": [{"type": "wait"}]},
            {
                "type": "computer_call_output",
                "call_id": "c2",
                "output": {"type": "computer_screenshot", "image_url": "x", "current_url": "x"},
            },
        ],
        "tools": [
            {"type": "function", "name": "f", "description": "d", "parameters": {}, "strict": True},
            {"type": "computer_use_preview", "display_width": 1, "display_height": 1, "environment": "linux"},
        ],
        "tool_choice": {"type": "function", "name": "f"},
        "text": {"format": {"type": "json_schema", "name": "n", "schema": {}}, "verbosity": "low"},
        "reasoning": {"effort": "low", "summary": "auto"},
        "include": ["message.output_text.logprobs"],
        "truncation": "auto",
        "max_output_tokens": 5,
        "previous_response_id": None,
        "stream": False,
    },
    "messages": {
        "model": "m",
        "max_tokens": 5,
        "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "x"}}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": ""},
                    {"type": "text", "text": "a"},
                    {"type": "tool_use", "id": "c1", "name": "f", "input": {"a": 1}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "c1",
                        "content": [
                            {"type": "text", "text": "x"},
                            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "b25l"}},
                        ],
                        "is_error": True,
                    },
                    {"type": "text", "text": "x"},
                ],
            },
        ],
        "tools": [
            {"name": "f", "description": "d", "input_schema": {}},
            {"type": "computer_20250124", "name": "computer", "display_width_px": 1, "display_height_px": 1},
        ],
        "tool_choice": {"type": "tool", "name": "f", "disable_parallel_tool_use": True},
        "stop_sequences": ["a"],
        "metadata": {"user_id": "u"},
        "thinking": {"type": "disabled"},
        "service_tier": "auto",
        "stream": True,
    },
}
"""A request with everything that each API has here."""


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every list or object in a value, with each of its indexes or names."""
    found: list[tuple[Any, Any]] = []
    left = [value]
    while left:
        one = left.pop()
        inner = one.items() if isinstance(one, dict) else enumerate(one) if isinstance(one, list) else ()
        for name, child in inner:
            found.append((one, name))
            left.append(child)
    return found


ANSWER = read_completion(
    json.dumps(
        {
            "choices": [
                {
                    "message": {
                        "content": "a",
                        "reasoning": "b",
                        "tool_calls": [
                            {"id": "c", "function": {"name": "computer", "arguments": '{"action": {"type": "wait"}}'}}
                        ],
                    }
                }
            ]
        }
    ),
    Usage(),
    Served(),
)


@pytest.mark.parametrize("dialect", [CHAT, RESPONSES, MESSAGES], ids=lambda dialect: dialect.name)
@given(changes=st.lists(st.tuples(st.integers(0, 10_000), values(NAMES)), max_size=2))
@settings(max_examples=150)
def test_a_request_that_was_changed_anywhere_is_translated_or_refused(
    dialect: ClientApi, changes: list[tuple[int, Any]]
) -> None:
    given = json.loads(json.dumps(WHOLE[dialect.name]))
    for number, value in changes:
        known = places(given)
        inside, name = known[number % len(known)]
        inside[name] = value
    memory = SessionMemory()
    try:
        asked = dialect.read(given, memory, 1 << 20)
    except Refused as refused:
        json.dumps(dialect.error(refused.status, str(refused), refused.code))
        assert changes
        return
    assert all(isinstance(message, dict) for message in asked.request["messages"])
    json.dumps(asked.request)
    reply = dialect.reply(asked, ANSWER, "1", memory)
    json.dumps(reply)
    assert b"".join(dialect.events(reply, asked))


CHOICES = st.lists(st.dictionaries(st.sampled_from(REPLY_NAMES), values(REPLY_NAMES), max_size=6), max_size=2)
REPLIES = st.builds(
    lambda known, choices: {**known, "choices": choices},
    st.dictionaries(st.sampled_from(REPLY_NAMES), values(REPLY_NAMES), max_size=4),
    st.one_of(CHOICES, values(REPLY_NAMES)),
)
ASKED = {
    CHAT: CHAT.read({"messages": [{"role": "user"}], "stream": True, "logprobs": True}, SessionMemory(), 1),
    RESPONSES: RESPONSES.read({"input": "x", "tools": [{"type": "computer"}]}, SessionMemory(), 10),
    MESSAGES: MESSAGES.read({"max_tokens": 5, "messages": [{"role": "user", "content": "x"}]}, SessionMemory(), 1),
}


@given(body=REPLIES)
@settings(max_examples=60)
def test_any_reply_is_read_or_refused(body: Any) -> None:
    with suppress(NotAReplyError):
        answer = read_completion(json.dumps(body), Usage(), Served())
        for dialect, asked in ASKED.items():
            reply = dialect.reply(asked, answer, "1", SessionMemory())  # type: ignore[attr-defined]
            assert b"".join(dialect.events(reply, asked))  # type: ignore[attr-defined]


@given(pieces=st.lists(REPLIES, max_size=4))
@settings(max_examples=60)
def test_any_pieces_are_put_together_or_refused(pieces: list[dict[str, Any]]) -> None:
    reply, live = StreamedReply(), CHAT.live(ASKED[CHAT])
    assert live is not None
    with suppress(NotAReplyError):
        for piece in pieces:
            reply.add(piece)
            assert all(isinstance(data, bytes) for data in live.events(piece))
        answer = read_completion(reply.body(), Usage(), Served())
        assert live.end(answer)
