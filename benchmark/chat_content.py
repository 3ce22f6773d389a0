"""What a model said, from the content of its Chat Completions message: a text, or parts as Mistral's thinking models write them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

MOST_PARTS = 1_000
"""Of a content."""


@dataclass(frozen=True, slots=True)
class ChatContent:
    """A message's content."""

    text: str
    thinking: str = ""
    """What the parts for thinking say."""


def read_content(content: Any) -> ChatContent:
    """Reads a content. Parts that are neither text nor thinking, such as references, are left out.

    Args:
        content: As `json.loads` returns it.

    Raises:
        ValueError: It is neither a text nor a list of parts, or has too many, or one without its text.
    """
    if isinstance(content, str):
        return ChatContent(content)
    return ChatContent(_joined(content, "text"), _joined(content, "thinking"))


def _joined(parts: Any, kind: str) -> str:
    """Returns the text of all parts of a kind; that of thinking is in parts again, or a text."""
    if not isinstance(parts, list) or len(parts) > MOST_PARTS or not all(isinstance(part, dict) for part in parts):
        raise ValueError(f"not a list of at most {MOST_PARTS} parts")
    texts = [part.get(kind) for part in parts if part.get("type") == kind]
    if kind == "thinking":
        texts = [_joined(text, "text") if isinstance(text, list) else text for text in texts]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError(f"a part of the type {kind} has no text")
    return "".join(map(str, texts))
