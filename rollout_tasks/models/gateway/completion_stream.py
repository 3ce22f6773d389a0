"""Puts the pieces of a streamed Chat Completions reply together again, and reads them from server-sent events. Sends nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from rollout_tasks.models.base import THINKING_FIELDS
from rollout_tasks.models.parsing import MOST_TOOL_CALLS, NotAReplyError

_TEXTS = ("content", "refusal", *THINKING_FIELDS)
"""The fields of a message that come in parts."""
_LISTS = ("token_ids", "weight_versions")
"""The fields of a choice that come in parts, besides its log-probabilities."""


class EventLines:
    """The data of server-sent events, from bytes that may be cut anywhere."""

    def __init__(self) -> None:
        self._line: list[bytes] = []
        """The parts of a line that is not complete."""
        self._data: list[bytes] = []

    def feed(self, part: bytes) -> Iterator[str]:
        """Yields the data of each event that is complete now."""
        first, *others = part.split(b"\n")
        self._line.append(first)
        for other in others:
            line, self._line = b"".join(self._line).removesuffix(b"\r"), [other]
            if line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
            elif not line and self._data:
                data, self._data = b"\n".join(self._data), []
                yield data.decode("utf-8", "replace")


class StreamedReply:
    """A reply that comes in pieces."""

    def __init__(self) -> None:
        self._head: dict[str, Any] = {}
        self._message: dict[str, Any] = {"role": "assistant"}
        self._calls: dict[int, dict[str, Any]] = {}
        self._choice: dict[str, Any] = {}
        self._parts: dict[str, list[str]] = {}
        self._logprobs: list[Any] = []

    def add(self, piece: dict[str, Any]) -> None:
        """Adds a piece.

        Raises:
            NotAReplyError: It does not follow the protocol.
        """
        for name in ("id", "model", "prompt_token_ids", "usage", "weight_versions"):
            if piece.get(name):
                self._head[name] = piece[name]
        choices = piece.get("choices")
        if not isinstance(choices, list):
            raise NotAReplyError(f"with a piece without choices: {str(piece)[:200]!r}")
        for choice in choices:
            if not isinstance(choice, dict):
                raise NotAReplyError(f"with a piece whose choice is not an object: {str(choice)[:200]!r}")
            if choice.get("index") in (None, 0):
                self._add_choice(choice)

    def body(self) -> str:
        """Returns the whole reply as the JSON text of a response that was not streamed.

        Raises:
            NotAReplyError: The reply is not complete.
        """
        if not self._choice.get("finish_reason"):
            raise NotAReplyError("with a stream that ends before its reply does")
        message = self._message | {name: "".join(parts) for name, parts in self._parts.items()}
        if self._calls:
            message["tool_calls"] = [
                {**call, "function": {"name": call["name"], "arguments": "".join(call["parts"])}}
                for _, call in sorted(self._calls.items())
            ]
        choice = {**self._choice, "index": 0, "message": message}
        if self._logprobs:
            choice["logprobs"] = {"content": self._logprobs}
        return json.dumps({**self._head, "choices": [choice]})

    def _add_choice(self, choice: dict[str, Any]) -> None:
        delta = choice.get("delta")
        delta = delta if isinstance(delta, dict) else {}
        for name in _TEXTS:
            if isinstance(delta.get(name), str):
                self._parts.setdefault(name, []).append(delta[name])
        calls = delta.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            self._add_call(call)
        for name in _LISTS:
            if isinstance(choice.get(name), list):
                self._choice.setdefault(name, []).extend(choice[name])
        logprobs = choice.get("logprobs")
        if isinstance(logprobs, dict) and isinstance(logprobs.get("content"), list):
            self._logprobs.extend(logprobs["content"])
        for name in ("finish_reason", "stop_reason", "prompt_token_ids"):
            if choice.get(name):
                self._choice[name] = choice[name]

    def _add_call(self, part: Any) -> None:
        index = part.get("index", 0) if isinstance(part, dict) else None
        if type(index) is not int or not 0 <= index < MOST_TOOL_CALLS:
            raise NotAReplyError(f"with a part of a tool call that has no place: {str(part)[:200]!r}")
        call = self._calls.setdefault(index, {"id": "", "name": "", "parts": []})
        function = part.get("function")
        function = function if isinstance(function, dict) else {}
        if isinstance(part.get("extra_content"), dict):
            call["extra_content"] = part["extra_content"]
        if isinstance(part.get("id"), str) and part["id"]:
            call["id"] = part["id"]
        if isinstance(function.get("name"), str):
            call["name"] = call["name"] or function["name"]
        if isinstance(function.get("arguments"), str):
            call["parts"].append(function["arguments"])
