"""Items from tables: CSV, TSV, Parquet, and datasets as `datasets` saves them and as the Hub keeps them."""

from __future__ import annotations

import datetime
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
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


def test_a_cell_keeps_its_line_ends(tmp_path: Path) -> None:
    (tmp_path / "items.csv").write_bytes(b'question,answer\r\n"One,\r\ntwo?",1\r\n')
    assert [item.question for item in load_items(tmp_path / "items.csv").items] == ["One,\r\ntwo?"]


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


@pytest.mark.parametrize(
    ("described", "says"),
    [
        ("{", "state.json: is not a description of a dataset: it must be JSON"),
        ("{}", "state.json: is not a description of a dataset: it must have '_data_files'"),
        ("[" * 100_000, "state.json: is not a description of a dataset: it must be JSON"),
        ('{"_data_files": [{}]}', "state.json: is not a description of a dataset: it must have '_data_files'"),
        ('{"_data_files": [{"filename": "../a"}]}', "state.json: '../a' is not the name of a file beside it"),
        ('{"_data_files": [{"filename": 7}]}', "state.json: 7 is not the name of a file beside it"),
        ('{"_data_files": []}', "set: has no rows"),
    ],
)
def test_a_dataset_that_is_described_wrongly_is_one_sentence(tmp_path: Path, described: str, says: str) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "state.json").write_text(described)
    with pytest.raises(BenchmarkError) as caught:
        load_items(tmp_path / "set", fields=FIELDS)

    assert str(caught.value).endswith(f"/{says}")


def test_a_split_without_a_description_is_named(tmp_path: Path) -> None:
    (tmp_path / "set" / "test").mkdir(parents=True)
    (tmp_path / "set" / "dataset_dict.json").write_text('{"splits": ["test"]}')
    with pytest.raises(BenchmarkError, match=r"set/test: is a split without state\.json$"):
        load_items(tmp_path / "set")


def test_a_table_with_one_name_twice_is_refused(tmp_path: Path) -> None:
    table = pyarrow.table([["?"], ["1"], ["2"]], names=["question", "a", "a"])
    parquet.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(BenchmarkError, match=r"a\.parquet: has the column 'a' twice$"):
        load_items(tmp_path / "a.parquet")


@pytest.mark.parametrize("levels", [70, 480])
def test_a_row_that_is_nested_too_deeply_is_left_out_like_any_other(tmp_path: Path, levels: int) -> None:
    deep: list[object] = []
    kind = pyarrow.list_(pyarrow.int64())
    for _ in range(levels):
        deep, kind = [deep], pyarrow.list_(kind)
    table = pyarrow.table({"question": ["?", "!"], "more": pyarrow.array([deep, None], kind)})
    parquet.write_table(table, tmp_path / "a.parquet", store_schema=False)

    loaded = load_items(tmp_path / "a.parquet", skip_invalid=True)

    assert [item.id for item in loaded.items] == ["item_2"]
    place = f"{tmp_path / 'a.parquet'}, row 1"
    assert loaded.skipped == (f"{place}: has lists and objects nested more than 64 deep",)


def test_without_pyarrow_the_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parquet.write_table(pyarrow.Table.from_pylist(ROWS), tmp_path / "a.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(
        BenchmarkError, match=r"a\.parquet: reading it needs the package pyarrow: uv pip install pyarrow$"
    ):
        load_items(tmp_path / "a.parquet", fields=FIELDS)


def test_a_file_that_a_dataset_names_and_lacks_is_told(tmp_path: Path) -> None:
    saved_split(tmp_path / "set", ROWS[:2], ROWS[2:])
    (tmp_path / "set" / "data-00001-of-00002.arrow").unlink()
    with pytest.raises(
        BenchmarkError, match=r"set/data-00001-of-00002\.arrow: cannot be read: No such file or directory$"
    ):
        load_items(tmp_path / "set", fields=FIELDS)

    (tmp_path / "set" / "data-00001-of-00002.arrow").mkdir()
    with pytest.raises(BenchmarkError, match=r"\.arrow: cannot be read: Expected file path, but .+ is a directory$"):
        load_items(tmp_path / "set", fields=FIELDS)


def test_the_split_of_a_set_of_one_is_no_other(tmp_path: Path) -> None:
    saved_split(tmp_path / "set", ROWS)
    with pytest.raises(BenchmarkError, match=r"set: has no splits to choose from \(--split\)$"):
        load_items(tmp_path / "set", fields=FIELDS, split="train")
    state = json.loads((tmp_path / "set" / "state.json").read_text())
    (tmp_path / "set" / "state.json").write_text(json.dumps(state | {"_split": "train"}))

    assert len(load_items(tmp_path / "set", fields=FIELDS, split="train").items) == 3
    with pytest.raises(BenchmarkError, match=r"set: is the split 'train', not 'test' \(--split\)$"):
        load_items(tmp_path / "set", fields=FIELDS, split="test")


def test_a_tree_of_tasks_has_no_splits(tmp_path: Path) -> None:
    (tmp_path / "test_all.json").write_text("{}")
    with pytest.raises(BenchmarkError, match=r": has no splits to choose from \(--split\)$"):
        load_items(tmp_path, split="test")


def test_a_field_that_is_only_called_binary_is_kept(tmp_path: Path) -> None:
    rows = [{"question": "?", "metadata": {"binary_label": 1}}]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "items.parquet")

    assert load_items(tmp_path / "items.parquet").items[0].metadata == {"binary_label": 1}


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


def test_a_broken_line_is_told_also_where_fields_have_other_names(tmp_path: Path) -> None:
    (tmp_path / "items.jsonl").write_text('{"prompt": "One?"}\n{"prompt": \n')
    with pytest.raises(BenchmarkError, match=r"items\.jsonl, line 2: is broken JSON at column 12"):
        load_items(tmp_path / "items.jsonl", fields={"question": "prompt"})


def test_a_field_that_is_not_there_is_named(tmp_path: Path) -> None:
    (tmp_path / "items.csv").write_text("question\nOne?\n")
    with pytest.raises(
        BenchmarkError, match=r'items\.csv, line 2: has no field "label", which --field names as its answer$'
    ):
        load_items(tmp_path / "items.csv", fields={"answer": "label"})


def plain_types() -> Iterator[pyarrow.DataType]:
    """Each type of pyarrow that has no other inside; those with arguments, with each that matters."""
    for name in dir(pyarrow):
        make = getattr(pyarrow, name)
        if re.search("^Create ", make.__doc__ or "", re.MULTILINE):
            with suppress(Exception):
                if isinstance(kind := make(), pyarrow.DataType):
                    yield kind
    for unit in ("s", "ms", "us", "ns"):
        yield pyarrow.duration(unit)
        yield from (pyarrow.timestamp(unit, zone) for zone in (None, "UTC", "Europe/Berlin", "No/Where"))
    yield from (
        pyarrow.time32("s"),
        pyarrow.time32("ms"),
        pyarrow.time64("us"),
        pyarrow.time64("ns"),
        pyarrow.binary(4),
    )
    yield from (getattr(pyarrow, f"decimal{bits}")(5, 2) for bits in (32, 64, 128, 256))
    yield from (pyarrow.opaque(inner, "a", "b") for inner in (pyarrow.int8(), pyarrow.binary(), pyarrow.binary(4)))


def one_value(kind: pyarrow.DataType, byte: bytes) -> pyarrow.Array:
    """One value of a type; where it has a fixed size, that byte again and again, whatever it means."""
    if isinstance(kind, pyarrow.BaseExtensionType):
        return pyarrow.ExtensionArray.from_storage(kind, one_value(kind.storage_type, byte))
    if pyarrow.types.is_null(kind):
        return pyarrow.nulls(1)
    try:
        return pyarrow.Array.from_buffers(kind, 1, [None, pyarrow.py_buffer(byte * (kind.bit_width // 8 or 1))])
    except ValueError:  # its values have lengths of their own
        return pyarrow.array(["1"]).cast(kind)


def alone_and_inside(value: pyarrow.Array) -> Iterator[pyarrow.Array]:
    """A value of a type, and that inside each type that holds others, where pyarrow makes such a thing of it."""
    yield value
    try:
        value.validate(full=True)
    except pyarrow.ArrowInvalid:  # as the time of day 16843009
        return
    yield pyarrow.ListArray.from_arrays([0, 1], value)
    yield pyarrow.LargeListArray.from_arrays([0, 1], value)
    yield pyarrow.ListViewArray.from_arrays([0], [1], value)
    yield pyarrow.LargeListViewArray.from_arrays([0], [1], value)
    yield pyarrow.FixedSizeListArray.from_arrays(value, 1)
    yield pyarrow.StructArray.from_arrays([value], ["inner"])
    yield pyarrow.StructArray.from_arrays([value, value], ["twice", "twice"])
    yield pyarrow.MapArray.from_arrays([0, 1], pyarrow.array(["key"]), value)
    if value.null_count == 0:
        yield pyarrow.MapArray.from_arrays([0, 1], value, pyarrow.array(["value"]))
    yield pyarrow.DictionaryArray.from_arrays(pyarrow.array([0]), value)
    yield pyarrow.RunEndEncodedArray.from_arrays([1], value)
    yield pyarrow.UnionArray.from_sparse(pyarrow.array([0], pyarrow.int8()), [value])
    yield pyarrow.UnionArray.from_dense(
        pyarrow.array([0], pyarrow.int8()), pyarrow.array([0], pyarrow.int32()), [value]
    )


def test_every_type_is_tried() -> None:
    tried = {value.type.id for kind in plain_types() for value in alone_and_inside(one_value(kind, b"\0"))}
    known = {name: getattr(pyarrow.lib, name) for name in dir(pyarrow.lib) if name.startswith("Type_")}
    assert {name for name, number in known.items() if number not in tried} == {
        "Type_INTERVAL_DAY_TIME",  # neither of these has a value in Python
        "Type_INTERVAL_MONTHS",
    }


@pytest.mark.parametrize("kind", list(dict.fromkeys(plain_types())), ids=str)
def test_a_value_of_any_type_becomes_json_or_is_refused_in_one_sentence(tmp_path: Path, kind: pyarrow.DataType) -> None:
    (tmp_path / "state.json").write_text(json.dumps({"_data_files": [{"filename": "a.arrow"}]}))
    for byte in (b"\0", b"\1", b"\x7f", b"\xff"):
        for value in alone_and_inside(one_value(kind, byte)):
            table = pyarrow.table({"question": ["?"], "value": value})
            with pyarrow.OSFile(str(tmp_path / "a.arrow"), "wb") as sink, ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table)
            said = ""
            try:
                (item,) = load_items(tmp_path).items
            except BenchmarkError as error:
                said = str(error)
            else:
                json.dumps(item.metadata, allow_nan=False)
            row = rf"{tmp_path}, row 1: 'value' cannot be read: .+"
            whole = rf"{tmp_path}/a\.arrow: is broken: .+"  # what pyarrow writes and does not read
            assert re.fullmatch(f"{row}|{whole}|", said), value.type


def test_values_that_json_lacks_are_text(tmp_path: Path) -> None:
    table = pyarrow.table(
        {
            "question": ["?"],
            "uuid": pyarrow.array([bytes(15) + b"\1"], pyarrow.uuid()),
            "number": [float("nan")],
            "limit": [float("inf")],
            "lasts": [datetime.timedelta(hours=1)],
        }
    )
    parquet.write_table(table, tmp_path / "a.parquet")

    (item,) = load_items(tmp_path / "a.parquet").items

    uuid = "00000000-0000-0000-0000-000000000001"
    assert item.metadata == {"uuid": uuid, "number": None, "limit": "inf", "lasts": "1:00:00"}


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_a_column_that_comes_twice_is_named(tmp_path: Path, ending: str) -> None:
    table = pyarrow.table([["?"], [b"PNG"], ["2"]], names=["question", "a", "a"])
    if ending == "parquet":
        parquet.write_table(table, tmp_path / "a.parquet")
    else:
        (tmp_path / "state.json").write_text(json.dumps({"_data_files": [{"filename": "a.arrow"}]}))
        with pyarrow.OSFile(str(tmp_path / "a.arrow"), "wb") as sink, ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
    with pytest.raises(BenchmarkError, match=rf"/a\.{ending}: has the column 'a' twice$"):
        load_items(tmp_path if ending == "arrow" else tmp_path / "a.parquet")


def test_a_value_that_python_has_none_for_is_named_by_row_and_column(tmp_path: Path) -> None:
    days = pyarrow.array([0, 1, 10**7], pyarrow.date32())
    parquet.write_table(pyarrow.table({"question": ["?"] * 3, "day": days}), tmp_path / "a.parquet", row_group_size=2)
    with pytest.raises(BenchmarkError, match=r"a\.parquet, row 3: 'day' cannot be read: date value out of range$"):
        load_items(tmp_path / "a.parquet")


def test_a_broken_quote_in_a_heading_is_named_by_its_line(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('"que"stion,answer\n1,2\n')
    with pytest.raises(BenchmarkError, match=r"a\.csv, line 1: is broken: "):
        load_items(tmp_path / "a.csv")


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
