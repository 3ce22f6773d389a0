"""Items and the verdicts of their rollouts, joined a few at a time."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from benchmark.errors import BenchmarkError
from benchmark.items import Item
from rollout_tasks.runs.outcomes import outcomes
from rollout_tasks.runs.verdict import Verdict, rollout_id_of

ITEMS = [Item(f"item#{number}", "?") for number in range(450)]


class Verdicts:
    """Every rollout's but those of one item; notes how many were asked for at a time."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def find(self, names: Sequence[str]) -> list[Verdict | None]:
        self.asked.append(len(names))
        return [None if name.startswith("item#7#") else Verdict(name, 1, "completed", answer=name) for name in names]


@pytest.mark.parametrize(
    ("items", "rollouts", "asked"),
    [(450, 1, [200, 200, 50]), (450, 3, [198] * 6 + [162]), (12, 200, [200] * 12), (12, 500, [500] * 12)],
)
def test_each_item_gets_its_own_verdicts_in_order(items: int, rollouts: int, asked: list[int]) -> None:
    verdicts = Verdicts()

    found = list(outcomes(ITEMS[:items], rollouts, verdicts.find))

    assert [outcome.item for outcome in found] == ITEMS[:items]
    assert verdicts.asked == asked
    for outcome in found:
        ended = [None if result is None else (result.index, result.answer) for result in outcome.results]
        names = [(index, rollout_id_of(outcome.item.id, index)) for index in range(rollouts)]
        assert ended == ([None] * rollouts if outcome.item.id == "item#7" else names)


def test_an_item_that_comes_twice_is_refused() -> None:
    with pytest.raises(BenchmarkError, match="item 'item#3' is given twice"):
        list(outcomes([*ITEMS, ITEMS[3]], 1, Verdicts().find))
