"""A tiny chat format whose tokens are letters, and an engine that says what it is told to say."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

END = ord("|")


def written(messages: Sequence[Mapping[str, Any]]) -> str:
    """The template: ``u:text|``; a picture is written as its name in brackets, a call as its JSON."""
    return "".join(f"{message['role'][0]}:{_text(message)}|" for message in messages)


def _text(message: Mapping[str, Any]) -> str:
    content = message["content"]
    if isinstance(content, list):
        content = "".join(part["text"] if part["type"] == "text" else f"[{part['image']}]" for part in content)
    calls = message.get("tool_calls") or ()
    return content + "".join(json.dumps(call["function"]["arguments"], sort_keys=True) for call in calls)


def ids(text: str) -> list[int]:
    return [ord(letter) for letter in text]


@dataclass
class Merged:
    token_ids: list[int]


@dataclass
class LetterBuilder:
    """A `PromptBuilder`."""

    appends: bool = True
    """Whether the template lets messages be appended."""

    def build_initial_tokens(
        self, messages: list[Any], *, tools: list[Any] | None = None, images: list[Any] | None = None
    ) -> list[int]:
        del tools, images
        return ids(written(messages) + "a:")

    def merge_context_tokens(
        self,
        previous_messages: list[Any],
        updated_messages: list[Any],
        runtime_token_ids: list[int],
        *,
        tools: list[Any] | None = None,
    ) -> Merged:
        del tools
        if not self.appends:
            raise ValueError("the template changes what is before")
        return Merged([*runtime_token_ids, *ids(written(updated_messages[len(previous_messages) :]) + "a:")])


@dataclass
class Call:
    name: str
    arguments: str


@dataclass
class LetterFormat:
    """A `ChatFormat`; a reply that begins with ``!`` calls the tool ``run`` with the rest."""

    builder: LetterBuilder = field(default_factory=LetterBuilder)
    sees_pictures: bool = True
    end_ids: frozenset[int] = frozenset({END})
    processor_options: Mapping[str, Any] = field(default_factory=dict)

    async def pictures(self, messages: list[dict[str, Any]]) -> list[Any]:
        return [
            part["image"].upper()
            for message in messages
            if isinstance(message["content"], list)
            for part in message["content"]
            if part["type"] == "image"
        ]

    async def read(self, ids: list[int], tools: Sequence[Mapping[str, Any]]) -> tuple[str, Sequence[Call]]:
        text = "".join(map(chr, ids)).removesuffix("|")
        return ("", [Call("run", text[1:])]) if tools and text.startswith("!") else (text.lower(), [])

    def stop_ids(self, tools: Sequence[Mapping[str, Any]]) -> list[int]:
        return [ord("!")] if tools else []


@dataclass
class Output:
    token_ids: list[int]
    log_probs: list[float] | None
    stop_reason: str | None = "completed"
    num_preempted: int | None = None
    extra_fields: dict[str, Any] = field(default_factory=dict)


@dataclass
class SayingEngine:
    """A `TokenEngine` that says these texts one after the other."""

    texts: list[str]
    steps: tuple[int, int] = (3, 3)
    stop_reason: str = "completed"
    asked: list[dict[str, Any]] = field(default_factory=list)

    async def generate(self, request_id: str, **asked: Any) -> Output:
        self.asked.append({"request_id": request_id, **asked})
        said = ids(self.texts.pop(0))
        first, last = self.steps
        known = {"min_global_steps": first, "max_global_steps": last}
        return Output(said, [-0.5] * len(said), self.stop_reason, extra_fields=known)
