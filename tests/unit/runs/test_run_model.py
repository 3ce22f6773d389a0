"""The model of a run from its submission to its report, searched exhaustively; and planted mistakes, each of which must be found.

Larger searches by hand: ``python -m tests.unit.runs.run_system_model rollouts=2 deaths=1 crashes=1``.
"""

from __future__ import annotations

import pytest

from tests.state_search import Violation, explore
from tests.unit.runs.run_system_model import Budget, RunSystem


@pytest.mark.parametrize(
    "budget",
    [
        Budget(deaths=1, losses=1),
        pytest.param(Budget(deaths=1, pauses=1), marks=pytest.mark.slow),
        Budget(deaths=1, failures=1),
        Budget(deaths=1, cancels=1),
        Budget(deaths=1, stops=1),
        Budget(stops=1, cancels=1),
        Budget(doubles=1, lost_messages=1),
        pytest.param(Budget(submitter_deaths=1, losses=1, pauses=1), marks=pytest.mark.slow),
        Budget(crashes=1),
    ],
    ids=lambda budget: " ".join(name for name, number in budget._asdict().items() if number),
)
def test_nothing_that_must_not_be_can_be_reached(budget: Budget) -> None:
    system = RunSystem(1)
    assert explore(system, system.start(budget)).states > 400


def test_two_rollouts_are_both_scored() -> None:
    system = RunSystem(2, workers=1)
    assert explore(system, system.start(Budget(submitter_deaths=1, lost_messages=1))).states > 400


@pytest.mark.parametrize(
    ("flaw", "rollouts", "budget", "found"),
    [
        ("adopts a part", 2, Budget(submitter_deaths=1), "never settles"),
        ("finalises a part", 2, Budget(crashes=1), "results of 2"),
        ("looks into no folder", 1, Budget(deaths=1), "is lost, though an attempt left a result"),
        ("writes over", 1, Budget(pauses=1, failures=1, doubles=1), "the store says"),
        ("admits anybody", 1, Budget(doubles=1), "is lost, though an attempt left a result"),
        ("cancels what was begun", 1, Budget(deaths=1, cancels=1), "the store says cancelled"),
    ],
)
def test_a_planted_mistake_is_found(flaw: str, rollouts: int, budget: Budget, found: str) -> None:
    system = RunSystem(rollouts, attempts=1, flaws=frozenset({flaw}))
    with pytest.raises(Violation, match=found):
        explore(system, system.start(budget))
