"""Conversations of an episode: longest sequences of one model's calls in which each prompt extends the one before with its reply.

They are to messages what `traces` are to tokens. An agent that drops old screenshots, or words its history anew, sends prompts
that do not extend the last one, so the calls of one episode are several conversations. Each reply is sampled in exactly one;
in the others that have it, it is history. Thinking that endpoints write in fields of its own is no part of a message here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rollout_tasks.models.base import THINKING_FIELDS, Message
from rollout_tasks.trajectories.model_calls import ModelCall


@dataclass(frozen=True, slots=True)
class Conversation:
    """The messages of one sequence of calls of one model."""

    messages: tuple[Message, ...]
    """The last call's prompt and its reply; earlier replies as they were sampled."""
    sampled: Mapping[int, ModelCall]
    """The calls whose replies are sampled here, by the index of the reply in `messages`."""
    tools: tuple[Mapping[str, Any], ...]
    model: str


@dataclass(slots=True)
class _OpenConversation:
    """A conversation that may still be extended."""

    messages: list[Message] = field(default_factory=list)
    sampled: dict[int, ModelCall] = field(default_factory=dict)

    def extend(self, call: ModelCall) -> None:
        self.messages += [*call.prompt[len(self.messages) :], call.reply]
        self.sampled[len(self.messages) - 1] = call

    def closed(self) -> Conversation:
        last = self.sampled[len(self.messages) - 1]
        return Conversation(tuple(self.messages), self.sampled, last.tools, last.model)


def conversations_of(calls: Iterable[ModelCall]) -> list[Conversation]:
    """Returns the conversations of one episode, in the order in which they begin.

    A call extends the longest conversation that its prompt begins with, of the same model and with the same tools. Calls that
    branch, as with several answers to one prompt, begin a conversation each; what the branches share is history in the later.

    Args:
        calls: In the order in which they were made.
    """
    found: list[_OpenConversation] = []
    by_key: dict[bytes, _OpenConversation] = {}
    digests = _Digests()
    for call in calls:
        keys = digests.of_beginnings(call)
        extended = next((key for key in reversed(keys) if key in by_key), None)
        if extended is None:
            conversation = _OpenConversation()
            found.append(conversation)
        else:
            conversation = by_key.pop(extended)
        conversation.extend(call)
        by_key.setdefault(digests.after(keys[-1], call.reply), conversation)
    return [conversation.closed() for conversation in found]


class _Digests:
    """Digests of the beginnings of prompts: equal where a model was sent the same, of the same tools."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Message, bytes]] = {}
        """By identity: prompts of one record share their messages. The message is kept, so that no other gets its identity."""

    def of_beginnings(self, call: ModelCall) -> list[bytes]:
        """Returns the digest of no message, of the first, of the first two, and so on up to the whole prompt."""
        keys = [_digest([call.model, list(call.tools)])]
        for message in call.prompt:
            keys.append(self.after(keys[-1], message))
        return keys

    def after(self, key: bytes, message: Message) -> bytes:
        """Returns the digest of a beginning and one more message."""
        known = self._known.get(id(message))
        if known is None:
            known = self._known[id(message)] = (message, _digest(_plain(message)))
        return hashlib.sha256(key + known[1]).digest()


def _digest(value: Any) -> bytes:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).digest()


def _plain(message: Message) -> Message:
    """Returns a message without what says nothing: fields without a value, and parts where there is one text alone."""
    plain = {
        name: value for name, value in message.items() if value not in (None, [], "") and name not in THINKING_FIELDS
    }
    content = plain.get("content")
    if isinstance(content, list) and len(content) == 1 and _is_text(content[0]):
        plain["content"] = content[0]["text"]
    return plain


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and part.keys() == {"type", "text"} and part["type"] == "text"
