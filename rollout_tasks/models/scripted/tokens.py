"""A simple tokeniser: words with the blanks before them; the same words have the same ids.

As with a real chat template, a conversation's tokens start with those of the turns before: the prompt of turn k+1
begins with the prompt and completion of turn k.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_SPECIAL = {
    piece: number
    for number, piece in enumerate(
        ("<|end|>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>", "<|tool_call|>", "<|image|>")
    )
}
_FIRST_WORD_ID = 16
_VOCABULARY = 150_000
_WORD = re.compile(r"\s*\S+|\s+\Z")


@dataclass(frozen=True, slots=True)
class Token:
    """One token."""

    id: int
    text: str

    @property
    def logprob(self) -> float:
        """Returns a log-probability in (-1, 0) that only depends on the token."""
        return -(self.id % 997 + 1) / 1000


def prompt_pieces(messages: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Returns the conversation as pieces of text, up to where the assistant begins."""
    for message in messages:
        yield f"<|{message.get('role')}|>"
        yield from completion_pieces(message)
    yield "<|assistant|>"


def completion_pieces(message: Mapping[str, Any]) -> Iterator[str]:
    """Returns one message as pieces of text, without its role."""
    content = message.get("content")
    for part in content if isinstance(content, list) else [content]:
        if isinstance(part, str):
            yield part
        elif isinstance(part, dict):
            yield part["text"] if isinstance(part.get("text"), str) else "<|image|>"
    for call in message.get("tool_calls") or ():
        yield "<|tool_call|>"
        yield json.dumps(call.get("function"))
    yield "<|end|>"


def tokenise(pieces: Iterable[str]) -> list[Token]:
    """Turns pieces into tokens, whose texts joined are the pieces joined."""
    tokens: list[Token] = []
    for piece in pieces:
        if piece in _SPECIAL:
            tokens.append(Token(_SPECIAL[piece], piece))
        else:
            tokens.extend(Token(_word_id(word), word) for word in _WORD.findall(piece))
    return tokens


def count(pieces: Iterable[str]) -> int:
    """Returns how many tokens `tokenise` would return, faster."""
    return sum(1 if piece in _SPECIAL else len(piece.split()) + piece[-1:].isspace() for piece in pieces)


def _word_id(word: str) -> int:
    return _FIRST_WORD_ID + zlib.crc32(word.encode(errors="surrogatepass")) % _VOCABULARY
