"""The APIs in which endpoints are asked: where a request goes, how its fields are named, and how its response is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rollout_tasks.models.base import Reply, Usage
from rollout_tasks.models.parsing import parse_reply
from rollout_tasks.models.responses_parsing import parse_response


@dataclass(frozen=True, slots=True)
class Api:
    """One of them."""

    path: str
    """After the base URL."""
    messages: str
    """The field of the messages."""
    most_tokens: str
    """The field of the most tokens that a reply may have."""
    parse: Callable[[str, Usage], Reply]
    """Makes a reply from a response's text; raises `NotAReplyError`."""


APIS: Mapping[str, Api] = {
    "chat": Api("/chat/completions", "messages", "max_completion_tokens", parse_reply),
    "responses": Api("/responses", "input", "max_output_tokens", parse_response),
}
"""By the names that `ModelConfig.api` has."""
