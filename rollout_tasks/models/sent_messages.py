"""Prompts: a conversation without what is left out of it. Recorded prompts are rebuilt in the same way."""

from __future__ import annotations

import json
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rollout_tasks.models.base import Message

PLACEHOLDER = "(An older screenshot was here. It is left out.)"
"""Stands where a picture was. Recorded prompts are rebuilt with it, so a change needs a way to tell older records."""
EMPTY_REPLY = "(This reply was empty.)"
"""Stands where a reply of the model had neither a text nor a call. Recorded prompts are rebuilt with it, too."""
KEPT_OF_CUT_OFF = 2_000
"""Characters that agents send back of a reply that was cut off: all of it may fill the model's context, and was too long anyway."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What a prompt leaves out of a conversation; without arguments, what agents leave out that say nothing about it."""

    pictures: int = 0
    """How many; always the oldest ones, counted through all messages, each replaced by `PLACEHOLDER`."""
    thinking: bool = True
    """Whether the model's thinking of earlier turns is left out."""
    cut_off_after: int | None = None
    """To how many characters replies that were cut off at a token limit are shortened, and their thinking; None: not at all."""
    unreadable_arguments: bool = False
    """Whether arguments of calls that are not JSON objects are replaced by `{}`. Some endpoints refuse any conversation that
    has them, and the model is told in the call's result.
    """
    empty_replies: bool = False
    """Whether replies with neither a text nor a call are replaced by `EMPTY_REPLY`. Some endpoints refuse any conversation
    that has them, and templates of some models two messages of the user in a row.
    """


def pictures_in(message: Message) -> int:
    """Returns how many pictures a message has."""
    content = message.get("content")
    return sum(map(_is_picture, content)) if isinstance(content, list) else 0


def sent_messages(
    messages: Sequence[Message],
    thinking: Mapping[int, Mapping[str, str]],
    left_out: LeftOut,
    cut_off: Container[int] = (),
) -> list[Message]:
    """Returns a conversation as it is sent. Messages keep their places, and so do the parts of each.

    Args:
        messages: The whole conversation; it is not changed.
        thinking: What the model thought before messages of its own (`Reply.thinking`), by their index.
        left_out: What the prompt does not have.
        cut_off: Indices of the model's messages that were cut off at a token limit.
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
        if left_out.cut_off_after is not None and index in cut_off:
            message = _beginning(message, left_out.cut_off_after)
        if left_out.unreadable_arguments and isinstance(calls := message.get("tool_calls"), list):
            message = {**message, "tool_calls": [_with_readable_arguments(call) for call in calls]}
        if left_out.empty_replies and _is_empty_reply(message):
            message = {**message, "content": EMPTY_REPLY}
        sent.append(message)
    return sent


def _is_empty_reply(message: Message) -> bool:
    if message.get("role") != "assistant" or message.get("tool_calls"):
        return False
    content = message.get("content")
    return content is None or (isinstance(content, str) and not content.strip())


def _beginning(message: Message, most: int) -> Message:
    """Returns a message with the beginning of its texts. Calls stay, but for long arguments that are cut off themselves."""
    shortened = {
        name: text[:most] if isinstance(text, str) and name != "role" else text for name, text in message.items()
    }
    if isinstance(calls := message.get("tool_calls"), list):
        shortened["tool_calls"] = [_with_whole_arguments(call, most) for call in calls]
    return shortened


def _with_whole_arguments(call: Any, most: int) -> Any:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return call
    arguments = function.get("arguments")
    if not isinstance(arguments, str) or len(arguments) <= most:
        return call
    try:
        json.loads(arguments)
    except (ValueError, RecursionError):
        return _without_arguments(call)
    return call


def _with_readable_arguments(call: Any) -> Any:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return call
    try:
        readable = isinstance(json.loads(str(function.get("arguments")), parse_constant=_refuse), dict)
    except (ValueError, RecursionError):
        readable = False
    return call if readable else _without_arguments(call)


def _refuse(constant: str) -> None:
    """Refuses ``NaN`` and ``Infinity``, which Python reads and others do not."""
    raise ValueError(constant)


def _without_arguments(call: Any) -> Any:
    return {**call, "function": {**call["function"], "arguments": "{}"}}


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
