"""Items scored one after the other: in order, whatever takes longer, and few of them held."""

from __future__ import annotations

import weakref
from collections.abc import Iterator

import pytest

from benchmark import RolloutResult
from benchmark.errors import UnknownMetric
from benchmark.items import Item
from benchmark.results import PERFECT
from benchmark.scoring import Outcome, score_each
from benchmark.summary import Tally

MANY = 2_000


class TrackedItem(Item):
    """An item of which one can tell whether anybody still holds it."""

    __slots__ = ("__weakref__",)


class Items:
    """Makes items one by one, and knows the most that were held at a time."""

    def __init__(self) -> None:
        self.held = 0
        self.most = 0

    def _let_go(self) -> None:
        self.held -= 1

    def outcomes(self) -> Iterator[Outcome]:
        for number in range(MANY):
            item = TrackedItem(str(number), "q", str(number), {"domain": f"d{number % 3}"})
            weakref.finalize(item, self._let_go)
            self.held += 1
            self.most = max(self.most, self.held)
            yield Outcome(item, [RolloutResult(item.id, 0, answer=str(number)), None])


def test_few_items_are_held_at_a_time() -> None:
    made = Items()
    tally = Tally("exact_match", 2)

    for number, (outcome, row) in enumerate(score_each(made.outcomes(), metric="exact_match")):
        assert (outcome.item.id, row.item_id, row.score) == (str(number), str(number), 0.5)
        tally.add(row, outcome.known)

    overview = tally.overview()
    assert made.most <= 3
    assert (overview.summary.total_items, overview.summary.average_score) == (MANY, 0.5)


def test_the_lowest_scores_are_kept_in_order() -> None:
    scores = [1.0, 0.5, 0.0, PERFECT, 0.25, *[0.5] * 20, 0.0, 0.75]
    items = [Item(str(number), "q") for number in range(len(scores))]
    outcomes = [Outcome(item, [RolloutResult(item.id, score=score)]) for item, score in zip(items, scores, strict=True)]
    tally = Tally("exact_match", 1)

    for outcome, row in score_each(outcomes, metric="exact_match"):
        tally.add(row, outcome.known)

    worst = [row.item_id for row in tally.overview().worst]
    assert worst == ["2", "25", "4", "1", "5", "6", "7", "8", "9", "10"]


def test_an_unknown_metric_is_refused_before_anything_is_read() -> None:
    def never() -> Iterator[Outcome]:
        raise AssertionError
        yield

    with pytest.raises(UnknownMetric):
        score_each(never(), metric="no such metric")
