"""Documents of every kind of file, and what is said of files that have none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rollout_tasks.retrieval.documents import Document, read_documents, split_contents
from rollout_tasks.retrieval.errors import RetrievalError


def documents(path: Path) -> list[Document]:
    return list(read_documents(path, path.name))


def written(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def facts(found: list[Document]) -> list[tuple[str, str, str]]:
    return [(one.id, one.title, one.text) for one in found]


def test_a_line_of_jsonl_is_a_document(tmp_path: Path) -> None:
    lines = '\ufeff{"id": "a", "title": "T", "text": "x"}\n\n{"_id": 7, "text": "y"}\n{"text": "z"}\n'

    found = documents(written(tmp_path, "c.jsonl", lines))

    assert facts(found) == [("a", "T", "x"), ("7", "", "y"), ("c.jsonl:4", "", "z")]
    assert found[2].where == f"{tmp_path}/c.jsonl, line 4"


@pytest.mark.parametrize("value", [[{"text": "x"}], {"documents": [{"text": "x"}]}, {"text": "x"}])
def test_json_is_a_list_or_an_object(tmp_path: Path, value: object) -> None:
    assert facts(documents(written(tmp_path, "c.json", json.dumps(value)))) == [("c.json:1", "", "x")]


@pytest.mark.parametrize("name", ["note.txt", "note.MD"])
def test_a_text_is_one_document(tmp_path: Path, name: str) -> None:
    assert facts(documents(written(tmp_path, name, "One.\nTwo."))) == [(name, "", "One.\nTwo.")]


def test_a_row_of_parquet_is_a_document(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = [{"id": 1, "text": "x", "image": b"\x00"}, {"id": 2, "text": "y", "image": b"\x01"}]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "c.parquet")

    assert facts(documents(tmp_path / "c.parquet")) == [("1", "", "x"), ("2", "", "y")]


def test_a_parquet_file_without_text_is_named_with_its_columns(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.Table.from_pylist([{"id": 1, "body": "x"}]), tmp_path / "c.parquet")

    with pytest.raises(RetrievalError, match=r"c\.parquet: has no column text or contents; .* 'id', 'body'$"):
        documents(tmp_path / "c.parquet")


@pytest.mark.parametrize(
    ("contents", "title", "text"),
    [
        ('"A bridge"\nIt is long.', "A bridge", "It is long."),
        ("A bridge\nIt is long.\nVery.", "A bridge", "It is long.\nVery."),
        ("It is long.", "", "It is long."),
        ("It is long.\n", "", "It is long.\n"),
    ],
)
def test_contents_as_search_r1_has_them_begin_with_the_title(
    tmp_path: Path, contents: str, title: str, text: str
) -> None:
    assert split_contents(contents) == (title, text)
    line = json.dumps({"id": "a", "contents": contents})
    assert facts(documents(written(tmp_path, "c.jsonl", line))) == [("a", title, text)]


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("c.jsonl", '{"text": "x"}\n{oops}\n', "c.jsonl, line 2: is broken JSON at column 2"),
        ("c.jsonl", "[1]\n", "c.jsonl, line 1: must be an object, got a list"),
        (
            "c.json",
            '[{"id": "a", "title": "t\\udc00", "text": "lone"}]',
            "entry 1: has half a surrogate pair in its id, title or",
        ),
        ("c.jsonl", '{"id": 1, "body": "x"}\n', "line 1: has neither text nor contents; its fields are 'id', 'body'"),
        ("c.jsonl", '{"text": " \\n"}\n', "line 1: its text is empty"),
        ("c.jsonl", '{"text": ["x"]}\n', "line 1: text must be text, got list"),
        ("c.jsonl", '{"text": "x", "title": 5}\n', "line 1: title must be text"),
        ("c.jsonl", '{"text": "x", "id": true}\n', "line 1: id must be text or a whole number"),
        ("c.jsonl", '{"text": "x", "id": " "}\n', "line 1: id must have 1 to 500 characters"),
        ("c.jsonl", b'{"text": "\xff"}\n', "line 1: is not UTF-8 at byte 10"),
        ("c.json", '[{"text": "x"},\n', "c.json: is broken JSON at line 2 column 1"),
        ("c.json", "5", "c.json: must hold a list of documents, an object with documents, or one document"),
        ("c.json", '["x"]', "c.json, entry 1: must be an object"),
        ("c.json", " \n", "c.json: is empty"),
        ("c.json", '[{"text": "x", "n": NaN}]', "c.json: is not JSON that can be read here: NaN is not a number"),
        ("c.txt", b"\xfc", "c.txt: is not UTF-8 at byte 0"),
        ("c.txt", "", "c.txt: its text is empty"),
        ("c.parquet", "PAR1", "c.parquet: is broken"),
    ],
)
def test_what_is_no_document_is_named(tmp_path: Path, name: str, content: str | bytes, sentence: str) -> None:
    if name == "c.parquet":
        pytest.importorskip("pyarrow")
    with pytest.raises(RetrievalError) as refused:
        documents(written(tmp_path, name, content))

    assert sentence in str(refused.value)
    assert str(tmp_path) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    with pytest.raises(RetrievalError, match=r"gone\.jsonl: cannot be read: No such file or directory"):
        documents(tmp_path / "gone.jsonl")
