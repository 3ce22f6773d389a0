"""Makes the messages that are sent from a whole conversation, by what is left out; rebuilds a recorded prompt the same way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rollout_tasks.models.base import Message

PLACEHOLDER = "(An older screenshot was here. It is left out.)"
"""Stands where a picture was. Recorded prompts are rebuilt with it, so a change needs a way to tell older records."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What of a conversation a prompt does not have; without arguments, what agents leave out that do not say anything."""

    pictures: int = 0
    """How many; always the oldest ones, counted through all messages, each replaced by `PLACEHOLDER`."""
    thinking: bool = True
    """Whether the model's thinking of earlier turns, if there was any: all of it or nothing."""


def pictures_in(message: Message) -> int:
    """Returns how many pictures a message has."""
    content = message.get("content")
    return sum(map(_is_picture, content)) if isinstance(content, list) else 0


def sent_messages(
    messages: Sequence[Message], thinking: Mapping[int, Mapping[str, str]], left_out: LeftOut
) -> list[Message]:
    """Returns a conversation as it is sent. Messages keep their places, and so do the parts of each.

    Args:
        messages: The whole conversation; it is not changed.
        thinking: What the model thought before messages of its own (`Reply.thinking`), by their index.
        left_out: What the prompt does not have.
    """
    sent: list[Message] = []
    still_to_drop = left_out.pictures
    for index, message in enumerate(messages):
        pictures = pictures_in(message) if still_to_drop else 0
        if pictures:
            message = _without_first_pictures(message, still_to_drop)
            still_to_drop = max(0, still_to_drop - pictures)
        if not left_out.thinking and index in thinking:
            message = {**message, **thinking[index]}
        sent.append(message)
    return sent


def _without_first_pictures(message: Message, most: int) -> Message:
    parts: list[Any] = []
    dropped = 0
    for part in message["content"]:
        drop = dropped < most and _is_picture(part)
        dropped += drop
        parts.append({"type": "text", "text": PLACEHOLDER} if drop else part)
    return {**message, "content": parts}


def _is_picture(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "image_url"
