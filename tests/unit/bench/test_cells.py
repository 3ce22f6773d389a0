"""What the bench of cells makes of its pairs."""

from __future__ import annotations

import pytest

from scripts.bench.cells import interval


def test_pairs_that_agree_leave_no_doubt() -> None:
    assert interval([1.05] * 30) == pytest.approx((1.05, 1.05, 1.05))


def test_the_mean_is_that_of_ratios() -> None:
    mean, low, high = interval([2.0, 0.5] * 15)

    assert mean == pytest.approx(1.0)
    assert low == pytest.approx(1 / high)
    assert 1.2 < high < 1.4
