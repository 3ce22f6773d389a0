"""What messages say about where a wrong value is: the user's own names and numbers, never those of pydantic's types."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from rollout_tasks.errors import UserError
from rollout_tasks.models.scripted.json_files import validate
from rollout_tasks.validation_messages import location_of
from rollout_tasks.vm_options import open_provider
from vm_pool.errors import ProviderError


class _One(BaseModel):
    model_config = ConfigDict(extra="forbid")

    kind: Literal["one"] = "one"
    first: float


class _Two(BaseModel):
    model_config = ConfigDict(extra="forbid")

    kind: Literal["two"]
    second: int


class _Plain(TypedDict):
    third: int


def _same(value: Any) -> Any:
    return value


_Positive = Annotated[float, Field(ge=0)]
TYPES: dict[str, Any] = {
    "a number with limits, or a model": _Positive | _One,
    "several models": _One | _Two,
    "models told apart by a field": Annotated[_One | _Two, Field(discriminator="kind")],
    "lists and mappings": list[int] | dict[str, _One] | tuple[int, _Two],
    "with functions": Annotated[int, AfterValidator(_same)] | Annotated[_One, BeforeValidator(_same)],
    "a typed dictionary": _Plain | Literal["none"],
    "a path, or nothing": Path | bool | None,
    "unions in each other": list[_One | list[_Positive | _Two]],
    "limited keys": dict[Annotated[str, Field(pattern="^[a-z]$")], int | _One],
}
VALUES: list[Any] = ["x", -1, None, [], ["x"], [[-1, {"kind": "two"}]], {"a": "x"}, {"first": "x"}, {"kind": "two"}]
VALUES += [
    {"second": 1, "more": 1},
    {"kind": "three"},
    {"A": {"first": 1}},
    {"a": {"first": []}},
    {"third": "x"},
    {1: 2},
]


def errors_of(kind: Any, value: Any) -> list[Any]:
    try:
        TypeAdapter(dict[str, kind]).validate_python({"field": value})
    except ValidationError as error:
        return list(error.errors())
    return []


@pytest.mark.parametrize("name", TYPES)
def test_a_place_has_only_names_and_numbers_of_the_users_own(name: str) -> None:
    seen = 0
    for value in VALUES:
        for error in errors_of(TYPES[name], value):
            seen += 1
            place = location_of(error, {"field": value})
            at: Any = {"field": value}
            for part in place[: -1 if error["type"] == "missing" else None]:
                at = at[part]
            assert place[0] == "field"
            if error["type"] == "missing":
                assert place[-1] in {"first", "second", "third", "kind", 0, 1}
                assert place[-1] not in (range(len(at)) if isinstance(at, list) else at)
    assert seen


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("x", "reset_seconds: must be a number, got 'x'"),
        (-1, "reset_seconds: must be at least 0, got -1"),
        ([1], "reset_seconds: must be a number, got [1]"),
    ],
)
def test_an_option_of_several_kinds_is_named_as_the_user_wrote_it(value: Any, sentence: str) -> None:
    with pytest.raises(ProviderError) as caught:
        open_provider("simulated", {"reset_seconds": value})

    assert str(caught.value) == f"VM provider 'simulated' does not accept its options: {sentence}"


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ({"first": 1, "second": 2}, "file: second: is not an option"),
        ({}, "file: first: is missing"),
        (5, "file: must be a mapping of options, got 5"),
    ],
)
def test_files_are_judged_in_the_same_words(value: Any, sentence: str) -> None:
    with pytest.raises(UserError) as caught:
        validate(TypeAdapter(_One), value, "file")

    assert str(caught.value) == sentence
