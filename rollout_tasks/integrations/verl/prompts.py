"""A rollout's prompts as token ids: what was sampled stays as it was sampled when the agent sends it back."""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

Message = Mapping[str, Any]
Tools = Sequence[Mapping[str, Any]] | None


class MergedTokens(Protocol):
    """verl's `MergeResult`."""

    token_ids: list[int]


class PromptBuilder(Protocol):
    """verl's `ContinuousTokenBuilder`: renders messages with the model's chat template. It is called from threads."""

    def build_initial_tokens(
        self, messages: list[Any], *, tools: list[Any] | None = None, images: list[Any] | None = None
    ) -> list[int]:
        """Returns the ids of a whole prompt."""

    def merge_context_tokens(
        self,
        previous_messages: list[Any],
        updated_messages: list[Any],
        runtime_token_ids: list[int],
        *,
        tools: list[Any] | None = None,
    ) -> MergedTokens:
        """Returns the ids of a prompt that goes on from ids; raises ValueError if the template does not let it."""


class Prompts:
    """The prompts of one rollout."""

    def __init__(self, builder: PromptBuilder) -> None:
        self._builder = builder
        self._known: dict[bytes, array[int]] = {}
        """The ids of each prompt with its reply, by the name of these messages."""

    def ids(self, sent: Sequence[Message], rendered: list[Any], tools: Tools, pictures: list[Any] | None) -> list[int]:
        """Returns a prompt's ids.

        The prompt goes on from the longest earlier one that it begins with, reply included; else it is rendered anew, as when
        an agent has dropped an old screenshot.

        Args:
            sent: The messages as the agent sent them.
            rendered: The same in the form of the model's chat template, pictures included.
            tools: The tools on offer.
            pictures: The pictures of all messages, in order.
        """
        tools = list(tools) if tools else None
        names = list(_names(sent, tools))
        for place in range(len(sent) - 1, 0, -1):
            known = self._known.get(names[place - 1])
            if known is not None:
                try:
                    going_on = self._builder.merge_context_tokens(
                        rendered[:place], rendered, known.tolist(), tools=tools
                    )
                except ValueError:
                    break
                return list(going_on.token_ids)
        return list(self._builder.build_initial_tokens(rendered, tools=tools, images=pictures))

    def keep(self, sent: Sequence[Message], reply: Message, tools: Tools, ids: Sequence[int]) -> None:
        """Keeps the ids of a prompt with its reply.

        Args:
            sent: The prompt's messages.
            reply: The reply as the agent gets it.
            tools: The tools on offer.
            ids: The ids of both.
        """
        *_, name = _names([*sent, reply], list(tools) if tools else None)
        self._known[name] = array("i", ids)


def _names(messages: Sequence[Message], tools: list[Any] | None) -> Iterator[bytes]:
    """Yields a name for the messages up to each one: equal names, equal messages."""
    name = hashlib.sha256(_encoded(tools)).digest()
    for message in messages:
        name = hashlib.sha256(name + _encoded(_compared(message))).digest()
        yield name


def _compared(message: Message) -> object:
    """Returns what counts of a message; clients write replies in several ways that mean the same."""
    if message.get("role") != "assistant":
        return message
    calls = message.get("tool_calls") or ()
    called = [(call.get("id"), call.get("function")) for call in calls]
    return ["assistant", message.get("content") or "", called]


def _encoded(value: object) -> bytes:
    return json.dumps(value, sort_keys=True).encode()
