"""The intervals of `rollouts compare` have the true difference as often as they say, on simulated runs."""

from __future__ import annotations

import pytest

from scripts.bench.intervals import DESIGNS, Design, coverage, true_difference


@pytest.mark.slow
@pytest.mark.parametrize("design", [DESIGNS[1], DESIGNS[5], DESIGNS[6]], ids=str)
def test_at_least_93_of_100_intervals_have_the_true_difference(design: Design) -> None:
    found = coverage(design, simulations=300, seed=1)

    assert found.covered >= 0.93
    if not design.shift:
        assert found.found <= 0.08, "the test finds a difference where there is none, in 5 of 100 cases"


def test_the_true_difference_is_known() -> None:
    assert true_difference(0.0) == 0.0
    assert true_difference(0.8) == pytest.approx(0.1206, abs=0.0005)
