"""A trace as trainers take it: a prompt, and a response with a mask. Nothing is tokenised here."""

from __future__ import annotations

from dataclasses import dataclass

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
