"""The vectors of passages on disk, and the exact search among them. Readers map them into memory.

The part has two files: ``vectors.f32``, a row of numbers for each passage, and ``vectors.json`` with their shape.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from benchmark.whole_file import write_whole
from rollout_tasks.retrieval.embeddings import BATCH, Embedder
from rollout_tasks.retrieval.errors import RetrievalError
from rollout_tasks.retrieval.passages import Passage, PassageStore
from rollout_tasks.retrieval.progress import Progress, Say

if TYPE_CHECKING:
    from rollout_tasks.retrieval.embeddings import Vectors

_VECTORS, _SHAPE = "vectors.f32", "vectors.json"
_IN_FLIGHT = 4
"""Requests at the same time."""
_BLOCK_NUMBERS = 1 << 23
"""How many scores are computed at a time."""


def embedded_text(passage: Passage) -> str:
    """Returns what is embedded of a passage."""
    return f"{passage.title}\n{passage.text}" if passage.title else passage.text


def write_vectors(folder: Path, passages: PassageStore, embedder: Embedder, say: Say) -> None:
    """Embeds all passages.

    Raises:
        RetrievalError: The endpoint does not answer, or not with such vectors.
    """
    progress = Progress(say, f"embedding {len(passages):,} passages with {embedder.model}", len(passages))
    dimension: int | None = None
    with (folder / _VECTORS).open("wb") as file:
        for vectors in _batches(passages, embedder):
            dimension = dimension or vectors.shape[1]
            if vectors.shape[1] != dimension:
                raise RetrievalError(
                    f"embeddings of {embedder.model!r}: some have {vectors.shape[1]} numbers, others {dimension}"
                )
            file.write(vectors.astype("<f4").tobytes())
            progress.add(len(vectors))
    write_whole(folder / _SHAPE, json.dumps([len(passages), dimension]))


def _batches(passages: PassageStore, embedder: Embedder) -> Iterator[Vectors]:
    """Yields the vectors of all passages, in their order; a few requests are under way at a time."""
    waiting: deque[Future[Vectors]] = deque()
    threads = ThreadPoolExecutor(_IN_FLIGHT, thread_name_prefix="embeddings")
    try:
        for first in range(0, len(passages), BATCH):
            rows = range(first, min(first + BATCH, len(passages)))
            texts = [embedded_text(passages[row]) for row in rows]
            waiting.append(threads.submit(embedder.embed, texts))
            if len(waiting) == _IN_FLIGHT:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        threads.shutdown(wait=False, cancel_futures=True)


class VectorIndex:
    """Searches vectors: the passages with the largest cosine similarity, without approximation."""

    def __init__(self, folder: Path, rows: int) -> None:
        """Maps the vectors of a folder.

        Args:
            folder: Where `write_vectors` wrote them.
            rows: How many passages there are.

        Raises:
            RetrievalError: They are damaged.
        """
        import numpy as np  # here, because a lexical search needs none of it

        try:
            stored, dimension = json.loads((folder / _SHAPE).read_text(encoding="utf-8"))
            if stored != rows:
                raise ValueError(f"it has {stored} vectors of {rows} passages")
            self._matrix = np.memmap(folder / _VECTORS, dtype="<f4", mode="r", shape=(rows, dimension))
        except (OSError, ValueError, TypeError) as error:
            raise RetrievalError(f"{folder}: the index is damaged, remove it: {error}") from error
        self.dimension = int(dimension)

    def search(self, queries: Vectors, k: int) -> list[list[tuple[int, float]]]:
        """Returns for each query the rows of the nearest passages with their similarities, the nearest first.

        Args:
            queries: An array of shape ``[queries, dimension]``, each of length 1.
            k: How many.
        """
        import numpy as np  # here, as in `__init__`

        best_rows = np.empty((len(queries), 0), np.int64)
        best = np.empty((len(queries), 0), np.float32)
        block = max(1, _BLOCK_NUMBERS // max(1, len(queries)))
        for first in range(0, len(self._matrix), block):
            scores = queries @ self._matrix[first : first + block].T
            rows = np.broadcast_to(np.arange(first, first + scores.shape[1]), scores.shape)
            best, best_rows = np.hstack([best, scores]), np.hstack([best_rows, rows])
            if best.shape[1] > k:
                kept = np.argpartition(-best, k - 1, axis=1)[:, :k]
                best, best_rows = np.take_along_axis(best, kept, 1), np.take_along_axis(best_rows, kept, 1)
        order = np.lexsort((best_rows, -best), axis=1)
        best, best_rows = np.take_along_axis(best, order, 1), np.take_along_axis(best_rows, order, 1)
        return [
            [(int(row), float(score)) for row, score in zip(*both, strict=True)]
            for both in zip(best_rows, best, strict=True)
        ]
