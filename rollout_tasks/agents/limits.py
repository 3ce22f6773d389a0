"""The limits that agents keep, each with the sentence that ends a rollout."""

from __future__ import annotations

from rollout_tasks.config import Limits, ModelConfig
from rollout_tasks.errors import FailureClass, RolloutFailure
from rollout_tasks.models.base import Reply, Usage

MAX_UNUSABLE_TURNS = 3
"""Consecutive turns without a usable call or a final text, after which the rollout fails."""


def check_tokens(limits: Limits, usage: Usage, turns: int) -> None:
    """Checks that there are tokens left for another turn.

    Raises:
        RolloutFailure: ``max_turns``.
    """
    used, most = usage.total_tokens, limits.max_tokens
    if most is not None and used >= most:
        raise RolloutFailure(FailureClass.MAX_TURNS, f"no answer after {turns} turns and {used} tokens of {most}")


def turns_used(limits: Limits) -> RolloutFailure:
    """Returns the failure of an episode that had all its turns."""
    return RolloutFailure(FailureClass.MAX_TURNS, f"no answer after {limits.max_turns} turns")


def cut_off(reply: Reply, model: ModelConfig) -> str:
    """Returns the words for a reply that ended at its token limit; they name the run's option if that was the limit."""
    used, most = reply.usage.completion_tokens, model.max_completion_tokens
    others = most is None or 0 < used < most  # 0: the endpoint does not count
    named = "" if others else f" (--max-completion-tokens {most})"
    return f"a reply cut off at its token limit{named}"


class UnusableTurns:
    """Counts unusable turns in a row."""

    def __init__(self) -> None:
        self._count = 0

    def forgive(self) -> None:
        """Begins to count anew, after a usable turn."""
        self._count = 0

    def add(self, problem: str) -> None:
        """Counts one.

        Raises:
            RolloutFailure: ``parse``, if there are too many.
        """
        self._count += 1
        if self._count >= MAX_UNUSABLE_TURNS:
            raise RolloutFailure(
                FailureClass.PARSE,
                f"{self._count} turns in a row without a usable call or a final text, the last: {problem}",
            )
