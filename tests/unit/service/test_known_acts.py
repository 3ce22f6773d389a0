"""Acts that were carried out, and are sent again."""

from __future__ import annotations

import pytest

from rollout_tasks.service.known_acts import KnownActs
from rollout_tasks.service.session_results import SessionRefused, Step


def step(turn: int) -> Step:
    return Step("success", "", None, turn, None)


def test_the_last_one_is_known_and_an_earlier_one_is_refused() -> None:
    acts = KnownActs()
    assert acts.step_of("a") is None
    acts.add("a", step(1))
    assert acts.step_of("a") == step(1)
    acts.add("b", step(2))
    assert acts.step_of("b") == step(2)
    with pytest.raises(SessionRefused, match="'a' was carried out before the last one"):
        acts.step_of("a")


def test_acts_without_a_key_are_not_known() -> None:
    acts = KnownActs()
    acts.add("", step(1))
    assert acts.step_of("") is None
    acts.add("a", step(2))
    acts.add("", step(3))
    assert acts.step_of("a") == step(2)
