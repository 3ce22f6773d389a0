"""Figures worked out by hand: intervals, errors, comparisons, bounds; and what the judge may take."""

from __future__ import annotations

import math

import pytest

from benchmark.errors import BenchmarkError
from benchmark.judge import JudgeConfig
from benchmark.statistics import (
    compare_paired,
    confidence_interval,
    ks_to_report,
    mean,
    pass_at_k,
    standard_error,
)


def test_wilsons_interval_of_three_in_four() -> None:
    interval = confidence_interval([1.0, 1.0, 0.0, 1.0])

    assert interval is not None
    assert (interval.method, round(interval.low, 4), round(interval.high, 4)) == ("wilson", 0.3006, 0.9544)


def test_wilsons_interval_at_the_ends() -> None:
    none, every = confidence_interval([0.0] * 4), confidence_interval([1.0] * 4)

    assert none is not None
    assert every is not None
    assert (none.low, round(none.high, 4)) == (0.0, 0.4899)
    assert (round(every.low, 4), every.high) == (0.5101, 1.0)


def test_students_interval_of_three() -> None:
    interval = confidence_interval([0.4, 0.5, 0.6])

    assert interval is not None
    assert (interval.method, round(interval.low, 4), round(interval.high, 4)) == ("t", 0.2516, 0.7484)
    cut = confidence_interval([0.0, 0.5])
    assert cut is not None
    assert (cut.low, cut.high) == (0.0, 1.0)
    assert confidence_interval([0.5]) is None
    assert confidence_interval([]) is None


def test_the_standard_error_is_of_the_mean() -> None:
    assert standard_error([0.4, 0.5, 0.6]) == pytest.approx(0.1 / math.sqrt(3))
    assert standard_error([0.4, 0.6]) == pytest.approx(0.1)
    assert standard_error([0.4]) is None
    assert mean([0.4, 0.6]) == pytest.approx(0.5)
    assert mean([]) is None


@pytest.mark.parametrize(
    ("rollouts", "successes", "k", "chance"),
    [(4, 0, 2, 0.0), (4, 1, 1, 0.25), (4, 1, 2, 0.5), (4, 2, 2, 5 / 6), (4, 2, 3, 1.0), (4, 4, 1, 1.0), (1, 1, 1, 1.0)],
)
def test_pass_at_k_by_counting(rollouts: int, successes: int, k: int, chance: float) -> None:
    assert pass_at_k(rollouts, successes, k) == pytest.approx(chance)


@pytest.mark.parametrize("case", [(4, 2, 0), (4, 2, 5), (4, -1, 1), (4, 5, 1)])
def test_pass_at_k_of_what_cannot_be(case: tuple[int, int, int]) -> None:
    with pytest.raises(BenchmarkError):
        pass_at_k(*case)


def test_the_ks_that_are_reported() -> None:
    assert [ks_to_report(n) for n in (1, 2, 3, 4, 5, 8)] == [
        [1],
        [1, 2],
        [1, 2, 3],
        [1, 2, 4],
        [1, 2, 4, 5],
        [1, 2, 4, 8],
    ]


def test_a_comparison_by_hand() -> None:
    first = {"a": 0.0, "b": 0.0, "c": 1.0, "d": 0.5, "only-first": 1.0}
    second = {"a": 1.0, "b": 1.0, "c": 1.0, "d": 1.0, "only-second": 0.0, "another": 0.0}

    compared = compare_paired(first, second)

    assert (compared.items, compared.only_in_first, compared.only_in_second) == (4, 1, 2)
    assert compared.mean_difference == pytest.approx(0.625)
    assert compared.p_value == pytest.approx(0.25)  # of 8 ways to swap three items, 2 are as far from 0
    assert compared.interval is not None
    assert (round(compared.interval.low, 4), compared.interval.high) == (-0.1367, 1.0)
    assert compare_paired(second, first).mean_difference == pytest.approx(-0.625)


def test_a_single_difference_proves_nothing() -> None:
    compared = compare_paired({"a": 0.0, "b": 1.0}, {"a": 1.0, "b": 1.0})

    assert (compared.p_value, compared.mean_difference) == (1.0, 0.5)


def test_a_judge_may_take_what_is_documented() -> None:
    config = JudgeConfig("m")

    assert (config.tries, config.call_seconds, config.answer_seconds, config.concurrency) == (4, 30.0, 120.0, 8)
    assert config.base_url is None
