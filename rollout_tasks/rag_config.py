"""The options of runs that search a corpus. The endpoint of embeddings and the tokens are in `settings`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import ValidationInfo, field_validator

from rollout_tasks.config_fields import FilePath, Part, check_url, option
from rollout_tasks.validation_messages import shown


class RagConfig(Part):
    """What the `rag` environment searches, and how."""

    corpus: FilePath | None = option(
        None,
        "What rag searches: JSONL, JSON, Parquet or text, a file or a folder of them; at the same path on each worker.",
        "--corpus",
    )
    retriever: str | None = option(
        None, "A server in place of a corpus, as in http://HOST:8000 (rollouts retriever serve).", "--retriever"
    )
    retrieval: Literal["lexical", "dense", "fused"] = option(
        "lexical", "How a corpus is searched: by words, by embeddings, or both.", "--retrieval"
    )
    embedding_model: str | None = option(
        None, "The model of the embeddings; its endpoint is ROLLOUT_EMBEDDINGS_URL.", "--embedding-model", min_length=1
    )
    chunk_words: int = option(200, "Words of a passage at most.", "--chunk-words", ge=1, le=100_000)
    chunk_overlap: int | None = option(
        None, "Words that a passage shares with the one before. Default: a fifth of them.", "--chunk-overlap", ge=0
    )

    @field_validator("corpus")
    @classmethod
    def _whole_path(cls, corpus: Path | None) -> Path | None:
        return None if corpus is None else corpus.absolute()

    @field_validator("retriever")
    @classmethod
    def _instead_of_a_corpus(cls, url: str | None, info: ValidationInfo) -> str | None:
        if url is None:
            return None
        if info.data.get("corpus") is not None:
            raise ValueError("takes the place of --corpus: give one of them")
        return check_url(url, variable="ROLLOUT_RETRIEVER_TOKEN")

    @field_validator("chunk_overlap")
    @classmethod
    def _leaves_something_new(cls, overlap: int | None, info: ValidationInfo) -> int | None:
        words = info.data.get("chunk_words")
        if overlap is not None and words is not None and overlap >= words:
            raise ValueError(f"must be less than --chunk-words, which is {words}, got {shown(overlap)}")
        return overlap

    @property
    def overlap(self) -> int:
        """Words that a passage shares with the one before."""
        return self.chunk_words // 5 if self.chunk_overlap is None else self.chunk_overlap
