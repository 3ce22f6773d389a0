"""What an endpoint's HTTP error says: one sentence without secrets, and whether the call is worth another try. Sends nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urljoin, urlsplit

from benchmark.backoff import passing, retry_after
from benchmark.http_client import without_key
from rollout_tasks.errors import FailureClass
from rollout_tasks.models.retries import FailedTry
from rollout_tasks.unicode_text import storable

_READ_CHARACTERS = 5000
"""The part of an error's message that is looked at."""
_OF_THE_SERVER = frozenset({301, 302, 303, 307, 308, 401, 403, 404, 405, 407})
"""Statuses that say that a server is set up wrongly, and nothing of the call."""
_OVERFLOW_CODE = "context_length_exceeded"
_OVERFLOW_PHRASES = (
    "maximum context length",
    "maximum model length",
    "maximum prompt length",
    "longer than the model's context length",
    "context length exceeded",
    "context window",
    "exceed context limit",
    "exceeds the available context size",
    "exceeds the maximum number of tokens allowed",
    "prompt is too long",
    "input is too long for requested model",
)


@dataclass(frozen=True, slots=True)
class ModelEndpoint:
    """An endpoint as errors name it."""

    model: str
    base_url: str

    def __str__(self) -> str:
        return f"model {self.model} at {shown_url(self.base_url)}"


@dataclass(frozen=True, slots=True)
class Refusal:
    """An HTTP error."""

    failed: FailedTry
    context_overflow: bool
    """Whether the prompt is longer than the model can take."""


def read_refusal(
    endpoint: ModelEndpoint, status: int, reason: str, headers: Mapping[str, str], text: str, key: str
) -> Refusal:
    """Reads an HTTP error.

    Args:
        endpoint: The endpoint that answered.
        status: The HTTP status.
        reason: Its phrase.
        headers: The response's, by lower-case names.
        text: The response's body.
        key: What the endpoint may have sent back, and must not be shown; empty if there is none.
    """
    error = _error_of(text)
    message = _message_of(error, text, key) or reason
    sentence = f"{endpoint} answered {status}: {message}"
    if status in {301, 302, 303, 307, 308} and "location" in headers:
        elsewhere = shown_url(without_key(headers["location"], key), endpoint.base_url)
        sentence += f"; it redirects to {elsewhere}, which is not followed"
    if passing(status):
        return Refusal(FailedTry(sentence, FailureClass.MODEL_OVERLOAD, retry_after=retry_after(headers)), False)
    overflow = _is_context_overflow(status, error, message)
    if overflow:
        sentence = f"the conversation no longer fits the model's context: {sentence}"
    return Refusal(FailedTry(sentence, FailureClass.MODEL, retried=False, elsewhere=status in _OF_THE_SERVER), overflow)


def shown_url(url: str, base: str = "") -> str:
    """Returns an address, which may be relative to another, without secrets that it may contain."""
    try:
        parts = urlsplit(urljoin(base, url))
    except ValueError:
        return "an invalid address"
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"[:300]


def _error_of(text: str) -> Any:
    """Returns what a response's JSON says about the error; None if it is not JSON."""
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return body.get("error", body) if isinstance(body, dict) else body


def _message_of(error: Any, text: str, key: str) -> str:
    message = error.get("message") if isinstance(error, dict) else error
    said = storable(message) if isinstance(message, str) and message.strip() else text
    return " ".join(without_key(said, key)[:_READ_CHARACTERS].split())[:500]


def _is_context_overflow(status: int, error: Any, message: str) -> bool:
    if status not in {400, 413, 422}:
        return False
    code = error.get("code") if isinstance(error, dict) else None
    return code == _OVERFLOW_CODE or any(phrase in message.lower() for phrase in _OVERFLOW_PHRASES)
