"""Embeddings from a real endpoint: what is asked, what is tried again, and what is no answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from rollout_tasks.retrieval import json_endpoint
from rollout_tasks.retrieval.embeddings import BATCH, Embedder
from rollout_tasks.retrieval.errors import RetrievalError
from tests.conftest import free_port
from tests.embedding_endpoint import DIMENSION, EmbeddingEndpoint, embedding, said
from tests.hostile.random_replies.answers import Answer, Sent

KEY = "sk-a-key-that-nobody-may-see"


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddingEndpoint]:
    monkeypatch.setattr(json_endpoint, "_FIRST_PAUSE", 0.01)
    made = EmbeddingEndpoint()
    yield made
    made.close()


def embedder(endpoint: EmbeddingEndpoint) -> Embedder:
    return Embedder("small", endpoint.url, KEY)


def test_texts_go_out_in_batches_and_come_back_in_order(endpoint: EmbeddingEndpoint) -> None:
    texts = [f"word{number} dog" for number in range(BATCH + 3)]

    vectors = embedder(endpoint).embed(texts)

    expected = np.array([embedding(text) for text in texts])
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(vectors, expected, atol=1e-6)
    assert [len(fields["input"]) for _, fields in endpoint.requests] == [BATCH, 3]
    request, fields = endpoint.requests[0]
    assert (request.path, fields["model"], fields["encoding_format"]) == ("/v1/embeddings", "small", "float")
    assert request.headers["Authorization"] == f"Bearer {KEY}"


def test_what_may_pass_is_tried_again(endpoint: EmbeddingEndpoint) -> None:
    endpoint.faults = [
        lambda _: said({}, status=503),
        lambda _: said({}, status=429),
        lambda _: [b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"],
    ]

    assert embedder(endpoint).embed(["dog"]).shape == (1, DIMENSION)
    assert len(endpoint.requests) == 4


def test_what_does_not_pass_is_given_up(endpoint: EmbeddingEndpoint) -> None:
    endpoint.each = lambda _: said({"error": "busy"}, status=503)

    with pytest.raises(
        RetrievalError, match=r"^embeddings of 'small' at http://.*/v1/embeddings: HTTP 503: .* \(5 tries\)$"
    ):
        embedder(endpoint).embed(["dog"])
    assert len(endpoint.requests) == 5


def test_a_refusal_is_not_tried_again_and_shows_no_key(endpoint: EmbeddingEndpoint) -> None:
    endpoint.each = lambda _: said({"error": f"wrong key {KEY}"}, status=401)

    with pytest.raises(RetrievalError, match="HTTP 401") as refused:
        embedder(endpoint).embed(["dog"])

    assert len(endpoint.requests) == 1
    assert KEY not in str(refused.value)


def test_an_endpoint_that_says_nothing_is_left_after_its_time(
    endpoint: EmbeddingEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_endpoint, "TRY_SECONDS", 0.1)
    monkeypatch.setattr(json_endpoint, "TRIES", 2)
    endpoint.each = lambda _: [b"HTTP/1.1 200 OK\r\n", 60.0]

    with pytest.raises(RetrievalError, match=r"no answer within 0\.1 s \(2 tries\)"):
        embedder(endpoint).embed(["dog"])


def test_an_endpoint_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_endpoint, "_FIRST_PAUSE", 0.01)
    port = free_port()

    with pytest.raises(RetrievalError, match=rf"http://127\.0\.0\.1:{port}/v1/embeddings: cannot be reached"):
        Embedder("small", f"http://127.0.0.1:{port}/v1", "").embed(["dog"])


def vectors(*rows: object) -> Callable[[dict[str, Any]], Sent]:
    return lambda _: said({"data": [{"index": place, "embedding": row} for place, row in enumerate(rows)]})


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (lambda _: Answer(b"<html>"), "it answered '<html>', which is not JSON"),
        (lambda _: said([]), "it answered without a list of embeddings (data)"),
        (lambda _: said({"data": [1, 2]}), "it answered without a list of embeddings (data)"),
        (vectors([1.0, 2.0]), "it answered with 1 embeddings of 2 texts"),
        (
            lambda _: said({"data": [{"index": 0, "embedding": [1.0]}] * 2}),
            "it answered with embeddings whose numbers (index) are not those of the texts",
        ),
        (
            lambda _: said({"data": [{"index": "0", "embedding": [1.0]}, {"index": "1", "embedding": [1.0]}]}),
            "it answered with embeddings whose numbers (index) are not those of the texts",
        ),
        (vectors([1.0, 2.0], [1.0]), "it answered with a vector of 1 numbers where others have 2"),
        (vectors([1.0, 2.0], [1.0, None]), "something else than finite numbers"),
        (vectors([1.0, 2.0], [1.0, True]), "something else than finite numbers"),
        (lambda _: Answer(b'{"data": [{"embedding": [NaN]}, {"embedding": [1.0]}]}'), "which is not JSON"),
        (vectors([1.0, 2.0], []), "an embedding that is not a list of numbers"),
        (vectors([1.0, 2.0], "AAAA"), "an embedding that is not a list of numbers"),
        (vectors([1.0, 2.0], [0.0, 0.0]), "a vector whose length is 0, or too large"),
        (vectors([1.0, 2.0], [1e38, 1e300]), "a vector whose length is 0, or too large"),
    ],
)
def test_nonsense_is_named(
    endpoint: EmbeddingEndpoint, answer: Callable[[dict[str, Any]], Sent], sentence: str
) -> None:
    endpoint.each = answer

    with pytest.raises(RetrievalError) as refused:
        embedder(endpoint).embed(["dog", "cat"])

    assert sentence in str(refused.value)
    assert str(refused.value).startswith("embeddings of 'small' at http://127.0.0.1:")
    assert len(endpoint.requests) == 1


def test_another_dimension_than_the_index_has_is_refused(endpoint: EmbeddingEndpoint) -> None:
    with pytest.raises(RetrievalError, match="with a vector of 64 numbers where others have 16"):
        embedder(endpoint).embed(["dog"], 16)
