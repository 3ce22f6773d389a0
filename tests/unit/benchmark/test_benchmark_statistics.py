"""Statistics against brute force, scipy and known values."""

from __future__ import annotations

from itertools import combinations, product
from statistics import fmean

import pytest
import scipy
from hypothesis import example, given, settings
from hypothesis import strategies as st

from benchmark.errors import BenchmarkError
from benchmark.statistics import (
    compare_paired,
    confidence_interval,
    ks_to_report,
    mean,
    pass_at_k,
    standard_error,
)

shares = st.floats(0, 1)


@given(st.integers(1, 8).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_pass_at_k_is_the_share_of_draws_with_a_success(case: tuple[int, int, int]) -> None:
    rollouts, successes, k = case
    outcomes = [True] * successes + [False] * (rollouts - successes)

    draws = [any(draw) for draw in combinations(outcomes, k)]

    assert pass_at_k(rollouts, successes, k) == pytest.approx(fmean(draws), abs=1e-12)


@pytest.mark.parametrize(
    ("rollouts", "successes", "k", "expected"),
    [(10_000, 1, 1, 1e-4), (10_000, 1, 5_000, 0.5), (10_000, 0, 10_000, 0), (10_000, 10_000, 1, 1), (3, 1, 3, 1)],
)
def test_pass_at_k_of_many_rollouts(rollouts: int, successes: int, k: int, expected: float) -> None:
    assert pass_at_k(rollouts, successes, k) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("rollouts", "successes", "k"), [(3, 1, 0), (3, 1, 4), (3, 4, 1), (3, -1, 1), (0, 0, 0)])
def test_pass_at_k_of_nonsense_is_refused(rollouts: int, successes: int, k: int) -> None:
    with pytest.raises(BenchmarkError):
        pass_at_k(rollouts, successes, k)


@pytest.mark.parametrize(("n", "ks"), [(1, [1]), (2, [1, 2]), (3, [1, 2, 3]), (8, [1, 2, 4, 8]), (9, [1, 2, 4, 8, 9])])
def test_ks_double_up_to_n(n: int, ks: list[int]) -> None:
    assert ks_to_report(n) == ks


@given(st.integers(1, 300).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_all_or_nothing_scores_get_wilsons_interval(case: tuple[int, int]) -> None:
    successes, trials = case
    theirs = scipy.stats.binomtest(successes, trials).proportion_ci(method="wilson")

    ours = confidence_interval([1.0] * successes + [0.0] * (trials - successes))

    assert ours is not None
    assert (ours.low, ours.high, ours.method) == (pytest.approx(theirs.low), pytest.approx(theirs.high), "wilson")


@given(st.lists(shares, min_size=2, max_size=30))
def test_an_interval_holds_the_mean_and_stays_in_bounds(scores: list[float]) -> None:
    interval = confidence_interval(scores)

    if interval is None:
        assert len(set(scores)) == 1
        return
    assert 0.0 <= interval.low <= fmean(scores) + 1e-12
    assert fmean(scores) - 1e-12 <= interval.high <= 1.0


def test_partial_scores_get_students_interval() -> None:
    scores = [0.5, 0.6, 0.4, 0.55, 0.45]
    theirs = scipy.stats.ttest_1samp(scores, 0.0).confidence_interval(0.95)

    ours = confidence_interval(scores)

    assert ours is not None
    assert (ours.low, ours.high, ours.method) == (pytest.approx(theirs.low), pytest.approx(theirs.high), "t")


def test_too_few_items_give_no_figures() -> None:
    assert mean([]) is None
    assert (standard_error([]), standard_error([0.5])) == (None, None)
    assert (confidence_interval([]), confidence_interval([0.5])) == (None, None)
    assert confidence_interval([0.5, 0.5]) is None, "equal values say nothing about the spread"
    assert confidence_interval([1.0]) is not None


def test_rollouts_of_one_item_do_not_shrink_the_error() -> None:
    items = [1.0, 0.0, 1.0, 0.5]

    assert standard_error(items) == pytest.approx(0.2394, abs=1e-4)
    assert standard_error([*items, *items]) != standard_error(items)


@settings(max_examples=30)
@given(st.lists(st.tuples(shares, shares), min_size=1, max_size=8))
@example(
    [(0.0, 0.82), (1.0, 0.0), (1.0, 0.44), (0.56, 1.0), (0.85, 0.39), (0.71, 0.89), (0.22, 0.83), (0.03, 0.0)]
)  # the same mean: sums that are 0 but for rounding are as far from 0 as this one
def test_p_value_is_the_share_of_swaps_at_least_as_far_from_zero(pairs: list[tuple[float, float]]) -> None:
    rounded = [(round(first, 2), round(second, 2)) for first, second in pairs]
    first, second = ({str(i): pair[side] for i, pair in enumerate(rounded)} for side in (0, 1))
    differences = [b - a for a, b in rounded]
    observed = abs(sum(differences)) - 1e-9
    swaps = [
        sum(sign * d for sign, d in zip(signs, differences, strict=True))
        for signs in product((1, -1), repeat=len(pairs))
    ]

    comparison = compare_paired(first, second)

    assert comparison.p_value == pytest.approx(fmean(abs(total) >= observed for total in swaps), abs=1e-12)


@pytest.mark.parametrize("difference", [1.0, 1e-10, 1e-14])
def test_however_small_the_differences_are(difference: float) -> None:
    first = {str(item): 0.0 for item in range(8)}

    assert compare_paired(first, dict.fromkeys(first, difference)).p_value == 2 / 2**8


def test_comparison_of_two_runs() -> None:
    first = {str(i): float(i % 2) for i in range(40)} | {"only first": 1.0}
    second = {str(i): 1.0 for i in range(40)}

    ahead, behind = compare_paired(first, second), compare_paired(second, first)

    assert (ahead.items, ahead.only_in_first, ahead.only_in_second) == (40, 1, 0)
    assert ahead.mean_difference == 0.5
    assert behind.mean_difference == -0.5
    assert ahead.p_value == pytest.approx(behind.p_value)
    assert ahead.p_value < 0.001
    assert ahead.interval is not None
    assert 0.3 < ahead.interval.low < 0.5 < ahead.interval.high < 0.7
    assert compare_paired(first, second) == ahead


def test_equal_runs_do_not_differ() -> None:
    same = {"a": 0.5, "b": 1.0}

    comparison = compare_paired(same, same)

    assert (comparison.mean_difference, comparison.p_value) == (0.0, 1.0)


def test_runs_without_a_common_item_are_refused() -> None:
    with pytest.raises(BenchmarkError, match="no item in common"):
        compare_paired({"a": 1.0}, {"b": 1.0})
