"""The documents of a corpus: JSONL, JSON, Parquet, and text files. Reads them one by one, and refuses what is no document."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmark.entries import Entry, unreadable
from benchmark.errors import BenchmarkError
from benchmark.sources import line_entry
from rollout_tasks.retrieval.errors import RetrievalError
from rollout_tasks.strict_json import parse_json

TEXTS = frozenset({".txt", ".text", ".md"})
"""Suffixes of files that are a document each."""
SUFFIXES = frozenset({".jsonl", ".json", ".parquet"}) | TEXTS
_IDS, _TITLE, _TEXT, _CONTENTS = ("id", "_id"), "title", "text", "contents"
_LIST = "documents"
_LONGEST_ID, _LONGEST_TITLE = 500, 2_000
"""Characters."""
_NAMED_FIELDS = 10
"""How many fields a message names."""


@dataclass(frozen=True, slots=True)
class Document:
    """One document."""

    id: str
    title: str
    """Empty if it has none."""
    text: str
    where: str
    """File and line, entry or row; messages begin with it."""


def read_documents(path: Path, name: str) -> Iterator[Document]:
    """Yields the documents of one file.

    Args:
        path: The file, with one of the known suffixes.
        name: What documents without an id are named after: the file's path within the corpus.

    Raises:
        RetrievalError: The file cannot be read, or something in it is not a document.
    """
    try:
        yield from _read(path, name)
    except BenchmarkError as error:
        raise RetrievalError(str(error)) from error
    except OSError as error:
        raise RetrievalError(str(unreadable(path, error))) from error


def _read(path: Path, name: str) -> Iterator[Document]:
    suffix = path.suffix.lower()
    if suffix in TEXTS:
        yield _document(str(path), {"id": name, _TEXT: _decoded(path)}, name)
        return
    entries = {".jsonl": _lines, ".json": _json_entries, ".parquet": _rows}[suffix]
    for entry in entries(path):
        if entry.problem is not None:
            raise RetrievalError(f"{entry.where}: {entry.problem}")
        yield _document(entry.where, entry.fields, f"{name}:{entry.number}")


def _lines(path: Path) -> Iterator[Entry]:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            text = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
            if text.strip():
                yield line_entry(f"{path}, line {number}", number, text)


def _json_entries(path: Path) -> Iterator[Entry]:
    found = _json_value(path)
    if isinstance(found, dict):
        found = found.get(_LIST, [found])
    if not isinstance(found, list):
        raise RetrievalError(f"{path}: must hold a list of documents, an object with {_LIST}, or one document")
    for number, value in enumerate(found, 1):
        where = f"{path}, entry {number}"
        if not isinstance(value, dict):
            yield Entry(where, number, problem="must be an object")
        else:
            yield Entry(where, number, value)


def _json_value(path: Path) -> Any:
    text = _decoded(path)
    if not text.strip():
        raise RetrievalError(f"{path}: is empty")
    try:
        return parse_json(text)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno} column {error.colno}"
        raise RetrievalError(f"{path}: is broken JSON at {place}: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        raise RetrievalError(f"{path}: is not JSON that can be read here: {error}") from error


def _rows(path: Path) -> Iterator[Entry]:
    from benchmark.tables import parquet_entries  # here, because few corpora are tables

    for entry in parquet_entries(path):
        if not {_TEXT, _CONTENTS} & entry.fields.keys():
            columns = _listed(entry.fields)
            raise RetrievalError(f"{path}: has no column {_TEXT} or {_CONTENTS}; its columns of text are {columns}")
        yield entry


def _decoded(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RetrievalError(f"{path}: is not UTF-8 at byte {error.start}") from error


def _document(where: str, fields: Mapping[str, Any], default_id: str) -> Document:
    title, text = _title_and_text(where, fields)
    if not text.strip():
        raise RetrievalError(f"{where}: its text is empty")
    named = _id(where, fields, default_id)
    try:
        "".join((named, title, text)).encode()
    except UnicodeEncodeError as error:
        raise RetrievalError(f"{ascii(where)[1:-1]}: has half a surrogate pair in its id, title or text") from error
    return Document(named, title, text, where)


def _title_and_text(where: str, fields: Mapping[str, Any]) -> tuple[str, str]:
    title = fields.get(_TITLE) or ""
    if not isinstance(title, str) or len(title) > _LONGEST_TITLE:
        raise RetrievalError(f"{where}: {_TITLE} must be text of at most {_LONGEST_TITLE:,} characters")
    for name in (_TEXT, _CONTENTS):
        text = fields.get(name)
        if text is None:
            continue
        if not isinstance(text, str):
            raise RetrievalError(f"{where}: {name} must be text, got {type(text).__name__}")
        if name == _CONTENTS and not title:
            return split_contents(text)
        return title, text
    raise RetrievalError(f"{where}: has neither {_TEXT} nor {_CONTENTS}; its fields are {_listed(fields)}")


def split_contents(contents: str) -> tuple[str, str]:
    """Splits what Search-R1 calls the contents of a document: a line with its title, often in quotes, and the text.

    Returns:
        Title and text; the title is empty if there is a single line.
    """
    first, line_end, rest = contents.partition("\n")
    if not line_end or not rest.strip() or len(first) > _LONGEST_TITLE:
        return "", contents
    return first.strip().strip('"'), rest


def _id(where: str, fields: Mapping[str, Any], default: str) -> str:
    given = next((fields[name] for name in _IDS if fields.get(name) is not None), default)
    if isinstance(given, bool) or not isinstance(given, str | int):
        raise RetrievalError(f"{where}: id must be text or a whole number")
    name = str(given)
    if not name.strip() or len(name) > _LONGEST_ID:
        raise RetrievalError(f"{where}: id must have 1 to {_LONGEST_ID} characters")
    return name


def _listed(fields: Mapping[str, Any]) -> str:
    names = [repr(name[:50]) for name in fields]
    more = f" and {len(names) - _NAMED_FIELDS} more" if len(names) > _NAMED_FIELDS else ""
    return (", ".join(names[:_NAMED_FIELDS]) or "none") + more
