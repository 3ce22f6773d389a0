from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout_tasks.errors import FailureClass, RolloutFailure, boundary
from rollout_tasks.unicode_text import printable, storable, storable_json

ANY_TEXT = st.text(st.characters(exclude_categories=()))


@given(ANY_TEXT)
def test_whatever_it_was_it_can_be_stored(text: str) -> None:
    stored = storable(text)
    stored.encode()
    assert "\0" not in stored
    assert storable(stored) == stored


@given(ANY_TEXT.filter(lambda text: "\0" not in text and not any(0xD800 <= ord(one) < 0xE000 for one in text)))
def test_what_can_be_stored_stays(text: str) -> None:
    assert storable(text) == text


@given(ANY_TEXT)
def test_whatever_it_was_it_steers_no_terminal(text: str) -> None:
    shown = printable(text)
    assert len(shown) == len(text)
    assert all(one.isprintable() or one in "\n\t" for one in shown)


def test_two_halves_become_their_character() -> None:
    assert storable("\ud83d\ude00") == "\U0001f600"
    assert storable("\ude00\ud83d") == "\ufffd\ufffd"


def test_json_is_made_storable_to_a_depth() -> None:
    assert storable_json(json.loads('{"\\ud800": [{"a": "\\u0000"}, 1, null]}'), 3) == {
        "\ufffd": [{"a": "\ufffd"}, 1, None]
    }
    with pytest.raises(ValueError, match="nested too deeply"):
        storable_json([[[[]]]], 3)


@pytest.mark.parametrize("text", ["\x1b[2J", "\x1b]0;title\x07", "\x9b31m", "\u202egnp.exe", "\r", "\x08", "\ud800"])
def test_a_failure_says_nothing_to_a_terminal(text: str) -> None:
    with pytest.raises(RolloutFailure) as caught, boundary(FailureClass.ENV_STEP, "a click"):
        raise RuntimeError(f"it said {text} x")
    assert str(caught.value) == f"a click: RuntimeError: it said {printable(text)} x"
    assert text not in str(caught.value)
