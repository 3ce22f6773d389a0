"""Dividing documents into passages, and their store."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout_tasks.retrieval.documents import Document
from rollout_tasks.retrieval.errors import RetrievalError
from rollout_tasks.retrieval.passages import Passage, PassageStore, PassageWriter, divide


def texts(text: str, words: int, overlap: int) -> list[str]:
    return [passage.text for passage in divide(Document("d", "T", text, "here"), words, overlap)]


@pytest.mark.parametrize(
    ("text", "words", "overlap", "passages"),
    [
        (" one two ", 2, 0, ["one two"]),
        ("one two three", 2, 0, ["one two", "three"]),
        ("one two three four", 2, 0, ["one two", "three four"]),
        ("one two\nthree  four five", 3, 1, ["one two\nthree", "three  four five"]),
        ("one two three four five six", 3, 2, ["one two three", "two three four", "three four five", "four five six"]),
        ("桥在城里", 3, 0, ["桥在城", "里"]),
        ("桥 bridge 城市", 2, 0, ["桥 bridge", "城市"]),
        ("Brücke über den Fluß", 2, 1, ["Brücke über", "über den", "den Fluß"]),
    ],
)
def test_a_text_is_divided_by_words(text: str, words: int, overlap: int, passages: list[str]) -> None:
    assert texts(text, words, overlap) == passages


@given(
    st.lists(st.sampled_from(["a", "bb", "ccc", "é", "桥"]), min_size=1, max_size=60),
    st.integers(1, 12),
    st.integers(0, 11),
)
def test_each_word_is_in_a_passage_and_none_has_too_many(words: list[str], most: int, overlap: int) -> None:
    overlap %= most
    found = [text.split() for text in texts(" ".join(words), most, overlap)]

    assert all(1 <= len(one) <= most for one in found)
    rebuilt = found[0] + [word for one in found[1:] for word in one[overlap:]]
    assert rebuilt == words
    assert all(before[len(before) - overlap :] == after[:overlap] for before, after in itertools.pairwise(found))


def test_ids_are_the_documents_with_the_passages_number() -> None:
    found = list(divide(Document("d", "T", "one two three", "here"), 2, 0))

    assert found == [Passage("d#1", "d", "T", "one two"), Passage("d#2", "d", "T", "three")]


PASSAGES = [Passage("a#1", "a", "Tïtle", "text\n\u2028 more"), Passage("b#1", "b", "", "桥")]


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    writer = PassageWriter(tmp_path)
    assert [writer.add(one) for one in PASSAGES] == [0, 1]
    writer.finish()
    return tmp_path


def test_a_store_gives_back_what_was_put_in(stored: Path) -> None:
    store = PassageStore(stored)

    assert len(store) == 2
    assert [store[0], store[1]] == PASSAGES
    with pytest.raises(IndexError):
        store[2]


@pytest.mark.parametrize("name", ["passages.jsonl", "offsets"])
@pytest.mark.parametrize("defect", ["missing", "empty", "cut"])
def test_a_damaged_store_is_named(stored: Path, name: str, defect: str) -> None:
    path = stored / name
    content = path.read_bytes()
    path.unlink()
    if defect != "missing":
        path.write_bytes(content[:-8] if defect == "cut" else b"")

    with pytest.raises(RetrievalError, match="the index is damaged, remove it"):
        PassageStore(stored)
