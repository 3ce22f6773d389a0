"""Entries from tables: CSV and TSV, Parquet, and folders of Hugging Face datasets. A row is an entry, a column a field.

Columns of pictures, sounds and other binary data are left out: an item is text.
"""

from __future__ import annotations

import csv
import datetime
import json
import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmark.entries import Entry, too_deep, unreadable
from benchmark.errors import BenchmarkError

if TYPE_CHECKING:
    import _csv

    import pyarrow

_LONGEST_CELL = 1 << 24
"""Characters; Python's own limit is too small for worked answers with pictures in them."""
_DICT, _STATE = "dataset_dict.json", "state.json"
"""Files that `datasets` writes beside a dataset of several splits, and beside one split."""


def csv_entries(path: Path, delimiter: str) -> Iterator[Entry]:
    """Reads the rows of a text table whose first line names the columns; an empty cell is null.

    Raises:
        BenchmarkError: The file cannot be read, has no rows, or its first line is not a heading.
    """
    csv.field_size_limit(_LONGEST_CELL)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, delimiter=delimiter, strict=True)
            names = _heading(path, _next_row(path, reader) or [])
            empty = True
            while (row := _next_row(path, reader)) is not None:
                if row:
                    empty = False
                    yield _row_entry(f"{path}, line {reader.line_num}", reader.line_num, names, row)
    except UnicodeDecodeError as error:
        raise BenchmarkError(f"{path}: is not UTF-8 in line {reader.line_num + 1}, or soon after") from error
    except OSError as error:
        raise unreadable(path, error) from error
    if empty:
        raise BenchmarkError(f"{path}: has no rows below its heading")


def _next_row(path: Path, reader: _csv.Reader) -> list[str] | None:
    try:
        return next(reader, None)
    except csv.Error as error:
        raise BenchmarkError(f"{path}, line {reader.line_num}: is broken: {error}") from error


def _heading(path: Path, names: list[str]) -> list[str]:
    if not any(name.strip() for name in names):
        raise BenchmarkError(f"{path}: is empty")
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise BenchmarkError(f"{path}: its heading has {sorted(twice)[0]!r} twice")
    return names


def _row_entry(where: str, number: int, names: list[str], row: list[str]) -> Entry:
    if len(row) > len(names):
        return Entry(where, number, problem=f"has {len(row)} cells under a heading of {len(names)}")
    return Entry(where, number, {name: cell or None for name, cell in zip(names, row, strict=False)})


def is_dataset(folder: Path) -> bool:
    """Whether a folder is a dataset saved by `datasets`, or has Parquet files as on the Hub."""
    return any((folder / name).is_file() for name in (_DICT, _STATE)) or bool(_parquet_files(folder))


def dataset_entries(folder: Path, split: str | None) -> Iterator[Entry]:
    """Reads the rows of a dataset's folder.

    Args:
        folder: Saved by `save_to_disk`, or downloaded from the Hub with its Parquet files.
        split: Which split; None when there is only one.

    Raises:
        BenchmarkError: A split must be chosen, no split has that name, or a file cannot be read.
    """
    if (folder / _DICT).is_file():
        folder = folder / _chosen(folder, sorted(_listed(folder / _DICT, "splits")), split)
        if not (folder / _STATE).is_file():
            raise BenchmarkError(f"{folder}: is a split without {_STATE}")
    elif split is not None and (folder / _STATE).is_file():
        _check_only_split(folder, split)
    if (folder / _STATE).is_file():
        files = [folder / name for name in _listed(folder / _STATE, "_data_files", "filename")]
    else:
        by_split: dict[str, list[Path]] = {}
        for path in _parquet_files(folder):
            by_split.setdefault(path.stem.partition("-")[0], []).append(path)
        files = by_split[_chosen(folder, sorted(by_split), split)]
    yield from _arrow_entries(folder, files)


def _description(path: Path) -> Any:
    """Returns what one of `datasets`' descriptions says.

    Raises:
        BenchmarkError: It cannot be read, or is not JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise unreadable(path, error) from error
    except (ValueError, RecursionError) as error:
        raise BenchmarkError(f"{path}: is not a description of a dataset: it must be JSON") from error


def _listed(path: Path, key: str, inner: str | None = None) -> list[str]:
    """Returns the names of files or folders in one of `datasets`' descriptions."""
    try:
        names = _description(path)[key]
        names = [name if inner is None else name[inner] for name in names]
    except (LookupError, TypeError) as error:
        raise BenchmarkError(f"{path}: is not a description of a dataset: it must have {key!r}") from error
    for name in names:
        if not isinstance(name, str) or Path(name).name != name:
            raise BenchmarkError(f"{path}: {name!r} is not the name of a file beside it")
    return names


def parquet_entries(path: Path) -> Iterator[Entry]:
    """Reads the rows of one Parquet file.

    Raises:
        BenchmarkError: It cannot be read.
    """
    yield from _arrow_entries(path, [path])


def _parquet_files(folder: Path) -> list[Path]:
    return sorted(path for place in (folder, folder / "data") for path in place.glob("*.parquet"))


def _chosen(folder: Path, splits: list[str], split: str | None) -> str:
    if split is None and len(splits) == 1:
        return splits[0]
    if split in splits:
        return str(split)
    given = "which one" if split is None else f"not {split!r}"
    raise BenchmarkError(f"{folder}: has the splits {', '.join(splits)}; {given}? (--split)")


def _check_only_split(folder: Path, split: str) -> None:
    """Raises unless a folder saved from one split is of this one."""
    said = _description(folder / _STATE)
    stored_split = said.get("_split") if isinstance(said, dict) else None
    if stored_split != split:
        what = (
            f"is the split {stored_split!r}, not {split!r}"
            if isinstance(stored_split, str)
            else "has no splits to choose from"
        )
        raise BenchmarkError(f"{folder}: {what} (--split)")


def _arrow_entries(place: Path, files: list[Path]) -> Iterator[Entry]:
    number = 0
    for file in files:
        for batch in _batches(file):
            kept = batch.select(_text_columns(file, batch.schema))
            for row in _rows(kept, place, number):
                number += 1
                yield _arrow_entry(f"{place}, row {number}", number, row)
    if number == 0:
        raise BenchmarkError(f"{place}: has no rows")


def _arrow_entry(where: str, number: int, row: dict[str, Any]) -> Entry:
    if problem := too_deep(row):
        return Entry(where, number, problem=problem)
    return Entry(where, number, {name: _plain(value) for name, value in row.items()})


def _text_columns(file: Path, schema: pyarrow.Schema) -> list[str]:
    names = schema.names
    for name, times in Counter(names).items():
        if times > 1:
            raise BenchmarkError(f"{file}: has the column {name!r} twice")
    return [name for name, kind in zip(names, schema.types, strict=True) if _is_text(kind)]


def _rows(batch: pyarrow.RecordBatch, place: Path, before: int) -> list[dict[str, Any]]:
    """Returns a batch's rows as Python's values.

    Args:
        batch: The rows.
        place: For messages.
        before: How many rows there are before these.

    Raises:
        BenchmarkError: Python has no such value, as a day after the year 9999; names row and column.
    """
    try:
        return list(batch.to_pylist())
    except Exception:  # each type raises errors of its own
        for number, row in enumerate(range(batch.num_rows), start=before + 1):
            for name in batch.schema.names:
                try:
                    batch.column(name)[row].as_py()
                except Exception as error:
                    reason = " ".join(str(error).split())
                    raise BenchmarkError(f"{place}, row {number}: {name!r} cannot be read: {reason}") from error
        raise


def _batches(file: Path) -> Iterator[pyarrow.RecordBatch]:
    try:
        import pyarrow as arrow  # here, because it is optional, and few benchmarks are read with it
        from pyarrow import ipc, parquet
    except ImportError as error:
        raise BenchmarkError(f"{file}: reading it needs the package pyarrow: uv pip install pyarrow") from error
    try:
        if file.suffix == ".parquet":
            yield from parquet.ParquetFile(file).iter_batches()
        else:
            with arrow.memory_map(str(file)) as source:
                yield from ipc.open_stream(source)
    except OSError as error:
        raise unreadable(file, error) from error
    except arrow.ArrowException as error:
        raise BenchmarkError(f"{file}: is broken: {str(error).splitlines()[0]}") from error


def _is_text(kind: pyarrow.DataType) -> bool:
    """Whether an item can hold values of this type: not when any part of it is binary, as in a picture's struct."""
    import pyarrow  # here, because it is optional
    from pyarrow import types

    binary = (types.is_binary, types.is_large_binary, types.is_fixed_size_binary, types.is_binary_view)
    parts = [kind]
    while parts:  # without recursion: a file may nest without end
        part = parts.pop()
        if isinstance(part, pyarrow.BaseExtensionType):
            if not isinstance(part, pyarrow.UuidType):  # whose values are text in JSON
                parts.append(part.storage_type)
        elif any(is_kind(part) for is_kind in binary):
            return False
        else:
            parts += [part.field(number).type for number in range(part.num_fields)]
            if types.is_dictionary(part):
                parts.append(part.value_type)
    return True


def _plain(value: Any) -> Any:
    """Returns a value as JSON has it; what JSON lacks becomes text, but NaN becomes null."""
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, float) and math.isnan(value):
        return None
    if value is None or isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return str(value)  # a decimal number, a UUID, infinity
