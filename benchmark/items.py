"""Benchmark items: loads and checks them, from JSON, JSONL, tables, datasets or an OSWorld tree.

This module defines what an item must contain; `benchmark.sources` reads the entries. Nothing here scores.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmark.entries import Entry, too_deep
from benchmark.errors import BenchmarkError
from benchmark.sources import document_entry, find_entries, line_entry

if TYPE_CHECKING:
    import regex

MAX_ID_BYTES = 200
WORKED_ANSWER = "worked_answer"
"""Metadata key of the full text from which an answer pattern took the answer."""

_PATTERN_SECONDS = 1.0
"""Longest search of a user's pattern in one answer: some patterns take exponential time."""


@dataclass(frozen=True, slots=True)
class Item:
    """One entry of a benchmark."""

    id: str
    question: str
    answer: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    env_config: Mapping[str, Any] = field(default_factory=dict)

    @property
    def domain(self) -> str | None:
        """The group this item is reported under, from ``metadata["domain"]``."""
        domain = self.metadata.get("domain")
        return domain if isinstance(domain, str) and domain else None

    def as_dict(self) -> dict[str, Any]:
        """Returns the item as JSON types; `from_dict` reads it back."""
        return {
            "id": self.id,
            "question": self.question,
            "answer": self.answer,
            "metadata": dict(self.metadata),
            "env_config": dict(self.env_config),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Item:
        """Reads what `as_dict` wrote.

        Raises:
            BenchmarkError: A field is missing or has the wrong type.
        """
        fields: dict[str, Any] = {}
        for name, kind in (("id", str), ("question", str), ("answer", str), ("metadata", dict), ("env_config", dict)):
            if not isinstance(values.get(name), kind):
                raise BenchmarkError(f"stored item {values.get('id')!r}: {name} is missing or not {_JSON_NAMES[kind]}")
            fields[name] = values[name]
        return cls(**fields)


@dataclass(frozen=True, slots=True)
class LoadedItems:
    """The items of one file or tree, in its order; iterating it gives the items."""

    name: str
    path: str
    items: tuple[Item, ...]
    skipped: tuple[str, ...] = ()
    """One sentence for each entry left out."""
    places: Mapping[str, str] = field(default_factory=dict)
    """File and line, or entry, of each item, by its id."""

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Item]:
        return iter(self.items)


def load_items(
    path: Path | str,
    *,
    answer_pattern: str | None = None,
    skip_invalid: bool = False,
    fields: Mapping[str, str] | None = None,
    split: str | None = None,
) -> LoadedItems:
    r"""Loads and checks a whole benchmark.

    Fields of an entry: ``id`` (default ``item_<n>``, n being the line in JSONL or the entry in JSON, from 1),
    ``question`` (required), ``answer`` (a value that is not text becomes its JSON text, null becomes empty),
    ``env_config`` (also looked for in ``metadata``); every other key, and the keys of an inner ``metadata``, become
    metadata.

    Args:
        path: ``.jsonl``; ``.json`` (a list, ``{"items": [...]}`` or one object); ``.csv``, ``.tsv`` or ``.parquet``; a
            Hugging Face dataset's folder; an OSWorld tree's folder or list file; ``-`` for JSONL from standard input.
        answer_pattern: Regular expression; the first group of its last match in an answer becomes the answer, without
            surrounding blanks, and the whole text is kept as ``metadata["worked_answer"]``. The last match, because
            worked solutions end with their result: ``#### (.+)``.
        skip_invalid: Leaves out invalid entries and describes them in `LoadedItems.skipped`. A file that cannot be read
            at all, or that has no valid entry, is still an error.
        fields: Names of fields in the data, where they differ: ``{"question": "prompt"}``.
        split: Which split of a dataset that has several.

    Raises:
        BenchmarkError: One sentence naming file, line or entry, and field.
    """
    pattern = _compile(answer_pattern)
    path = Path(path)
    items: list[Item] = []
    skipped: list[str] = []
    places: dict[str, str] = {}
    for entry in find_entries(path, split):
        try:
            item = _item(_renamed(entry, fields or {}), pattern)
            if item.id in places:
                raise BenchmarkError(f"{entry.where}: id {_shown(item.id)} is already used at {places[item.id]}")
        except BenchmarkError as error:
            if not skip_invalid:
                raise
            skipped.append(str(error))
        else:
            places[item.id] = entry.where
            items.append(item)
    if not items:
        raise BenchmarkError(f"{path}: none of its {len(skipped)} entries is valid, the first because: {skipped[0]}")
    return LoadedItems(path.stem or str(path), str(path), tuple(items), tuple(skipped), places)


def parse_item(text: str, where: str) -> Item:
    """Reads one item, in the form that a line of JSONL has.

    Args:
        text: The line; its fields are those of `load_items`.
        where: What errors call it.

    Raises:
        BenchmarkError: It is no item; one sentence naming the field.
    """
    return _item(line_entry(where, 1, text.encode("utf-8", "surrogatepass")), None)


def read_item(document: Mapping[str, Any], where: str) -> Item:
    """Reads one item from a JSON object: one as in JSONL, or an OSWorld task as in its file.

    Args:
        document: The object; its fields are those of `load_items`.
        where: What errors call it.

    Raises:
        BenchmarkError: It is no item; one sentence naming the field.
    """
    return _item(document_entry(where, document), None)


def check_id(item_id: str) -> str | None:
    """Returns what is wrong with an id, as the end of a sentence; None when the id is valid.

    Slashes and all scripts are allowed; an id that could lead out of a folder or cannot be written is not.
    """
    try:
        size = len(item_id.encode())
    except UnicodeEncodeError:
        return "holds half a surrogate pair, which no file name or key can"
    if not item_id.strip():
        return "is empty"
    if size > MAX_ID_BYTES:
        return f"has {size} bytes in UTF-8, more than {MAX_ID_BYTES}"
    if any(unicodedata.category(character) == "Cc" for character in item_id):
        return "holds a control character"
    if any(segment in {".", ".."} for segment in item_id.split("/")):
        return "has '.' or '..' between slashes, which could lead out of a folder"
    return None


_JSON_NAMES = {str: "text", dict: "an object"}


def _compile(answer_pattern: str | None) -> regex.Pattern[str] | None:
    if answer_pattern is None:
        return None
    import regex  # here, because few benchmarks need it

    try:
        pattern = regex.compile(answer_pattern)
    except regex.error as error:
        raise BenchmarkError(f"answer pattern {answer_pattern!r} is not a regular expression: {error}") from error
    if pattern.groups < 1:
        raise BenchmarkError(f"answer pattern {answer_pattern!r} needs one group (...) around the answer")
    return pattern


def _renamed(entry: Entry, names: Mapping[str, str]) -> Entry:
    """Returns the entry with its fields renamed to those of an item."""
    if entry.problem or not names:
        return entry
    values = dict(entry.fields)
    for name, data_field in names.items():
        if data_field not in entry.fields:
            raise BenchmarkError(f"{entry.where}: has no field {_shown(data_field)}, which --field names as its {name}")
        values.pop(data_field, None)
    values |= {name: entry.fields[data_field] for name, data_field in names.items()}
    return replace(entry, fields=values, question_field=names.get("question", entry.question_field))


def _item(entry: Entry, pattern: regex.Pattern[str] | None) -> Item:
    if problem := entry.problem or too_deep(entry.fields):
        raise BenchmarkError(f"{entry.where}: {problem}")
    rest = dict(entry.fields)
    item_id = _id(entry, rest.pop("id", None))
    question = _question(entry, rest.pop("question", None))
    answer = _as_text(rest.pop("answer", None))
    inner = _object(entry, "metadata", rest.pop("metadata", None))
    own_env_config = rest.pop("env_config", None)
    metadata = {**inner, **rest}
    inner_env_config = metadata.pop("env_config", None)
    env_config = _object(entry, "env_config", inner_env_config if own_env_config is None else own_env_config)
    if pattern is not None:
        metadata[WORKED_ANSWER] = answer
        answer = _final_answer(entry, item_id, answer, pattern)
    return Item(item_id, question, answer, metadata, env_config)


def _id(entry: Entry, value: object) -> str:
    if value is None:
        return f"item_{entry.number}"
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise BenchmarkError(f"{entry.where}: id must be text or a whole number, got {_shown(value)}")
    item_id = str(value)
    if problem := check_id(item_id):
        raise BenchmarkError(f"{entry.where}: id {_shown(item_id)} {problem}")
    return item_id


def _question(entry: Entry, value: object) -> str:
    if value is None:
        raise BenchmarkError(f"{entry.where}: {entry.question_field} is missing")
    if not isinstance(value, str):
        raise BenchmarkError(f"{entry.where}: {entry.question_field} must be text, got {_shown(value)}")
    if not value.strip():
        raise BenchmarkError(f"{entry.where}: {entry.question_field} is empty")
    return value


def _object(entry: Entry, name: str, value: object) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BenchmarkError(f"{entry.where}: {name} must be an object, got {_shown(value)}")
    return value


def _as_text(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _final_answer(entry: Entry, item_id: str, answer: str, pattern: regex.Pattern[str]) -> str:
    found = ""
    said = f"{entry.where}: answer pattern {pattern.pattern!r}"
    try:
        for match in pattern.finditer(answer, timeout=_PATTERN_SECONDS):
            found = (match.group(1) or "").strip()
    except TimeoutError as error:
        of = f"the answer of item {_shown(item_id)}"
        raise BenchmarkError(f"{said} takes longer than {_PATTERN_SECONDS:g} s on {of}") from error
    if not found:
        raise BenchmarkError(f"{said} finds nothing in the answer of item {_shown(item_id)}")
    return found


def _shown(value: object) -> str:
    """Returns a value as JSON, short enough for a sentence and safe to print."""
    text = json.dumps(value)
    return text if len(text) <= 80 else text[:77] + "..."
