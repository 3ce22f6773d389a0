"""The index of a corpus: built once for each content and each set of options, and searched in one of three ways.

``lexical`` compares words (BM25), ``dense`` embeddings; ``fused`` adds up what a passage's place in both lists is worth.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

from benchmark.whole_file import write_whole
from rollout_tasks.per_process import per_process
from rollout_tasks.rag_config import RagConfig
from rollout_tasks.retrieval import lexical
from rollout_tasks.retrieval.cache import part
from rollout_tasks.retrieval.corpus import Corpus, find_corpus
from rollout_tasks.retrieval.embeddings import Embedder, environments_embedder
from rollout_tasks.retrieval.lexical import LexicalIndex, LexicalWriter
from rollout_tasks.retrieval.passages import Hit, PassageStore, PassageWriter, divide
from rollout_tasks.retrieval.progress import Say, silent
from rollout_tasks.retrieval.vectors import VectorIndex, write_vectors

_FORMAT = 1
"""Counts changes of how passages are made and stored."""
_LEXICAL = "lexical"
_FUSED_DEPTH = 100
"""How far down a passage counts in each of two lists that are fused."""
_RANK_OFFSET = 60
"""The usual constant of reciprocal rank fusion: how much less a place at the top is better than the next."""

Ranked = Sequence[tuple[int, float]]
"""Rows with their scores, the best first."""


class Retriever(Protocol):
    """Finds passages."""

    def search(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        """Returns for each query at most `k` passages, the best first.

        Raises:
            RetrievalError: An endpoint that is asked for that does not answer as it should.
        """


class Index:
    """An open index; a `Retriever`. Thread-safe; a process that forks lets its children open their own."""

    def __init__(self, passages: Path, vectors: Path | None, options: RagConfig) -> None:
        """Maps the files of an index.

        Args:
            passages: The part with passages and lexical index.
            vectors: The part with their vectors; None if it is searched lexically.
            options: How it is searched.

        Raises:
            RetrievalError: A part is damaged, or a package is missing.
        """
        self._mode = options.retrieval
        self.passages = PassageStore(passages)
        self._lexical = LexicalIndex(passages / _LEXICAL)
        self._vectors = VectorIndex(vectors, len(self.passages)) if vectors is not None else None
        self._embedder = environments_embedder(options.embedding_model) if vectors is not None else None

    def search(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        """See `Retriever`."""
        return [[Hit(self.passages[row], score) for row, score in ranked] for ranked in self._rank(queries, k)]

    def _rank(self, queries: Sequence[str], k: int) -> list[Ranked]:
        if self._vectors is None or self._embedder is None:
            return [self._lexical.search(query, k) for query in queries]
        if self._mode == "dense":
            return self._dense(self._vectors, self._embedder, queries, k)
        depth = max(k, _FUSED_DEPTH)
        dense = self._dense(self._vectors, self._embedder, queries, depth)
        found = [self._lexical.search(query, depth) for query in queries]
        return [fused(both)[:k] for both in zip(found, dense, strict=True)]

    @staticmethod
    def _dense(vectors: VectorIndex, embedder: Embedder, queries: Sequence[str], k: int) -> list[Ranked]:
        asked = [place for place, query in enumerate(queries) if query.strip()]  # endpoints refuse empty texts
        ranked: list[Ranked] = [[] for _ in queries]
        if asked:
            embedded = embedder.embed([queries[place] for place in asked], vectors.dimension)
            for place, one in zip(asked, vectors.search(embedded, k), strict=True):
                ranked[place] = one
        return ranked


def fused(lists: Iterable[Ranked]) -> list[tuple[int, float]]:
    """Returns the rows of several lists by reciprocal rank fusion: each place is worth ``1 / (60 + rank)``."""
    worth: dict[int, float] = defaultdict(float)
    for ranked in lists:
        for rank, (row, _) in enumerate(ranked, 1):
            worth[row] += 1 / (_RANK_OFFSET + rank)
    return sorted(worth.items(), key=lambda one: (-one[1], one[0]))


def open_index(options: RagConfig, say: Say = silent) -> Index:
    """Returns the index of a corpus, which is built if it is not in the cache.

    Args:
        options: The corpus, and how it is divided and searched.
        say: Gets a sentence now and then while it is built.

    Raises:
        RetrievalError: The corpus, the endpoint for embeddings or the cache cannot be used.
        UserError: A key cannot be sent in a header.
    """
    passages, vectors = _parts(options, say)
    return _opened(passages, vectors, options)


def corpus_sha256(options: RagConfig) -> str:
    """Returns the hash of the corpus's content.

    Raises:
        RetrievalError: It cannot be read.
    """
    return _corpus(options).sha256(silent)


@per_process
def _opened(passages: Path, vectors: Path | None, options: RagConfig) -> Index:
    return Index(passages, vectors, options)


def _corpus(options: RagConfig) -> Corpus:
    if options.corpus is None:
        raise ValueError("there is no corpus")
    return find_corpus(options.corpus)


def _parts(options: RagConfig, say: Say) -> tuple[Path, Path | None]:
    """Returns the folders of passages and vectors; builds what is missing."""
    corpus = _corpus(options)
    embedder = environments_embedder(options.embedding_model) if options.retrieval != "lexical" else None
    made_from = [_FORMAT, lexical.version(), corpus.sha256(say), options.chunk_words, options.overlap]
    name = f"passages-{_key(made_from)}"
    passages = part(name, lambda folder: _write_passages(folder, corpus, options, say), say)
    if embedder is None:
        return passages, None
    name = f"vectors-{_key([*made_from, embedder.model])}"
    return passages, part(name, lambda folder: write_vectors(folder, PassageStore(passages), embedder, say), say)


def _write_passages(folder: Path, corpus: Corpus, options: RagConfig, say: Say) -> None:
    (folder / _LEXICAL).mkdir()
    with PassageWriter(folder) as store, LexicalWriter(folder / _LEXICAL) as index:
        for document in corpus.documents(say):
            for passage in divide(document, options.chunk_words, options.overlap):
                index.add(store.add(passage), passage)
        store.finish()
        index.finish()
    about = {"corpus": str(corpus.path), "chunk_words": options.chunk_words, "chunk_overlap": options.overlap}
    write_whole(folder / "index.json", json.dumps({**about, "passages": len(store)}, indent=2) + "\n")


def _key(made_from: Sequence[object]) -> str:
    return hashlib.sha256(json.dumps(made_from).encode()).hexdigest()[:32]
