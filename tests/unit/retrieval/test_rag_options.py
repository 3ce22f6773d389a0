"""The options of rag: what is refused, by its spelling."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from rollout_tasks.config import parse_config
from rollout_tasks.environments.rag.environment import RagEnvironment
from rollout_tasks.errors import UserError
from rollout_tasks.retrieval.embeddings import environments_embedder
from rollout_tasks.retrieval.errors import RetrievalError


def test_a_corpus_is_named_by_its_whole_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)

    assert parse_config({"rag": {"corpus": "c.jsonl"}}).rag.corpus == tmp_path / "c.jsonl"


@pytest.mark.parametrize(
    ("options", "overlap"),
    [({}, 40), ({"chunk_words": 12}, 2), ({"chunk_words": 1}, 0), ({"chunk_words": 10, "chunk_overlap": 9}, 9)],
)
def test_passages_overlap_by_a_fifth_unless_told_otherwise(options: dict[str, Any], overlap: int) -> None:
    assert parse_config({"rag": options}).rag.overlap == overlap


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"corpus": "c", "retriever": "http://a"}, "--retriever: takes the place of --corpus: give one of them"),
        ({"retriever": "localhost"}, "--retriever: must look like http://host:port/v1"),
        ({"retriever": "http://me:hunter2@a"}, "--retriever: must not carry a user, password or query"),
        ({"retrieval": "magic"}, "--retrieval: must be lexical, dense or fused, got 'magic'"),
        ({"chunk_words": 0}, "--chunk-words: must be at least 1, got 0"),
        (
            {"chunk_words": 10, "chunk_overlap": 10},
            "--chunk-overlap: must be less than --chunk-words, which is 10, got 10",
        ),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError) as refused:
        parse_config({"rag": options})

    assert str(refused.value).startswith(sentence)
    assert "hunter2" not in str(refused.value)


def test_a_machine_without_the_package_does_not_serve_it_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tantivy", None)

    with pytest.raises(RetrievalError, match=r"^searching a corpus needs the package tantivy: uv pip install tantivy$"):
        RagEnvironment.check_available()


URL, KEY = "http://embeddings.example/v1", "a-key-for-embeddings"


@pytest.mark.parametrize(
    ("variables", "url", "key"),
    [
        ({"ROLLOUT_EMBEDDINGS_URL": URL}, URL, ""),
        ({"ROLLOUT_EMBEDDINGS_URL": URL, "OPENAI_API_KEY": "the-models"}, URL, ""),
        ({"ROLLOUT_EMBEDDINGS_URL": f"{URL}/", "ROLLOUT_EMBEDDINGS_KEY": KEY}, URL, KEY),
        ({"OPENAI_API_KEY": "the-models"}, "https://api.openai.com/v1", "the-models"),
        ({"OPENAI_BASE_URL": "http://a/v1", "OPENAI_API_KEY": "the-models"}, "http://a/v1", "the-models"),
        ({"OPENAI_BASE_URL": "http://a/v1", "OPENAI_API_KEY": "m", "ROLLOUT_EMBEDDINGS_KEY": KEY}, "http://a/v1", KEY),
    ],
)
def test_the_models_key_goes_to_the_models_endpoint_alone(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], url: str, key: str
) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ROLLOUT_EMBEDDINGS_URL", "ROLLOUT_EMBEDDINGS_KEY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    endpoint = environments_embedder("m")._endpoint

    assert (endpoint.url, endpoint.key) == (f"{url}/embeddings", key)


def test_without_a_model_or_an_endpoint_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ROLLOUT_EMBEDDINGS_URL"):
        monkeypatch.delenv(name, raising=False)

    with pytest.raises(RetrievalError, match="--embedding-model: searching with embeddings needs a model"):
        environments_embedder(None)
    with pytest.raises(RetrievalError, match="set ROLLOUT_EMBEDDINGS_URL"):
        environments_embedder("m")
