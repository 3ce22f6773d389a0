"""Search-R1's retrieval protocol: its documents, and a client of servers that speak it, such as Search-R1's own.

POST /retrieve {"queries": [...], "topk": 3, "return_scores": true} -> {"result": [[{"document": {...}, "score": 1.5}]]}
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from rollout_tasks.retrieval.documents import split_contents
from rollout_tasks.retrieval.json_endpoint import JsonEndpoint, NotAnAnswer
from rollout_tasks.retrieval.passages import Hit, Passage

PATH = "/retrieve"
_LONGEST_ID = 500
_LONGEST_TEXT = 1_000_000
"""Characters."""


def as_document(passage: Passage) -> dict[str, str]:
    """Returns a passage as a document of the protocol: the first line of its ``contents`` is the title, or the document's id."""
    return {
        "id": passage.id,
        "document_id": passage.document_id,
        "title": passage.title,
        "text": passage.text,
        "contents": f'"{passage.title or passage.document_id}"\n{passage.text}',
    }


class RemoteRetriever:
    """Asks a server; a `Retriever`. Thread-safe."""

    def __init__(self, url: str, token: str) -> None:
        """Sends nothing yet.

        Args:
            url: The server's address, with or without ``/retrieve``.
            token: Sent as a bearer token; empty if it needs none.
        """
        address = url.rstrip("/")
        self._endpoint = JsonEndpoint(address if address.endswith(PATH) else address + PATH, token, "the retriever")

    def search(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        """See `Retriever`."""
        fields = {"queries": list(queries), "topk": k, "return_scores": True}
        return self._endpoint.post(fields, partial(_hits, count=len(queries), k=k))


def _hits(answer: Any, count: int, k: int) -> list[list[Hit]]:
    result = answer.get("result") if isinstance(answer, dict) else None
    if not isinstance(result, list) or not all(isinstance(one, list) for one in result):
        raise NotAnAnswer("without lists of documents (result)")
    if len(result) != count:
        raise NotAnAnswer(f"with results of {len(result)} queries instead of {count}")
    return [[_hit(one, place) for place, one in enumerate(found[:k], 1)] for found in result]


def _hit(one: Any, place: int) -> Hit:
    document = one.get("document") if isinstance(one, dict) else None
    if not isinstance(document, dict):
        raise NotAnAnswer("with a result that has no document")
    score = one.get("score")
    if type(score) not in (int, float) or not math.isfinite(score):
        raise NotAnAnswer("with a document whose score is not a number")
    title, text = document.get("title") or "", document.get("text")
    if text is None and isinstance(document.get("contents"), str):
        title, text = split_contents(document["contents"])
    if not isinstance(text, str) or not isinstance(title, str) or len(text) + len(title) > _LONGEST_TEXT:
        raise NotAnAnswer("with a document that has neither text nor contents")
    name = str(document.get("id", place))[:_LONGEST_ID]
    return Hit(Passage(name, str(document.get("document_id", name))[:_LONGEST_ID], title, text), float(score))
