"""Traces as prompt and response."""

from __future__ import annotations

import pytest

from rollout_tasks.errors import UserError
from rollout_tasks.training.token_rows import TokenRow, check_padded, token_row
from rollout_tasks.trajectories.traces import SampledCall, traces_of


def test_a_response_begins_with_the_first_sampled_token_and_masks_what_was_not_sampled() -> None:
    calls = [
        SampledCall(1, (1, 2), (3, 4), (-0.5, -0.25), model="policy"),
        SampledCall(2, (1, 2, 3, 4, 5, 6), (7,), (-1.0,), model="policy"),
    ]
    [trace] = traces_of(calls)

    assert token_row(trace) == TokenRow([1, 2], [3, 4, 5, 6, 7], [1, 1, 0, 0, 1], [-0.5, -0.25, 0.0, 0.0, -1.0])


def test_without_log_probabilities_a_row_has_none() -> None:
    [trace] = traces_of([SampledCall(1, (1,), (2,), model="policy")])

    assert token_row(trace).response_logprobs is None


ROW = TokenRow([1, 2], [3, 4, 5], [1, 1, 1], None)


def test_a_worker_that_pads_takes_one_row_that_fits() -> None:
    check_padded([ROW], 2, 3)


@pytest.mark.parametrize(
    ("rows", "lengths", "said"),
    [
        (
            [ROW, ROW],
            (2, 3),
            "the rollout has 2 traces, and this verl worker takes one: train with trainer.use_v1=True",
        ),
        ([ROW], (1, 3), "the prompt has 2 tokens, and this verl worker pads it to .*prompt_length, which is 1"),
        ([ROW], (2, 2), "the response has 3 tokens, and this verl worker pads it to .*response_length, which is 2"),
    ],
)
def test_what_it_does_not_take_is_refused_with_what_to_set(
    rows: list[TokenRow], lengths: tuple[int, int], said: str
) -> None:
    with pytest.raises(UserError, match=said):
        check_padded(rows, *lengths)
