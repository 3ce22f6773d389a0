"""Places and parts of a page's text."""

from __future__ import annotations

import pytest

from rollout_tasks.environments.web import passages

TEXT = "a" * 1_000 + " The  Tide\nMuseum " + "b" * 1_000 + " the tide museum again. " + "c" * 50


def test_a_text_is_found_in_any_case_and_over_line_ends() -> None:
    count, places = passages.places(TEXT, "tide  MUSEUM")

    assert count == 2
    assert [begin for begin, _ in places] == [1_006 - passages.AROUND, 2_023 - passages.AROUND]
    assert "The  Tide\nMuseum" in places[0][1]
    assert places[1][1].endswith("c" * 50)


def test_signs_of_patterns_mean_themselves() -> None:
    assert passages.places("costs 1.5 (or 1x5)", "1.5 (or")[0] == 1
    assert passages.places("x", "[")[0] == 0


def test_places_are_few_and_short() -> None:
    count, places = passages.places("ab " * 100_000, "ab")

    assert (count, len(places)) == (100_000, passages.MOST_PLACES)
    assert max(len(said) for _, said in places) <= passages.LONGEST_PLACE


@pytest.mark.parametrize(("start", "length"), [(0, passages.PART), (9_000, 1_000), (10_000, 0), (10**9, 0)])
def test_parts(start: int, length: int) -> None:
    assert len(passages.part("x" * 10_000, start)) == length
