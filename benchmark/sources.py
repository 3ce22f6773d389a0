"""Reads benchmark entries from JSONL, JSON, tables and OSWorld trees into plain objects, each with its place.

`benchmark.items` checks whether an entry is a valid item.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from benchmark.entries import Entry, too_deep, unreadable
from benchmark.errors import BenchmarkError

_EXAMPLES = "examples"
_FULL_LIST = "test_all.json"
STANDARD_INPUT = Path("-")
_TABLES = {".csv": ",", ".tsv": "\t"}
"""The delimiter between cells, by suffix."""
_ITEM_OVERRIDES = ("snapshot", "proxy", "fixed_ip")
"""Keys of an OSWorld task that override the run's options for this task alone."""


def find_entries(path: Path, split: str | None = None) -> Iterator[Entry]:
    """Reads entries one by one.

    Args:
        path: A file, a folder, or ``-`` for JSONL from standard input.
        split: Which split of a dataset's folder.

    Raises:
        BenchmarkError: The file or tree as a whole cannot be read, or is empty.
    """
    if split is not None and not (path != STANDARD_INPUT and _is_directory(path)):
        raise _without_splits(path)
    if path == STANDARD_INPUT:
        return _json_lines("standard input", sys.stdin.buffer)
    if _is_directory(path):
        return _folder_entries(path, split)
    suffix = path.suffix.lower()
    if suffix == ".jsonl":
        return _json_lines_of(path)
    if suffix == ".json":
        return _json_entries(path, _json_file(path))
    if suffix in _TABLES:
        from benchmark import tables  # here, because few benchmarks are tables

        return tables.csv_entries(path, _TABLES[suffix])
    if suffix == ".parquet":
        from benchmark import tables  # here, because few benchmarks are tables

        return tables.parquet_entries(path)
    known = ".jsonl, .json, .csv, .tsv, .parquet, OSWorld trees and dataset folders"
    raise BenchmarkError(f"{path}: has an unknown suffix {suffix!r}; known are {known}")


def _without_splits(path: Path) -> BenchmarkError:
    return BenchmarkError(f"{path}: has no splits to choose from (--split)")


def _folder_entries(folder: Path, split: str | None) -> Iterator[Entry]:
    list_file = folder / _FULL_LIST
    if list_file.is_file():
        if split is not None:
            raise _without_splits(folder)
        return _osworld_list(list_file, _json_file(list_file))
    from benchmark import tables  # here, because few benchmarks are datasets

    if tables.is_dataset(folder):
        return tables.dataset_entries(folder, split)
    raise BenchmarkError(
        f"{folder}: is a folder without {_FULL_LIST}, so not an OSWorld tree, and not a dataset either"
    )


def _is_directory(path: Path) -> bool:
    try:
        if path.is_dir():
            return True
        if path.is_file():
            return False
        found = path.exists()
    except (OSError, ValueError) as error:
        raise BenchmarkError(f"{str(path)!r}: cannot be read: {error}") from error
    raise BenchmarkError(f"{path}: {'is neither a file nor a folder' if found else 'no such file or folder'}")


def _json_lines_of(path: Path) -> Iterator[Entry]:
    try:
        with path.open("rb") as lines:
            yield from _json_lines(str(path), lines)
    except OSError as error:
        raise unreadable(path, error) from error


def _json_lines(name: str, lines: Iterable[bytes]) -> Iterator[Entry]:
    empty = True
    for number, line in enumerate(lines, 1):
        text = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
        if text.strip():
            empty = False
            yield line_entry(f"{name}, line {number}", number, text)
    if empty:
        raise BenchmarkError(f"{name}: is empty")


def line_entry(where: str, number: int, line: bytes) -> Entry:
    """Returns the entry that a line of JSONL holds, or what is wrong with it.

    Args:
        where: What errors call the line.
        number: Which line it is, from 1.
        line: The line.
    """
    try:
        value = _parse(line.rstrip(b"\r\n"))
    except ValueError as error:
        return Entry(where, number, problem=str(error))
    return _entry(where, number, value)


def _json_entries(path: Path, document: object) -> Iterator[Entry]:
    if isinstance(document, dict):
        if "items" in document:
            document = document["items"]
            if not isinstance(document, list):
                raise BenchmarkError(f"{path}: items must be a list, got {_kind(document)}")
        elif _lists_tasks(document):
            yield from _osworld_list(path, document)
            return
        elif _is_osworld_task(document):
            domain = path.parent.name if path.parent.parent.name == _EXAMPLES else None
            yield _osworld_task(str(path), 1, document, domain)
            return
        else:
            document = [document]
    if not isinstance(document, list):
        raise BenchmarkError(f"{path}: must hold a list, an object with items, or one object, got {_kind(document)}")
    if not document:
        raise BenchmarkError(f"{path}: its list of items is empty")
    for number, value in enumerate(document, 1):
        yield _entry(f"{path}, entry {number}", number, value)


def document_entry(where: str, document: Mapping[str, Any]) -> Entry:
    """Returns the entry that one JSON object holds: an item as in JSONL, or an OSWorld task as in its file.

    Args:
        where: What errors call it.
        document: The object.
    """
    if _is_osworld_task(document):
        return _osworld_task(where, 1, dict(document), None)
    return _entry(where, 1, dict(document))


def _is_osworld_task(document: Mapping[str, object]) -> bool:
    return "question" not in document and {"instruction", "evaluator"} <= document.keys()


def _lists_tasks(document: Mapping[str, object]) -> bool:
    """Whether it looks like ``{domain: [task ids]}``."""
    return bool(document) and all(isinstance(value, list) for value in document.values())


def _osworld_list(list_file: Path, document: object) -> Iterator[Entry]:
    if not isinstance(document, dict) or not _lists_tasks(document):
        raise BenchmarkError(f"{list_file}: must be an object of domain: [task ids], as an OSWorld list is")
    examples = list_file.parent / _EXAMPLES
    if not examples.is_dir():
        raise BenchmarkError(f"{list_file}: lists OSWorld tasks, but there is no folder {_EXAMPLES}/ beside it")
    if not any(document.values()):
        raise BenchmarkError(f"{list_file}: lists no task")
    number = 0
    for domain, task_ids in document.items():
        for position, task_id in enumerate(task_ids, 1):
            number += 1
            where = f"{list_file}, {domain} entry {position}"
            yield _listed_task(where, number, examples, domain, task_id)


def _listed_task(where: str, number: int, examples: Path, domain: str, task_id: object) -> Entry:
    if not isinstance(task_id, str):
        return Entry(where, number, problem=f"a task id must be text, got {_kind(task_id)}")
    for name in (domain, task_id):
        if not _is_file_name(name):
            return Entry(where, number, problem=f"{name!r} cannot be a folder's or file's name")
    path = examples / domain / f"{task_id}.json"
    if not path.is_file():
        return Entry(where, number, problem=f"the task file {path} is missing")
    try:
        task = _json_file(path)
    except BenchmarkError as error:
        return Entry(where, number, problem=str(error))
    if not isinstance(task, dict):
        return Entry(str(path), number, problem=f"must be an object, got {_kind(task)}")
    if problem := too_deep(task):  # before any of it is shown
        return Entry(str(path), number, problem=problem)
    if task.setdefault("id", task_id) != task_id:
        return Entry(str(path), number, problem=f"id is {task['id']!r}, but {where} lists it as {task_id!r}")
    return _osworld_task(str(path), number, task, domain)


def _osworld_task(where: str, number: int, task: dict[str, Any], domain: str | None) -> Entry:
    """Returns an OSWorld task as an entry: the instruction is the question, its overrides are also its env_config."""
    fields = dict(task)
    if "question" not in fields:
        fields["question"] = fields.pop("instruction", None)
    if domain is not None:
        fields["domain"] = domain
    if fields.get("env_config") is None:
        fields["env_config"] = {key: task[key] for key in _ITEM_OVERRIDES if task.get(key) is not None}
    return Entry(where, number, fields, question_field="instruction")


def _is_file_name(name: str) -> bool:
    if name in {"", ".", ".."} or "/" in name or "\\" in name or not name.isprintable():
        return False
    return len(name.encode()) <= 200


def _entry(where: str, number: int, value: object) -> Entry:
    if not isinstance(value, dict):
        return Entry(where, number, problem=f"must be an object, got {_kind(value)}")
    return Entry(where, number, value)


def _json_file(path: Path) -> object:
    try:
        content = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    except OSError as error:
        raise unreadable(path, error) from error
    if not content.strip():
        raise BenchmarkError(f"{path}: is empty")
    try:
        return _parse(content)
    except ValueError as error:
        raise BenchmarkError(f"{path}: {error}") from error


def _parse(content: bytes) -> object:
    """Parses strict JSON: UTF-8, finite numbers, text that can be written again.

    Raises:
        ValueError: What is wrong, as the end of a sentence.
    """
    try:
        value: object = json.loads(content.decode(), parse_constant=_refuse_constant, parse_float=_finite)
    except UnicodeDecodeError as error:
        raise ValueError(f"is not UTF-8 at byte {error.start}") from error
    except json.JSONDecodeError as error:
        place = f"line {error.lineno} column {error.colno}" if error.lineno > 1 else f"column {error.colno}"
        raise ValueError(f"is broken JSON at {place}: {error.msg}") from error
    except RecursionError as error:
        raise ValueError("is JSON nested too deeply") from error
    if b"\\ud" in content or b"\\uD" in content:
        _refuse_half_characters(value)
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"holds {name}, which is not JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"holds {digits[:40]}, a number too large")
    return number


def _refuse_half_characters(value: object) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"holds half a surrogate pair, \\u{ord(error.object[error.start]):04x}") from error
    except RecursionError as error:
        raise ValueError("is JSON nested too deeply") from error


def _kind(value: object) -> str:
    if value is None:
        return "null"
    descriptions = {
        bool: "true or false",
        int: "a number",
        float: "a number",
        str: "text",
        list: "a list",
        dict: "an object",
    }
    return descriptions[type(value)]
