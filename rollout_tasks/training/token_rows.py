"""A trace as trainers take it: a prompt, and a response with a mask. Nothing is tokenised here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rollout_tasks.errors import UserError
from rollout_tasks.trajectories.traces import Trace


@dataclass(frozen=True, slots=True)
class TokenRow:
    """One trace."""

    prompt_ids: list[int]
    """Up to the first sampled token."""
    response_ids: list[int]
    """From there on: what was sampled, and the context between."""
    response_mask: list[int]
    """For each token of the response: 1 if it was sampled, 0 if it is context."""
    response_logprobs: list[float] | None
    """The same as log-probabilities, 0.0 for context; None where the engine did not tell."""


def token_row(trace: Trace) -> TokenRow:
    """Returns a trace as a prompt and a response."""
    first = trace.sampled.index(True)
    return TokenRow(
        prompt_ids=list(trace.ids[:first]),
        response_ids=list(trace.ids[first:]),
        response_mask=[int(sampled) for sampled in trace.sampled[first:]],
        response_logprobs=list(trace.logprobs[first:]) if trace.logprobs else None,
    )


def check_padded(rows: Sequence[TokenRow], prompt_length: int, response_length: int) -> None:
    """Checks that a rollout can be taken by verl's older worker, which takes one row and pads it.

    Args:
        rows: The rollout's.
        prompt_length: What a prompt is padded to.
        response_length: The same for a response.

    Raises:
        UserError: It cannot; one sentence that says what to set.
    """
    if len(rows) != 1:
        raise UserError(
            f"the rollout has {len(rows)} traces, and this verl worker takes one: train with trainer.use_v1=True, whose"
            " transfer-queue worker takes all"
        )
    for name, ids, most in (
        ("prompt", rows[0].prompt_ids, prompt_length),
        ("response", rows[0].response_ids, response_length),
    ):
        if len(ids) > most:
            raise UserError(
                f"the {name} has {len(ids)} tokens, and this verl worker pads it to actor_rollout_ref.rollout.{name}_length,"
                f" which is {most}: set that higher, or train with trainer.use_v1=True"
            )
