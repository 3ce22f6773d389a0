"""A corpus's files and hash: what changes it, and what does not."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from rollout_tasks.retrieval import corpus as module
from rollout_tasks.retrieval.corpus import find_corpus
from rollout_tasks.retrieval.errors import RetrievalError
from rollout_tasks.retrieval.progress import silent


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "computer-use-rollouts" / "retrieval"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "corpus"
    (made / "below").mkdir(parents=True)
    (made / "b.txt").write_text("second")
    (made / "a.jsonl").write_text('{"id": "a", "text": "first"}\n')
    (made / "below" / "c.md").write_text("third")
    (made / "picture.png").write_bytes(b"\x89PNG")
    (made / ".hidden.txt").write_text("not this one")
    return made


def digest(path: Path) -> str:
    return find_corpus(path).sha256(silent)


def aged(path: Path) -> None:
    """As if the file had not been touched for a while; when it was itself changed, nobody can set."""
    os.utime(path, (time.time() - 60, time.time() - 60))


def test_a_folder_is_read_in_the_order_of_its_names(folder: Path) -> None:
    corpus = find_corpus(folder)

    assert [file.name for file in corpus.files] == ["a.jsonl", "b.txt", "below/c.md"]
    found = [(one.id, one.text) for one in corpus.documents(silent)]
    assert found == [("a", "first"), ("b.txt", "second"), ("below/c.md", "third")]


def test_the_hash_is_that_of_names_and_contents(folder: Path, tmp_path: Path) -> None:
    first = digest(folder)

    assert len(first) == 64
    folder.rename(tmp_path / "moved")
    moved = tmp_path / "moved"
    assert digest(moved) == first
    (moved / "b.txt").write_text("other!")
    assert digest(moved) != first
    (moved / "b.txt").write_text("second")
    assert digest(moved) == first
    (moved / "b.txt").rename(moved / "d.txt")
    assert digest(moved) != first


def test_a_hash_is_kept_until_a_file_changes(folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SETTLED_SECONDS", 0.0)
    first = digest(folder)
    [kept] = (cache / "corpora").iterdir()

    kept.write_text(kept.read_text().replace(first, "0" * 64))
    assert digest(folder) == "0" * 64
    kept.write_text("{")
    assert digest(folder) == first

    aged(folder / "b.txt")
    assert digest(folder) == first
    assert len(list((cache / "corpora").iterdir())) == 2


def test_the_hash_of_a_file_that_was_just_written_is_not_kept(folder: Path, cache: Path) -> None:
    digest(folder)

    assert not (cache / "corpora").exists()


def test_a_corpus_that_changes_while_it_is_read_is_refused(folder: Path) -> None:
    reading = find_corpus(folder).documents(silent)
    next(reading)
    (folder / "below" / "c.md").write_text("grown in the meantime")

    with pytest.raises(RetrievalError, match="was changed while it was read"):
        list(reading)


def test_two_documents_of_one_id_are_both_named(folder: Path) -> None:
    (folder / "z.jsonl").write_text('{"id": "z", "text": "x"}\n{"id": "a", "text": "x"}\n')

    with pytest.raises(RetrievalError) as refused:
        list(find_corpus(folder).documents(silent))

    assert str(refused.value) == f"{folder}/z.jsonl, line 2: the id 'a' is that of {folder}/a.jsonl, line 1, too"


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda _: None, r"corpus: no such file or directory$"),
        (lambda path: path.mkdir(), r"corpus: has no file of a known kind: \.json, "),
        (lambda path: path.write_text("x"), r"corpus: is of an unknown kind; known are \.json, "),
        (lambda path: os.mkfifo(path), r"corpus: corpus is neither a file nor a folder$"),
        (lambda path: (path.mkdir(), (path / "a.txt").symlink_to("gone")), r"a\.txt: no such file or directory$"),
    ],
    ids=["missing", "no files", "unknown kind", "a pipe", "a dangling link"],
)
def test_what_is_no_corpus_is_named(tmp_path: Path, make: object, sentence: str) -> None:
    path = tmp_path / "corpus"
    make(path)  # type: ignore[operator]

    with pytest.raises(RetrievalError, match=sentence):
        find_corpus(path)


def test_a_corpus_without_documents_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("\n")

    with pytest.raises(RetrievalError, match=r"empty\.jsonl: has no document$"):
        list(find_corpus(tmp_path / "empty.jsonl").documents(silent))
