"""Comparing two runs: against scipy, published tables, and draws whose truth is known."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from statistics import fmean

import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmark.comparison import (
    POWER,
    bootstrap_interval,
    compare_items,
    holm,
    items_for,
    mcnemar,
    needed_items,
)
from benchmark.errors import BenchmarkError
from benchmark.scored_items import ScoredItem


def run(scores: Mapping[str, Sequence[float | None]]) -> dict[str, ScoredItem]:
    """Items with the scores of their rollouts; None in the place of one that is not valid."""
    return {
        name: ScoredItem(
            name, None, len(own), {index: score for index, score in enumerate(own) if score is not None}, 0.0, None, b""
        )
        for name, own in scores.items()
    }


def draws(items: int, shift: float, seed: int) -> list[float]:
    chance = random.Random(seed)
    return [float(chance.random() < 0.4 + shift) - float(chance.random() < 0.4) for _ in range(items)]


def test_what_is_compared_is_the_mean_of_valid_rollouts() -> None:
    first = run({"a": [1.0, None], "b": [0.0, 1.0], "c": [None, None], "d": [0.5]})
    second = run({"a": [0.0, 0.0], "b": [0.0, 1.0], "c": [1.0, 1.0], "d": [1.0]})

    found = compare_items(first, second, list(first), 0.05)

    assert (found.items, found.left_out) == (3, 1), "a lost rollout is no 0, and c has none in the first run"
    assert (found.first_mean, found.second_mean) == (pytest.approx(2 / 3), 0.5)
    assert found.difference == pytest.approx(0.5 - 2 / 3)
    assert [(one.item_id, one.difference) for one in found.differing] == [("a", -1.0), ("d", 0.5)]


def test_a_shown_rollout_is_one_whose_scores_differ() -> None:
    first, second = run({"a": [1.0, 1.0, 0.0], "b": [1.0]}), run({"a": [1.0, 0.0, 0.0], "b": [1.0]})

    assert [one.index for one in compare_items(first, second, ["a", "b"], 0.05).differing] == [1]


def test_runs_without_a_valid_rollout_in_both_are_refused() -> None:
    with pytest.raises(BenchmarkError, match="no item has a valid rollout in both runs"):
        compare_items(run({"a": [None]}), run({"a": [1.0]}), ["a"], 0.05)


def test_mcnemar_takes_one_rollout_of_each_item_whatever_its_score() -> None:
    first = run({"a": [0.0, 1.0], "b": [None, 1.0], "c": [1.0, 1.0], "d": [None, 1.0]})
    second = run({"a": [1.0, 0.0], "b": [1.0, 0.0], "c": [0.5, 1.0], "d": [1.0, None]})

    exact = compare_items(first, second, list(first), 0.05).mcnemar

    assert (exact.both, exact.first_only, exact.second_only, exact.neither) == (0, 2, 1, 0), "d has none in both"


@pytest.mark.parametrize(
    ("first_only", "second_only", "p_value"),
    # 2 * sum of C(n, k) / 2^n over k up to the smaller one, at most 1
    [(1, 9, 22 / 1024), (9, 1, 22 / 1024), (0, 6, 2 / 64), (5, 5, 1.0), (0, 0, 1.0), (1, 0, 1.0)],
)
def test_mcnemars_p_value_is_exact(first_only: int, second_only: int, p_value: float) -> None:
    outcomes = [(True, False)] * first_only + [(False, True)] * second_only + [(True, True)] * 7 + [(False, False)] * 3

    found = mcnemar(outcomes)

    assert found.p_value == pytest.approx(p_value, abs=1e-12)
    assert (found.both, found.first_only, found.second_only, found.neither) == (7, first_only, second_only, 3)


@pytest.mark.parametrize("items", [20, 68, 369])
def test_the_bootstrap_is_near_students_interval(items: int) -> None:
    differences = draws(items, 0.15, seed=items)
    students = scipy.stats.ttest_1samp(differences, 0.0).confidence_interval(0.95)

    found = bootstrap_interval(differences)

    assert found is not None
    assert found.method == "bootstrap"
    width = students.high - students.low
    assert found.low == pytest.approx(students.low, abs=0.08 * width)
    assert found.high == pytest.approx(students.high, abs=0.08 * width)


def test_for_few_items_the_interval_is_as_wide_as_students() -> None:
    ratios = []
    for seed in range(6):
        chance = random.Random(seed)
        differences = [chance.gauss(0.0, 0.3) for _ in range(12)]
        students = scipy.stats.ttest_1samp(differences, 0.0).confidence_interval(0.95)
        found = bootstrap_interval(differences)
        assert found is not None
        ratios.append((found.high - found.low) / (students.high - students.low))

    assert fmean(ratios) == pytest.approx(1.0, abs=0.03), "plain percentiles are a seventh narrower"


@settings(max_examples=10)
@given(st.lists(st.sampled_from([-1.0, -0.5, 0.0, 0.25, 1.0]), min_size=2, max_size=40))
def test_the_interval_holds_the_mean_and_is_the_same_each_time(differences: list[float]) -> None:
    found = bootstrap_interval(differences)

    assert found == bootstrap_interval(differences)
    if found is None:
        assert len(set(differences)) == 1
    else:
        assert -1.0 <= found.low <= fmean(differences) <= found.high <= 1.0


@pytest.mark.parametrize("differences", [[], [1.0], [0.5, 0.5, 0.5], [0.1 + 0.2, 0.3]])
def test_items_that_all_differ_by_the_same_have_no_interval(differences: list[float]) -> None:
    assert bootstrap_interval(differences) is None


def test_more_rollouts_of_the_same_items_do_not_narrow_the_interval_by_themselves() -> None:
    scores = {str(item): [float(item % 3 == 0)] for item in range(30)}
    others = {str(item): [float(item % 2 == 0)] for item in range(30)}
    copied, also_copied = ({name: own * 8 for name, own in runs.items()} for runs in (scores, others))

    once = compare_items(run(scores), run(others), list(scores), 0.05)
    eightfold = compare_items(run(copied), run(also_copied), list(scores), 0.05)

    assert (once.interval, once.p_value, once.needed) == (eightfold.interval, eightfold.p_value, eightfold.needed)


@pytest.mark.parametrize(
    ("effect", "items"), [(2.0, 5), (1.0, 10), (0.8, 15), (0.5, 34), (0.2, 199), (0.1, 787), (15.0, 2)]
)
def test_the_items_needed_are_those_of_tables_of_the_paired_t_test(effect: float, items: int) -> None:
    """G*Power's, for two sides, a level of 5 % and a power of 80 %."""
    assert items_for(effect) == items


def test_the_items_needed_grow_smoothly_where_another_formula_takes_over() -> None:
    exact, approximate = items_for(0.00887), items_for(0.00884)

    assert exact <= 100_000 < approximate
    assert approximate / exact == pytest.approx((0.00887 / 0.00884) ** 2, rel=1e-3)


def test_what_is_found_here_and_what_is_needed_agree() -> None:
    differences = draws(100, 0.1, seed=3)
    found_here = needed_items(differences, 0.05).found_here

    assert found_here is not None
    assert needed_items(differences, found_here * 1.0001).items == 100
    assert needed_items(differences, found_here * 0.99).items == pytest.approx(102, abs=1)
    assert needed_items([0.5, 0.5], 0.05).items is None


@pytest.mark.slow
def test_the_test_has_the_power_that_was_planned() -> None:
    chance = random.Random(1)
    items = items_for(0.4)

    samples = [[chance.gauss(0.4, 1.0) for _ in range(items)] for _ in range(4000)]

    found = fmean(scipy.stats.ttest_1samp(sample, 0.0).pvalue < 0.05 for sample in samples)
    assert found == pytest.approx(POWER, abs=0.02)


def test_holm_counts_each_p_value_as_often_as_tests_are_left() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([0.2]) == [0.2]
    assert holm([]) == []
