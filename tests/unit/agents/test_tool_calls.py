from __future__ import annotations

import json

import pytest

from rollout_tasks.agents.tool_calls import ToolCallReader, UnusableCallError
from rollout_tasks.environments.base import Tool
from rollout_tasks.models.base import RawToolCall

ANY = ToolCallReader([Tool("act", "Does something.", {"type": "object", "additionalProperties": True})])


def arguments(text: str) -> object:
    return ANY.read(RawToolCall("1", "act", text), cut_off=False).arguments


def test_what_the_model_wrote_is_read() -> None:
    assert arguments('{"text": "h\\u00e9", "at": [1, -2.5e3, true, null], "deep": {"a": {"b": []}}}') == {
        "text": "hé",
        "at": [1, -2500.0, True, None],
        "deep": {"a": {"b": []}},
    }


def test_escaped_halves_of_pairs_are_replaced() -> None:
    assert arguments('{"a\\ud800": ["\\udc00", "\\ud83d\\ude00", "\\u0000"]}') == {
        "a\ufffd": ["\ufffd", "\U0001f600", "\ufffd"]
    }


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ('{"x": NaN}', "NaN is not a number"),
        ('{"x": -Infinity}', "-Infinity is not a number"),
        ('{"x": 1e999}', "1e999 is not a number"),
        ('{"x": ' + "9" * 101 + "}", "a number of 101 digits is too long"),
        ('{"x": ' + "9" * 5000 + "}", "a number of 5000 digits is too long"),
        ('{"x": ' + "[" * 32 + "]" * 32 + "}", "lists and objects are nested too deeply"),
        ('{"x": ' + "[" * 900 + "]" * 900 + "}", "lists and objects are nested too deeply"),
        ('{"x": ' + "[" * 90_000, "arguments are not JSON: "),
    ],
    ids=["nan", "infinity", "large", "digits", "more digits", "deep", "deeper", "endless"],
)
def test_what_no_tool_could_take_is_said(written: str, said: str) -> None:
    with pytest.raises(UnusableCallError, match="Validation failed for act: ") as caught:
        arguments(written)

    assert said in str(caught.value)
    assert len(str(caught.value)) < 600


def test_a_hundred_digits_are_a_number() -> None:
    assert arguments(json.dumps({"x": 10**99})) == {"x": 10**99}
