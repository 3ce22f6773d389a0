"""How often an item is rolled out, how many turns it gets, and when its group is large enough."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import pytest

from rollout_tasks import registry
from rollout_tasks.errors import UserError
from rollout_tasks.training.sampling_policy import PastRollout, Sampling, SuccessRatePolicy, sampling_policy


def past(successes: int, failures: int, turns: int = 12) -> list[PastRollout]:
    return [PastRollout(0.0, 30)] * failures + [PastRollout(1.0, turns)] * successes


@pytest.mark.parametrize(
    ("successes", "failures", "rollouts"),
    [
        (0, 0, 8),  # nothing is known
        (0, 8, 8),
        (4, 4, 8),
        (3, 2, 8),  # 0.6: floor(9 / 0.6 - 7)
        (7, 3, 5),  # 0.7: floor(5.86)
        (6, 2, 5),  # 0.75
        (4, 1, 4),  # 0.8: floor(4.25)
        (9, 1, 3),
        (8, 0, 2),
    ],
)
def test_items_that_succeed_often_are_rolled_out_less(successes: int, failures: int, rollouts: int) -> None:
    assert SuccessRatePolicy().sampling(past(successes, failures)).rollouts == rollouts


@pytest.mark.parametrize(
    ("lengths", "turns"), [([], 50), ([12], 12), ([12, 30, 20], 30), ([3], 10), ([80], 50)], ids=str
)
def test_an_item_may_take_as_long_as_its_longest_success(lengths: list[int], turns: int) -> None:
    known = [PastRollout(1.0, length) for length in lengths] + [PastRollout(0.0, 45)]

    assert SuccessRatePolicy().sampling(known).max_turns == turns


def test_only_the_newest_rollouts_decide() -> None:
    policy = SuccessRatePolicy(remembered=4)

    assert policy.sampling([*past(8, 0, turns=40), *past(0, 4)]) == Sampling(8, 50)
    assert policy.sampling([*past(0, 8), *past(4, 0)]) == Sampling(2, 12)


@pytest.mark.parametrize(
    ("rewards", "level_after", "enough"),
    [
        ([], None, False),
        ([1.0], None, False),
        ([1.0, 1.0], None, False),
        ([0.0] * 7, None, False),
        ([0.0] * 8, None, True),
        ([0.0] * 3, 4, False),
        ([0.0] * 4, 4, True),
        ([0.0, 0.0, 0.0, 1.0], 4, False),
    ],
)
def test_when_a_group_is_large_enough(rewards: list[float], level_after: int | None, enough: bool) -> None:
    assert SuccessRatePolicy(level_after=level_after).is_enough(rewards, 8) is enough


def test_an_option_that_the_policy_does_not_have_is_named() -> None:
    with pytest.raises(UserError, match=r"^--policy-option: 'luck' is none of --policy success-rate: it has fewest_"):
        sampling_policy("success-rate", rollouts=8, most_turns=50, options={"luck": 1})


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"fewest_rollouts": 0}, "fewest_rollouts must be a whole number from 1, got 0"),
        ({"remembered": 1.5}, "remembered must be a whole number from 1, got 1.5"),
        ({"threshold": 0.0}, "threshold must be above 0 and 1 at most, got 0.0"),
        ({"threshold": "half"}, "threshold must be above 0 and 1 at most, got 'half'"),
        ({"success": math.nan}, "success must be a number"),
        ({"level_after": 0}, "level_after must be a whole number from 2, got 0"),
    ],
)
def test_values_that_cannot_be(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(UserError, match=f"--policy success-rate does not accept its options: .*{problem}"):
        sampling_policy("success-rate", rollouts=8, most_turns=50, options=options)


def test_policies_by_their_names() -> None:
    fixed = sampling_policy("fixed", rollouts=4, most_turns=7, options={"level_after": 3})

    assert fixed.sampling(past(9, 0)) == Sampling(4, 7)
    assert (fixed.is_enough([1.0, 1.0], 4), fixed.is_enough([1.0] * 3, 4)) == (False, True)
    with pytest.raises(UserError, match="unknown sampling policy 'fixd': did you mean fixed"):
        sampling_policy("fixd", rollouts=4, most_turns=7, options={})


def test_a_run_of_few_turns_keeps_them() -> None:
    assert sampling_policy("success-rate", rollouts=8, most_turns=5, options={}).sampling([]) == Sampling(8, 5)


@pytest.mark.parametrize("signature", ["", "__signature__ = 7"])
def test_a_class_without_a_signature_is_one_sentence(
    signature: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    described = tmp_path / "odd_policy-1.0.dist-info"
    described.mkdir()
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: odd-policy\nVersion: 1.0\n")
    (described / "entry_points.txt").write_text("[rollout_tasks.sampling_policies]\nodd = odd_policy:Odd\n")
    methods = "sampling = is_enough = lambda self, *_: None"
    (tmp_path / "odd_policy.py").write_text(f"class Odd(dict):\n    {methods}\n    {signature}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "odd_policy", raising=False)
    _forget_packages()
    try:
        with pytest.raises(UserError, match=r"^--policy odd: what it is made with cannot be known: "):
            sampling_policy("odd", rollouts=4, most_turns=7, options={})
    finally:
        _forget_packages()


def _forget_packages() -> None:
    registry._offered.cache_clear()
    registry.load.cache_clear()
