"""What messages say, whichever API they are of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from rollout_tasks.models.base import Message

_TEXTS = {"output_text": "text", "refusal": "refusal", "text": "text"}
"""Parts of a reply that the user is to read, and the field of the text."""


def reply_text(message: Message) -> str:
    """Returns what a model said in a reply, without thinking and calls."""
    return "\n\n".join(_texts(_parts(message), _TEXTS))


def reply_thinking(message: Message) -> str:
    """Returns what a model thought, as far as a reply of the Messages or the Responses API has it."""
    thought = [*_texts(_parts(message), {"thinking": "thinking"})]
    for item in _items(message):
        if item.get("type") == "reasoning":
            thought += _texts([*_list(item.get("summary")), *_list(item.get("content"))], _REASONING)
    return "\n\n".join(thought)


_REASONING = {"reasoning_text": "text", "summary_text": "text"}


def _parts(message: Message) -> Iterator[Any]:
    content = message.get("content")
    if isinstance(content, str):
        yield {"type": "text", "text": content}
    yield from _list(content)
    for item in _items(message):
        yield from _list(item.get("content"))


def _items(message: Message) -> Iterator[Message]:
    """Yields the items of a reply of the Responses API."""
    for item in _list(message.get("output")):
        if isinstance(item, dict):
            yield item


def _texts(parts: Iterable[Any], kinds: dict[str, str]) -> Iterator[str]:
    for part in parts:
        kind = part.get("type") if isinstance(part, dict) else None
        text = part.get(kinds[kind]) if isinstance(kind, str) and kind in kinds else None
        if isinstance(text, str) and text:
            yield text


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
