"""Figures of several runs: each by hand, from items with few rollouts."""

from __future__ import annotations

import pytest

from benchmark.percentiles import shares, spread
from benchmark.run_figures import GROUPS, OVERALL, bests, figures, lines
from benchmark.scored_items import ScoredItem


def item(name: str, domain: str | None, *scores: float | None) -> ScoredItem:
    valid = {index: score for index, score in enumerate(scores) if score is not None}
    return ScoredItem(name, domain, len(scores), valid, sum(valid.values()), "m", b"")


FIRST = {
    one.item_id: one
    for one in [
        item("a", "chrome", 1.0, 0.0),
        item("b", "libreoffice_calc", None, 0.5),
        item("c", "os", None, None),
        item("d", "multi_apps", 0.0, 0.0),
    ]
}
SECOND = {
    one.item_id: one
    for one in [
        item("a", "chrome", 0.0, 0.0),
        item("b", "libreoffice_calc", 1.0, None),
        item("c", "os", 1.0, 1.0),
        item("d", "multi_apps", 0.0, 0.0),
    ]
}


def test_what_was_lost_counts_in_the_score_alone() -> None:
    found = figures(FIRST.values())

    assert (found.asked, found.valid, found.items) == (8, 5, 3)
    assert found.score == 1.5 / 8
    assert found.valid_mean == pytest.approx((0.5 + 0.5 + 0.0) / 3)
    assert found.best_mean == pytest.approx((1.0 + 0.5 + 0.0) / 3)
    assert found.any_correct == 1
    assert figures([]).valid_mean is None


def test_lines_are_by_domain_group_and_over_all() -> None:
    found = lines([FIRST, SECOND], list(FIRST), frozenset("d"))

    names = [(line.kind, line.name, line.items) for line in found]
    assert names == [
        ("domain", "chrome", 1),
        ("domain", "libreoffice_calc", 1),
        ("domain", "multi_apps", 1),
        ("domain", "os", 1),
        ("group", "OS", 1),
        ("group", "Office", 1),
        ("group", "Daily", 1),
        ("infeasible", "infeasible", 1),
        ("overall", OVERALL, 4),
    ]
    together = found[-1].together
    assert (together.items, together.any_correct) == (4, 3), "a in the first run, b and c in the second"
    assert together.best_mean == 0.75
    assert together.valid_mean == pytest.approx((0.25 + 0.75 + 1.0 + 0.0) / 4)
    assert [one.valid_mean for one in found[3].runs] == [None, 1.0]


def test_each_domain_is_in_one_group_at_most() -> None:
    members = [domain for group in GROUPS.values() for domain in group]

    assert len(members) == len(set(members)) == 9


def test_the_best_of_an_item_is_of_any_run() -> None:
    found = {one.item_id: one for one in bests([FIRST, SECOND], list(FIRST))}

    assert (found["c"].means, found["c"].best, found["c"].solved) == ((None, 1.0), 1.0, True)
    assert (found["d"].best, found["d"].solved) == (0.0, False)
    only = bests([FIRST], ["c"])[0]
    assert (only.best, only.solved) == (None, False)


def test_percentiles_of_durations() -> None:
    found = spread([float(n) for n in range(101)])

    assert found is not None
    assert (found.count, found.total, found.mean) == (101, 5050.0, 50.0)
    assert (found.p50, found.p90, found.p99) == (50.0, 90.0, 99.0)
    assert spread([]) is None
    assert shares({"a": 3.0, "b": 1.0}) == {"a": 0.75, "b": 0.25}
    assert shares({"a": 0.0}) == {"a": 0.0}
