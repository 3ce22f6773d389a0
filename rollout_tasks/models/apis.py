"""The APIs in which endpoints are asked: where a request goes, what it holds, and how its response is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rollout_tasks.models.base import Message, Reply, Usage
from rollout_tasks.models.messages_parsing import parse_messages_response
from rollout_tasks.models.parsing import parse_reply
from rollout_tasks.models.responses_parsing import parse_response

SAMPLING_FIELDS = ("temperature", "top_p", "max_completion_tokens", "seed")
"""Fields of requests that are also options of a run's model, by their names in Chat Completions."""
OPENAI_URL = "https://api.openai.com/v1"
_BETAS = {"computer_20250124": "computer-use-2025-01-24", "computer_20251124": "computer-use-2025-11-24"}
"""The value of ``anthropic-beta`` for each version of the computer tool."""


def _bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def _anthropic_login(key: str) -> dict[str, str]:
    return {"x-api-key": key, "anthropic-version": "2023-06-01"}


def _anthropic_messages(messages: Sequence[Message]) -> dict[str, Any]:
    """Returns the fields of a request; system messages have a field of their own."""
    system = [{"type": "text", "text": one["content"]} for one in messages if one.get("role") == "system"]
    others = [one for one in messages if one.get("role") != "system"]
    return {"system": system, "messages": others} if system else {"messages": others}


def _anthropic_betas(tools: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    betas = sorted({_BETAS[kind] for tool in tools if (kind := str(tool.get("type"))) in _BETAS})
    return {"anthropic-beta": ",".join(betas)} if betas else {}


@dataclass(frozen=True, slots=True)
class Api:
    """How one API is asked: its path, fields and replies."""

    path: str
    """After the base URL."""
    most_tokens: str
    """The field of the most tokens that a reply may have."""
    prompt: Callable[[Sequence[Message]], dict[str, Any]]
    """Returns the fields of a request for its messages."""
    parse: Callable[[str, Usage], Reply]
    """Makes a reply from a response's text; raises `NotAReplyError`."""
    login: Callable[[str], dict[str, str]] = _bearer
    """Returns the headers for a key."""
    tool_headers: Callable[[Sequence[Mapping[str, Any]]], dict[str, str]] = lambda _tools: {}
    """Returns further headers for a request with tools."""


APIS: Mapping[str, Api] = {
    "chat": Api("/chat/completions", "max_completion_tokens", lambda messages: {"messages": messages}, parse_reply),
    "responses": Api("/responses", "max_output_tokens", lambda messages: {"input": messages}, parse_response),
    "messages": Api(
        "/messages", "max_tokens", _anthropic_messages, parse_messages_response, _anthropic_login, _anthropic_betas
    ),
}
"""By the names that `ModelConfig.api` has."""
