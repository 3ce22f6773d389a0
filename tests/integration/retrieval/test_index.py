"""An index on a real disk: what is found, built once by many processes, and never taken for whole when it is not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rollout_tasks.rag_config import RagConfig
from rollout_tasks.retrieval import cache as parts
from rollout_tasks.retrieval import index as module
from rollout_tasks.retrieval import lexical
from rollout_tasks.retrieval.errors import RetrievalError
from rollout_tasks.retrieval.index import Index, fused, open_index
from rollout_tasks.settings import settings
from tests.conftest import REPOSITORY
from tests.embedding_endpoint import EmbeddingEndpoint, said

pytest.importorskip("tantivy")

DOCUMENTS = [
    {"id": "fox", "title": "The fox", "text": "A quick brown animal jumps over the lazy dog."},
    {"id": "hound", "text": "The fast hound sleeps. The hound dreams of a fast hare."},
    {"id": "cafe", "text": "Das Café in München öffnet um acht."},
    {"id": "bridge", "text": "安济桥是一座石拱桥，由李春设计。"},
]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    module._opened.cache_clear()
    return tmp_path / "cache" / "computer-use-rollouts" / "retrieval"


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in DOCUMENTS))
    return path


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddingEndpoint]:
    made = EmbeddingEndpoint()
    monkeypatch.setenv("ROLLOUT_EMBEDDINGS_URL", made.url)
    settings.cache_clear()
    yield made
    made.close()


def options(corpus: Path, **more: Any) -> RagConfig:
    return RagConfig.model_validate({"corpus": corpus, **more})


def found(index: Index, query: str, k: int = 3) -> list[str]:
    [hits] = index.search([query], k)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    return [hit.passage.document_id for hit in hits]


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("hound", ["hound"]),
        ("FOX", ["fox"]),
        ("cafe in munchen", ["cafe"]),
        ("cafe\u0301", ["cafe"]),
        ("石拱桥", ["bridge"]),
        ("the dog", ["fox", "hound"]),
        ('hound" AND (title:*', ["hound"]),
        ("elephant", []),
        ("?! ...", []),
        ("", []),
    ],
)
def test_words_are_found_without_case_accents_or_syntax(corpus: Path, query: str, first: list[str]) -> None:
    assert found(open_index(options(corpus)), query) == first


def test_equal_scores_are_in_the_order_of_the_corpus(tmp_path: Path) -> None:
    path = tmp_path / "same.jsonl"
    path.write_text("".join(json.dumps({"id": str(one), "text": "the same"}) + "\n" for one in range(50)))

    assert found(open_index(options(path)), "same", 5) == ["0", "1", "2", "3", "4"]


def test_passages_of_a_long_document_are_found_by_themselves(tmp_path: Path) -> None:
    path = tmp_path / "long.txt"
    path.write_text(" ".join(f"word{number}" for number in range(100)))

    index = open_index(options(path, chunk_words=10, chunk_overlap=0))

    [[hit]] = index.search(["word37"], 3)
    assert hit.passage.id == "long.txt#4"
    assert hit.passage.text.split() == [f"word{number}" for number in range(30, 40)]


def test_embeddings_find_what_words_do_not(corpus: Path, endpoint: EmbeddingEndpoint) -> None:
    dense = open_index(options(corpus, retrieval="dense", embedding_model="m"))

    assert found(dense, "hound fast", 1) == ["hound"]
    assert found(open_index(options(corpus)), "quick dog", 1) == ["fox"]
    assert found(dense, "quick dog hare", 1) == ["hound"]  # by what the words mean to the stand-in
    assert len(found(dense, "anything", 10)) == len(DOCUMENTS)
    assert dense.search(["", "hound"], 1)[0] == []
    embedded = endpoint.requests[0][1]["input"]
    assert embedded[0] == "The fox\nA quick brown animal jumps over the lazy dog."


def test_fused_has_both(corpus: Path, endpoint: EmbeddingEndpoint) -> None:
    ways = {
        way: open_index(options(corpus, retrieval=way, embedding_model="m")) for way in ("lexical", "dense", "fused")
    }
    rows = {one["id"]: row for row, one in enumerate(DOCUMENTS)}
    lists = [[(rows[one], 0.0) for one in found(ways[way], "quick dog", 10)] for way in ("lexical", "dense")]

    assert [rows[one] for one in found(ways["fused"], "quick dog", 10)] == [row for row, _ in fused(lists)]
    assert sum(len(fields["input"]) for _, fields in endpoint.requests) == len(DOCUMENTS) + 2  # embedded once


def test_rank_fusion_adds_up_what_places_are_worth() -> None:
    first, second = [(7, 9.0), (3, 1.0)], [(3, 0.9), (5, 0.8), (7, 0.1)]

    assert fused([first, second]) == [(3, 1 / 62 + 1 / 61), (7, 1 / 61 + 1 / 63), (5, 1 / 62)]


def test_an_index_is_built_once_for_each_content_and_set_of_options(corpus: Path, cache: Path) -> None:
    def parts() -> set[str]:
        return {path.name for path in cache.iterdir() if path.is_dir() and path.name.startswith("passages-")}

    open_index(options(corpus))
    first = parts()
    when = (cache / next(iter(first)) / "index.json").stat().st_mtime_ns
    module._opened.cache_clear()
    open_index(options(corpus))
    assert parts() == first
    assert (cache / next(iter(first)) / "index.json").stat().st_mtime_ns == when

    open_index(options(corpus, chunk_words=100))
    assert len(parts()) == 2
    with corpus.open("a") as file:
        file.write('{"id": "new", "text": "zebra"}\n')
    assert found(open_index(options(corpus)), "zebra") == ["new"]
    assert len(parts()) == 3
    assert not list(cache.glob("*.partial"))


OPEN = """
import sys
from pathlib import Path
from rollout_tasks.rag_config import RagConfig
from rollout_tasks.retrieval.index import open_index
said = []
index = open_index(RagConfig(corpus=Path(sys.argv[1])), said.append)
print(index.search([sys.argv[2]], 1)[0][0].passage.id, len(said), flush=True)
"""


def opening(corpus: Path, query: str, program: str = OPEN) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, str(corpus), query], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
    )


def large(tmp_path: Path, documents: int) -> Path:
    path = tmp_path / "large.jsonl"
    path.write_text("".join(f'{{"id": "{one}", "text": "w{one} {"x " * 50}"}}\n' for one in range(documents)))
    return path


@pytest.mark.slow
def test_processes_that_begin_together_share_one_build(tmp_path: Path, cache: Path) -> None:
    corpus = large(tmp_path, 5_000)

    readers = [opening(corpus, f"w{number}") for number in range(4)]

    assert [reader.communicate(timeout=60)[0].split()[0] for reader in readers] == [
        f"{number}#1" for number in range(4)
    ]
    assert [reader.returncode for reader in readers] == [0] * 4
    [part] = [path for path in cache.iterdir() if path.is_dir() and path.name.startswith("passages-")]
    inodes = {path.stat().st_ino for path in part.iterdir()}
    reader = opening(corpus, "w7")
    assert reader.communicate(timeout=60)[0] == "7#1 0\n"
    assert {path.stat().st_ino for path in part.iterdir()} == inodes


STOPS_IN_ITS_MIDDLE = (
    """
import os, signal
from rollout_tasks.retrieval.passages import PassageWriter
finish = PassageWriter.finish
def killed(self):
    finish(self)
    os.kill(os.getpid(), signal.SIGKILL)
PassageWriter.finish = killed
"""
    + OPEN
)


def test_a_build_that_is_killed_leaves_nothing_that_is_taken_for_an_index(tmp_path: Path, cache: Path) -> None:
    corpus = large(tmp_path, 100)

    killed = opening(corpus, "w7", STOPS_IN_ITS_MIDDLE)
    assert killed.wait(60) == -signal.SIGKILL
    [left] = [path.name for path in cache.iterdir() if path.is_dir() and path.name.startswith("passages-")]
    assert left.endswith(".partial")

    reader = opening(corpus, "w7")
    assert reader.communicate(timeout=60)[0] == "7#1 0\n"
    assert not list(cache.glob("*.partial"))


def test_a_build_that_fails_leaves_nothing(corpus: Path, cache: Path) -> None:
    with corpus.open("a") as file:
        file.write('{"id": "fox", "text": "again"}\n')

    with pytest.raises(RetrievalError, match=r"line 5: the id 'fox' is that of .*, line 1, too"):
        open_index(options(corpus))

    assert [path.name for path in cache.iterdir() if path.is_dir()] == []


def test_vectors_of_two_dimensions_are_no_index(corpus: Path, cache: Path, endpoint: EmbeddingEndpoint) -> None:
    texts = [{"id": str(one), "text": f"text{one}"} for one in range(65)]
    corpus.write_text("".join(json.dumps(one) + "\n" for one in texts))
    endpoint.faults = [
        lambda fields: said({"data": [{"index": n, "embedding": [1.0] * 4} for n in range(len(fields["input"]))]})
    ]

    with pytest.raises(RetrievalError, match=r"embeddings of 'm': some have \d+ numbers, others \d+"):
        open_index(options(corpus, retrieval="dense", embedding_model="m"))

    assert not list(cache.glob("vectors-*/"))


def test_a_damaged_index_is_named(corpus: Path, cache: Path) -> None:
    open_index(options(corpus))
    module._opened.cache_clear()
    [part] = cache.glob("passages-*/")
    (part / "lexical" / "meta.json").write_text("{")

    with pytest.raises(RetrievalError, match=r"lexical: the index is damaged, remove it: "):
        open_index(options(corpus))


def test_a_cache_that_cannot_be_written_is_named(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))

    with pytest.raises(RetrievalError, match=r"retrieval.*: cannot be stored: Not a directory"):
        open_index(options(corpus))


HOLDS_A_LOCK = """
import fcntl, sys, time
file = open(sys.argv[1])
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(60)
"""


def test_whoever_waits_for_another_process_is_told(
    corpus: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(parts, "FIRST_SECONDS", 0.05)
    monkeypatch.setattr(parts, "SECONDS", 0.05)
    open_index(options(corpus))
    [part] = cache.glob("passages-*/")
    part.rename(tmp_path / "away")
    module._opened.cache_clear()
    lock = cache / f"{part.name}.lock"
    holder = subprocess.Popen([sys.executable, "-c", HOLDS_A_LOCK, str(lock)], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    holder.stdout.readline()
    said: list[str] = []

    def say(sentence: str) -> None:
        said.append(sentence)
        if len(said) == 2:  # the other one has finished
            (tmp_path / "away").rename(part)
            os.kill(holder.pid, signal.SIGKILL)

    deadline = time.monotonic() + 30
    assert found(open_index(options(corpus), say), "hound") == ["hound"]
    holder.wait()
    assert time.monotonic() < deadline
    assert said[0] == f"another process is building the index {part}; waiting for it"


@pytest.mark.parametrize(
    "query",
    [
        "plain words",
        "Das Cafe\u0301 in Mu\u0308nchen \ufb01nde ich \u00bd so gut",
        "\u5b89\u6d4e\u6865\u662f\u4e00\u5ea7\u77f3\u62f1\u6865" * 100,
        "\u0645\u062d\u0645\u062f \ufdfa",
        "\u3000\u00a0wide\u2003blanks ",
        "\u1112\u1161\u11ab\u1100\u1173\u11af \u0e19\u0e49\u0e33",
    ],
)
def test_a_query_is_normalized_as_passages_are(query: str) -> None:
    assert lexical._plain_query(query).split() == lexical._plain(query).split()


@pytest.mark.parametrize("odd", ["\ufdfa", "a\u0301\u0316", "\ufdfa ", "\U0001f600"])
def test_a_query_becomes_no_more_than_four_times_as_long(odd: str) -> None:
    for count in (1, 100, 20_000):
        query = odd * count

        assert len(lexical._plain_query(query)) <= 4 * min(len(query), 4_000) + 64
