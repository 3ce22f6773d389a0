"""Traces as prompt and response."""

from __future__ import annotations

from rollout_tasks.integrations.verl.token_rows import TokenRow, token_row
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
