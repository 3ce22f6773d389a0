"""The contract of an API that clients speak, and what the APIs share: checks of fields, server-sent events, errors."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from rollout_tasks.models.base import Message
from rollout_tasks.models.gateway.engine import EngineReply
from rollout_tasks.models.gateway.memory import SessionMemory
from rollout_tasks.models.gateway.refused import Refused

PICTURE_FOLLOWS = "The picture of this result is in the next message."
"""Stands in a tool's message: Chat Completions has pictures in messages of users only."""
_ERROR_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    429: "rate_limit_error",
}


@dataclass(frozen=True, slots=True)
class ClientRequest:
    """A request, translated."""

    request: dict[str, Any]
    """In Chat Completions' form, without ``stream``."""
    stream: bool
    body: Mapping[str, Any]
    """As the client sent it."""
    computers: frozenset[str] = frozenset()
    """The types of the computer tools in it."""
    size: int = 0
    """Bytes of the conversation so far, where earlier requests are part of it."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """What else the reply depends on."""


class Live(Protocol):
    """A reply that is streamed to the client as it is sampled."""

    def events(self, piece: Mapping[str, Any]) -> Iterable[bytes]:
        """Returns what the client gets for a piece of the engine's."""

    def end(self, answer: EngineReply) -> bytes:
        """Returns what the client gets after the last piece."""


class ClientApi(Protocol):
    """An API that clients of the gateway use."""

    name: str
    error_event: str
    """The name of the event with an error in a stream; empty for none."""

    def read(self, body: dict[str, Any], memory: SessionMemory, most: int) -> ClientRequest:
        """Translates a request.

        Args:
            body: The request.
            memory: What the session remembers.
            most: Bytes that a conversation may have with the requests before.

        Raises:
            Refused: It does not follow the API, or cannot be expressed.
        """

    def live(self, client_request: ClientRequest) -> Live | None:
        """Returns how pieces are passed on; None if the reply is only sent whole."""

    def reply(
        self, client_request: ClientRequest, answer: EngineReply, call_id: str, memory: SessionMemory
    ) -> dict[str, Any]:
        """Translates a reply."""

    def events(self, reply: Mapping[str, Any], client_request: ClientRequest) -> Iterator[bytes]:
        """Yields a whole reply as a stream."""

    def error(self, status: int, sentence: str, code: str) -> dict[str, Any]:
        """Returns an error's body."""


def event(data: Mapping[str, Any] | str, name: str = "") -> bytes:
    """Returns a server-sent event."""
    text = data if isinstance(data, str) else json.dumps(data)
    return (f"event: {name}\n" if name else "").encode() + f"data: {text}\n\n".encode()


def openai_error(status: int, sentence: str, code: str) -> dict[str, Any]:
    """Returns an error in the shape of OpenAI's APIs."""
    kind = "server_error" if status >= 500 else _ERROR_TYPES.get(status, "invalid_request_error")
    return {"error": {"message": sentence, "type": kind, "param": None, "code": code or None}}


def known_fields(body: Mapping[str, Any], known: Iterable[str], where: str = "the request") -> None:
    """Refuses fields that are not known: they would be dropped."""
    known = set(known)
    for name, value in body.items():
        if name not in known and value is not None:
            raise Refused(400, f"{where} has the field {name[:100]!r}, which is not supported", "unsupported_parameter")


def text(value: Any, where: str) -> str:
    """Returns a value that must be text."""
    if not isinstance(value, str):
        raise Refused(400, f"{where} must be text")
    return value


def flag(body: Mapping[str, Any], name: str) -> bool:
    """Returns a field that must be true or false; false if it is not there."""
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        raise Refused(400, f"{name} must be true or false")
    return bool(value)


def mapping(value: Any, where: str) -> Mapping[str, Any]:
    """Returns a value that must be an object."""
    if not isinstance(value, dict):
        raise Refused(400, f"{where} must be an object")
    return value


def objects(value: Any, where: str) -> list[dict[str, Any]]:
    """Returns a value that must be a list of objects."""
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise Refused(400, f"{where} must be a list of objects")
    return value


def picture(url: str, detail: Any = None) -> dict[str, Any]:
    """Returns a picture as a part of a message."""
    link: dict[str, Any] = {"url": url}
    if detail not in (None, "auto"):
        link["detail"] = detail
    return {"type": "image_url", "image_url": link}


def text_part(words: str) -> dict[str, Any]:
    """Returns text as a part of a message."""
    return {"type": "text", "text": words}


def tool_call(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    """Returns a call as a part of an assistant's message."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def function_tool(name: str, description: Any, parameters: Any, strict: Any = None) -> dict[str, Any]:
    """Returns a tool in Chat Completions' form."""
    function: dict[str, Any] = {"name": name}
    if description is not None:
        function["description"] = description
    if parameters is not None:
        function["parameters"] = parameters
    if strict is not None:
        function["strict"] = strict
    return {"type": "function", "function": function}


def assistant(said: str, calls: list[dict[str, Any]], thinking: Mapping[str, str]) -> Message:
    """Returns an assistant's message in the form that `parse_reply` gives it, so that prompts extend each other."""
    if not calls:
        return {"role": "assistant", "content": said, **thinking}
    return {"role": "assistant", "content": said or None, "tool_calls": calls, **thinking}


def tool_result(call_id: str, words: str, pictures: list[dict[str, Any]]) -> Message:
    """Returns a tool's message, without the pictures that belong to it."""
    if pictures:
        words = f"{words}\n{PICTURE_FOLLOWS}" if words else PICTURE_FOLLOWS
    return {"role": "tool", "tool_call_id": call_id, "content": words}


def content_of(parts: list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """Returns parts as a message's content: a single text as text."""
    return parts[0]["text"] if len(parts) == 1 and parts[0]["type"] == "text" else parts
