"""The scripts: what the scripted model answers to each item, turn by turn. Reads them; `policies` derives them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, field_validator, model_validator

from benchmark.items import Item
from rollout_tasks.errors import UserError
from rollout_tasks.models.scripted.json_files import read_json, validate
from rollout_tasks.models.scripted.policies import choose, worked_example, wrong_text

METADATA_KEY = "script"
EVERY = "*"
"""The variant for attempts that no other variant matches."""


class ScriptedCall(BaseModel):
    """One tool call of a turn."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(min_length=1)
    arguments: dict[str, Any]
    """``at`` replaces ``x`` and ``y``: a text, or several, of what is meant on the screen; see `pointing`."""

    @field_validator("arguments")
    @classmethod
    def _points_at_texts(cls, arguments: dict[str, Any]) -> dict[str, Any]:
        if "at" in arguments:
            path = arguments["at"] if isinstance(arguments["at"], list) else [arguments["at"]]
            if not path or not all(isinstance(text, str) and text for text in path):
                raise ValueError("at must be a text, or a list of texts")
        return arguments


class Turn(BaseModel):
    """One assistant message."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    text: str = ""
    tool_calls: tuple[ScriptedCall, ...] = ()
    when: str | None = Field(None, min_length=1)
    """Text that the last observation must contain first; see `wait_turns`."""

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.text and not self.tool_calls:
            raise ValueError("needs text or tool_calls")
        return self


Turns = Annotated[tuple[Turn, ...], Field(min_length=1)]
VariantName = Annotated[str, Field(pattern=r"^(\*|\d+(/\d+)?)$")]
Variants = Annotated[dict[VariantName, Turns], Field(min_length=1)]
"""Turns by ``*`` (all rollouts of the item), ``<index>`` or ``<index>/<attempt>``; the closest one is taken."""

_TURNS: TypeAdapter[Turns] = TypeAdapter(Turns)
_VARIANTS: TypeAdapter[Variants] = TypeAdapter(Variants)


class Scripts:
    """The scripts of a benchmark's items."""

    def __init__(self, by_item: Mapping[str, Variants]) -> None:
        self._by_item = by_item

    def __len__(self) -> int:
        return len(self._by_item)

    def __contains__(self, item_id: object) -> bool:
        return item_id in self._by_item

    def find(self, item_id: str, index: int = 0, attempt: int = 1) -> tuple[Turn, ...] | None:
        """Returns the turns of one attempt; None if the item has no script, or none for this attempt."""
        variants = self._by_item.get(item_id, {})
        for name in (f"{index}/{attempt}", str(index), EVERY):
            if name in variants:
                return variants[name]
        return None


def load_scripts(items: Iterable[Item], script_file: Path | None = None, *, corrupt: int = 0, seed: int = 0) -> Scripts:
    """Finds each item's script: in the script file, else in its metadata, else derived from a worked answer.

    Args:
        items: The benchmark.
        script_file: JSON, ``{item id: turns or variants}``.
        corrupt: How many of the items with a script get a wrong final answer.
        seed: The same seed and items give the same wrong ones.

    Raises:
        UserError: A script cannot be read, or there are fewer scripts than wrong answers asked for.
    """
    items = list(items)
    filed = _read_script_file(script_file, {item.id for item in items}) if script_file else {}
    by_item = {item.id: script for item in items if (script := filed.get(item.id) or _own_script(item))}
    if corrupt > len(by_item):
        raise UserError(f"cannot corrupt {corrupt} answers: only {len(by_item)} items have a script")
    answers = {item.id: item.answer for item in items}
    for item_id in choose(by_item, corrupt, seed):
        wrong = wrong_text(answers[item_id])
        by_item[item_id] = {name: _ending_with(wrong, turns) for name, turns in by_item[item_id].items()}
    return Scripts(by_item)


def uncovered(items: Iterable[Item], script_file: Path | None = None) -> list[str]:
    """Returns the ids of items that the scripted model would refuse, in the order of `items`.

    Raises:
        UserError: A script cannot be read.
    """
    items = list(items)
    scripts = load_scripts(items, script_file)
    return [item.id for item in items if item.id not in scripts]


def _own_script(item: Item) -> Variants | None:
    if METADATA_KEY in item.metadata:
        return _parse(item.metadata[METADATA_KEY], f"item {item.id!r}: {METADATA_KEY}")
    if (turns := worked_example(item)) is not None:
        return _parse(turns, f"item {item.id!r}: worked answer")
    return None


def _read_script_file(path: Path, known: set[str]) -> dict[str, Variants]:
    values = read_json(path, "script file")
    if not isinstance(values, dict):
        raise UserError(f"script file {path}: must be an object of item ids")
    if stray := next((item_id for item_id in values if item_id not in known), None):
        raise UserError(f"script file {path}: the data has no item {stray!r}")
    return {item_id: _parse(script, f"script file {path}: {item_id!r}") for item_id, script in values.items()}


def _parse(script: Any, where: str) -> Variants:
    return {EVERY: validate(_TURNS, script, where)} if isinstance(script, list) else validate(_VARIANTS, script, where)


def _ending_with(text: str, turns: tuple[Turn, ...]) -> tuple[Turn, ...]:
    return (*turns[:-1], Turn(text=text))
