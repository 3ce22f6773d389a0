"""A real HTTP endpoint for embeddings: a stand-in for a model, whose vectors are sums of fixed vectors of a text's words."""

from __future__ import annotations

import hashlib
import json
import re
import struct
from collections.abc import Callable
from typing import Any

from tests.hostile.random_replies.answers import Answer, AnswerServer, Request, Sent

DIMENSION = 64
_SYNONYMS = {"dog": "hound", "quick": "fast"}
"""Words with the vector of another one, as a model has it and a search for words has not."""


def embedding(text: str) -> list[float]:
    """The vector of a text, the same in every process."""
    total = [0.0] * DIMENSION
    for word in re.findall(r"\w+", text.lower()):
        drawn = hashlib.shake_128(_SYNONYMS.get(word, word).encode()).digest(2 * DIMENSION)
        for place, number in enumerate(struct.unpack(f"<{DIMENSION}h", drawn)):
            total[place] += number / 32768
    return total


class EmbeddingEndpoint:
    """Answers as a model would, until it is told something else, and keeps the requests."""

    def __init__(self) -> None:
        self.requests: list[tuple[Request, dict[str, Any]]] = []
        self.faults: list[Callable[[dict[str, Any]], Sent]] = []
        """What it answers first, each to one request."""
        self.each: Callable[[dict[str, Any]], Sent] | None = None
        """What it answers to all others, if not as a model would."""
        self._server = AnswerServer(self._answer)
        self.url = f"http://127.0.0.1:{self._server.port}/v1"

    def close(self) -> None:
        self._server.close()
        assert self._server.mistakes == []

    def _answer(self, request: Request) -> Sent:
        fields = json.loads(request.body)
        self.requests.append((request, fields))
        if self.faults:
            return self.faults.pop(0)(fields)
        return self.each(fields) if self.each else as_a_model(fields)


def as_a_model(fields: dict[str, Any]) -> Answer:
    data = [{"index": place, "embedding": embedding(text)} for place, text in enumerate(fields["input"])]
    return said({"object": "list", "data": data[::-1]})  # the order is free: the index counts


def said(value: object, **more: Any) -> Answer:
    return Answer(json.dumps(value).encode(), **more)
