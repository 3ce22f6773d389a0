"""A model's key that an endpoint sends back is in no reply and no message, however JSON or a URL writes it."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmark.http_client import without_key, without_real_key

KEY = "AbCdEf12/GhIjKl34+MnOpQr56=="
ESCAPED = {
    "as it is": KEY,
    "with its strokes escaped": KEY.replace("/", r"\/"),
    "with its signs as code points": KEY.replace("+", r"\u002B").replace("=", r"\u003d"),
    "wholly as code points": "".join(f"\\u{ord(one):04x}" for one in KEY),
    "in a URL": quote(KEY, safe=""),
    "in a URL, with small digits": KEY.replace("/", "%2f").replace("+", "%2b").replace("=", "%3d"),
    "in JSON within JSON": json.dumps(json.dumps({"key": KEY.replace("/", r"\/")})),
}


@pytest.mark.parametrize("written", ESCAPED.values(), ids=list(ESCAPED))
def test_it_is_taken_out(written: str) -> None:
    assert KEY[2:8] not in without_real_key(f'{{"content": "key {written} end"}}', KEY)
    assert without_key(f"said {written}.", KEY).endswith(".")
    assert "***" in without_key(f"said {written}.", KEY)


@given(st.text('abcXYZ019-_./+=~"\\', min_size=16, max_size=40), st.text(max_size=20), st.text(max_size=20))
def test_a_reply_without_it_is_still_json(key: str, before: str, after: str) -> None:
    reply = without_real_key(json.dumps({"content": f"{before}{key}{after}"}), key)

    assert key not in json.loads(reply)["content"]


@given(st.text(max_size=200))
def test_text_that_has_no_key_stays_as_it_is(text: str) -> None:
    assert without_key(text, KEY) == text


@pytest.mark.parametrize("key", ["", "none", "EMPTY", "not-needed", "sk-no-key-required"])
def test_words_that_stand_for_no_key_stay_in_replies(key: str) -> None:
    assert without_real_key(f"api_key='{key}'", key) == f"api_key='{key}'"


def test_other_encodings_are_left_alone() -> None:
    encoded = base64.b64encode(KEY.encode()).decode()

    assert without_key(encoded, KEY) == encoded


@pytest.mark.parametrize("much", ["\\" * 500_000, "%41" * 200_000, r"\u0041" * 200_000, "Ab" * 300_000])
def test_a_reply_that_is_almost_all_escapes_is_read_at_once(much: str) -> None:
    assert without_key(f"%{much}", KEY) == f"%{much}"


def test_numbers_that_json_cannot_have_are_left_as_they_are() -> None:
    assert without_real_key(f'{{"a": 1e400, "b": "{KEY}"}}', KEY) == '{"a": 1e400, "b": "***"}'
