"""Items from tables: CSV, TSV, Parquet, and datasets as `datasets` saves them and as the Hub keeps them."""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
from pathlib import Path

import pyarrow
import pytest
from pyarrow import ipc, parquet

from benchmark.errors import BenchmarkError
from benchmark.items import load_items
from tests.conftest import REPOSITORY

ROWS = [
    {"id": "a", "prompt": "One?", "label": 1, "when": datetime.date(2026, 1, 2), "picture": b"PNG"},
    {"id": "b", "prompt": "Two?", "label": 2, "when": None, "picture": b"PNG"},
    {"id": "c", "prompt": "Three?", "label": 3, "when": None, "picture": b"PNG"},
]
FIELDS = {"question": "prompt", "answer": "label"}


def stream(rows: list[dict[str, object]], file: Path) -> None:
    table = pyarrow.Table.from_pylist(rows)
    with pyarrow.OSFile(str(file), "wb") as sink, ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)


def saved_split(folder: Path, *parts: list[dict[str, object]]) -> None:
    folder.mkdir(parents=True)
    names = [f"data-{number:05d}-of-{len(parts):05d}.arrow" for number in range(len(parts))]
    for name, rows in zip(names, parts, strict=True):
        stream(rows, folder / name)
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": name} for name in names]}))


def test_a_text_table_is_read_by_its_heading(tmp_path: Path) -> None:
    path = tmp_path / "items.csv"
    path.write_text('\ufeffid,prompt,label,domain\na,"One,\n""two""?",1,\nb,Three?,,numbers\n\n', encoding="utf-8")

    first, second = load_items(path, fields=FIELDS).items

    assert (first.id, first.question, first.answer, first.domain) == ("a", 'One,\n"two"?', "1", None)
    assert (second.id, second.question, second.domain) == ("b", "Three?", "numbers")


def test_cells_are_parted_by_tabs_in_tsv(tmp_path: Path) -> None:
    (tmp_path / "items.tsv").write_text("question\tanswer\nOne, or two?\tone\n")
    assert [(item.question, item.answer) for item in load_items(tmp_path / "items.tsv").items] == [
        ("One, or two?", "one")
    ]


def test_parquet_keeps_what_is_text(tmp_path: Path) -> None:
    parquet.write_table(pyarrow.Table.from_pylist(ROWS), tmp_path / "items.parquet", row_group_size=2)

    items = load_items(tmp_path / "items.parquet", fields=FIELDS).items

    assert [(item.id, item.question, item.answer) for item in items] == [
        ("a", "One?", "1"),
        ("b", "Two?", "2"),
        ("c", "Three?", "3"),
    ]
    assert items[0].metadata == {"when": "2026-01-02"}


def test_a_saved_dataset_is_read_over_all_its_files(tmp_path: Path) -> None:
    saved_split(tmp_path / "set", ROWS[:2], ROWS[2:])
    assert [item.id for item in load_items(tmp_path / "set", fields=FIELDS).items] == ["a", "b", "c"]


def test_of_several_splits_one_is_named(tmp_path: Path) -> None:
    saved_split(tmp_path / "set" / "test", ROWS[:1])
    saved_split(tmp_path / "set" / "train", ROWS[1:])
    (tmp_path / "set" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')

    assert [item.id for item in load_items(tmp_path / "set", fields=FIELDS, split="train").items] == ["b", "c"]
    with pytest.raises(BenchmarkError, match=r"set: has the splits test, train; which one\? \(--split\)$"):
        load_items(tmp_path / "set", fields=FIELDS)
    with pytest.raises(BenchmarkError, match=r"set: has the splits test, train; not 'dev'\? \(--split\)$"):
        load_items(tmp_path / "set", fields=FIELDS, split="dev")


def test_a_dataset_as_the_hub_keeps_it(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for number, rows in enumerate((ROWS[:2], ROWS[2:])):
        parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "data" / f"test-{number:05d}-of-00002.parquet")
    parquet.write_table(pyarrow.Table.from_pylist(ROWS[:1]), tmp_path / "data" / "train-00000-of-00001.parquet")

    assert [item.id for item in load_items(tmp_path, fields=FIELDS, split="test").items] == ["a", "b", "c"]


def test_a_field_that_is_not_there_is_named(tmp_path: Path) -> None:
    (tmp_path / "items.csv").write_text("question\nOne?\n")
    with pytest.raises(
        BenchmarkError, match=r'items\.csv, line 2: has no field "label", which --field names as its answer$'
    ):
        load_items(tmp_path / "items.csv", fields={"answer": "label"})


def test_items_come_from_standard_input(tmp_path: Path) -> None:
    program = "from benchmark.items import load_items; print([item.id for item in load_items('-').items])"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=REPOSITORY,
        input='{"id": "a", "question": "?"}\n{"id": "b", "question": "?"}\n',
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "['a', 'b']\n"
