from __future__ import annotations

import pytest

from rollout_tasks.errors import FailureClass
from rollout_tasks.models.retries import FailedTry, decide


def failed(*, retried: bool = True, wanted: float | None = None) -> FailedTry:
    return FailedTry("it broke", FailureClass.MODEL_OVERLOAD, retried, wanted)


@pytest.mark.parametrize(
    ("tries", "longest"), [(1, 1.0), (2, 2.0), (3, 4.0), (4, 8.0), (5, 16.0), (6, 30.0), (60, 30.0), (5000, 30.0)]
)
def test_backoff_doubles_up_to_its_cap_with_full_jitter(tries: int, longest: float) -> None:
    assert decide(failed(), tries, 10_000, draw=lambda: 1.0).delay == longest
    assert decide(failed(), tries, 10_000, draw=lambda: 0.0).delay == 0.0


@pytest.mark.parametrize(("draw", "delay"), [(0.0, 8.0), (1.0, 10.0)])
def test_the_pause_that_a_server_asks_for_is_kept_and_spread(draw: float, delay: float) -> None:
    assert decide(failed(wanted=8.0), 1, 3, draw=lambda: draw).delay == delay


def test_a_server_that_asks_for_too_long_a_pause_ends_the_call_at_once() -> None:
    decision = decide(failed(wanted=300.0), 1, 3)

    assert decision.delay is None
    assert decision.sentence == "it broke; it asks for a wait of 300 s, longer than the limit of 120 s"


def test_the_last_try_is_the_last() -> None:
    assert decide(failed(), 2, 3).delay is not None
    assert decide(failed(), 3, 3).delay is None
    assert decide(failed(), 3, 3).sentence == "it broke (try 3 of 3)"


def test_what_cannot_get_better_is_not_tried_again() -> None:
    assert decide(failed(retried=False), 1, 3).delay is None
