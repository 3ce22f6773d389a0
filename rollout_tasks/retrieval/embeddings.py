"""Embeddings of texts, from any endpoint that speaks OpenAI's `/embeddings`; every vector is checked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from rollout_tasks.config_fields import check_url
from rollout_tasks.retrieval.errors import RetrievalError
from rollout_tasks.retrieval.json_endpoint import JsonEndpoint, NotAnAnswer
from rollout_tasks.settings import checked_key, settings

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vectors = NDArray[np.float32]

BATCH = 64
"""Texts of one request."""
_OPENAI = "https://api.openai.com/v1"
_MOST_DIMENSIONS = 65_536


class Embedder:
    """Asks one model for embeddings. Thread-safe."""

    def __init__(self, model: str, base_url: str, key: str) -> None:
        """Sends nothing yet.

        Args:
            model: The model's name.
            base_url: The endpoint, as in ``http://127.0.0.1:8000/v1``.
            key: Its key; empty if it needs none.
        """
        self.model = model
        self._endpoint = JsonEndpoint(f"{base_url.rstrip('/')}/embeddings", key, f"embeddings of {model!r}")

    def embed(self, texts: Sequence[str], dimension: int | None = None) -> Vectors:
        """Returns the texts' vectors, each of length 1.

        Args:
            texts: Any number of texts; they are sent in batches.
            dimension: How many numbers each vector must have; default: all as many as the first.

        Returns:
            An array of shape ``[len(texts), dimension]``.

        Raises:
            RetrievalError: The endpoint does not answer, or not with such vectors.
        """
        import numpy as np  # here, because a lexical search needs none of it

        batches = []
        for first in range(0, len(texts), BATCH):
            batch = texts[first : first + BATCH]
            vectors = self._endpoint.post(
                {"model": self.model, "input": list(batch), "encoding_format": "float"},
                partial(_vectors, count=len(batch), dimension=dimension),
            )
            dimension = vectors.shape[1]
            batches.append(vectors)
        return np.concatenate(batches) if batches else np.empty((0, dimension or 0), np.float32)


def environments_embedder(model: str | None) -> Embedder:
    """Returns the embedder whose endpoint and key the environment names.

    The key of the run's model is sent to that model's endpoint alone.

    Raises:
        RetrievalError: There is no model, or no endpoint.
        UserError: The key cannot be sent in a header.
    """
    if not model:
        raise RetrievalError("--embedding-model: searching with embeddings needs a model")
    known = settings()
    own = known.embeddings_key.get_secret_value() if known.embeddings_key is not None else ""
    key = checked_key(own, "ROLLOUT_EMBEDDINGS_KEY")
    url = known.embeddings_url
    if url is None:
        shared = known.openai_api_key.get_secret_value() if known.openai_api_key is not None else ""
        key = key or checked_key(shared)
        url = known.openai_base_url or (_OPENAI if key else None)
    if url is None:
        raise RetrievalError(
            "--embedding-model: no endpoint for embeddings is configured: set ROLLOUT_EMBEDDINGS_URL, as in"
            " http://127.0.0.1:8000/v1"
        )
    try:
        return Embedder(model, check_url(url, variable="ROLLOUT_EMBEDDINGS_KEY"), key)
    except ValueError as error:
        raise RetrievalError(
            f"the endpoint for embeddings {error} (ROLLOUT_EMBEDDINGS_URL, OPENAI_BASE_URL)"
        ) from error


def _vectors(answer: Any, count: int, dimension: int | None) -> Vectors:
    """Returns the vectors of one batch, in the order of its texts.

    Raises:
        NotAnAnswer: They are not such vectors; the message says why.
    """
    import numpy as np  # here, as in `Embedder.embed`

    data = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(data, list) or not all(isinstance(one, dict) for one in data):
        raise NotAnAnswer("without a list of embeddings (data)")
    if len(data) != count:
        raise NotAnAnswer(f"with {len(data)} embeddings of {count} texts")
    places = [one.get("index", number) for number, one in enumerate(data)]
    if not all(type(place) is int for place in places) or sorted(places) != list(range(count)):
        raise NotAnAnswer("with embeddings whose numbers (index) are not those of the texts")
    rows: list[list[float]] = [[]] * count
    for place, one in zip(places, data, strict=True):
        rows[place] = _numbers(one.get("embedding"))
    wanted = dimension or len(rows[0])
    if wrong := [len(row) for row in rows if len(row) != wanted]:
        raise NotAnAnswer(f"with a vector of {wrong[0]} numbers where others have {wanted}")
    with np.errstate(over="ignore"):
        vectors = np.asarray(rows, np.float32)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    if not np.isfinite(lengths).all() or not lengths.all():
        raise NotAnAnswer("with a vector whose length is 0, or too large")
    return np.asarray(vectors / lengths, np.float32)


def _numbers(value: Any) -> list[float]:
    if not isinstance(value, list) or not 1 <= len(value) <= _MOST_DIMENSIONS:
        raise NotAnAnswer("with an embedding that is not a list of numbers")
    if not all(type(one) in (int, float) and math.isfinite(one) for one in value):
        raise NotAnAnswer("with an embedding that has something else than finite numbers")
    return value
