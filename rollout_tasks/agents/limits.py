"""The limits that agents keep, each with the sentence that ends a rollout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rollout_tasks.config import Limits
from rollout_tasks.errors import FailureClass, RolloutFailure
from rollout_tasks.model_config import ModelConfig
from rollout_tasks.models.base import ContextOverflow, Message, Model, Reply, Usage

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


def unanswered(reply: Reply, model: ModelConfig) -> str:
    """Returns the words for a reply that ended before it was complete; empty if it did not."""
    if reply.cut_off:
        return cut_off(reply, model)
    return "a reply that the endpoint's content filter stopped" if reply.filtered else ""


def ask(
    model: Model,
    prompt: Sequence[Message],
    tools: Sequence[Mapping[str, Any]],
    before: Reply | None,
    config: ModelConfig,
) -> Reply:
    """Asks for a reply.

    Args:
        model: The model that is asked.
        prompt: The messages.
        tools: What is offered.
        before: The reply before, if there was one.
        config: The run's options of the model.

    Raises:
        RolloutFailure: ``parse`` if the prompt no longer fits the model's context right after a reply that was cut off: the model
            used it up. Otherwise what the model raises.
    """
    try:
        return model.complete(prompt, tools)
    except ContextOverflow as error:
        if before is None or not before.cut_off:
            raise
        raise RolloutFailure(FailureClass.PARSE, f"after {cut_off(before, config)}: {error}") from error


def check_refusal(reply: Reply) -> None:
    """Checks that a reply is not a refusal.

    This ends the episode as ``parse`` at once. It is not the model's ``fail``, which says that the task cannot be done and is right
    for some tasks; and asking again is useless, as the conversation that was refused stays part of every prompt.

    Raises:
        RolloutFailure: ``parse``.
    """
    if reply.refused:
        said = f": {' '.join(reply.text.split())[:200]}" if reply.text.strip() else ""
        raise RolloutFailure(
            FailureClass.PARSE, f"the model refused to go on (it stopped with {reply.finish_reason}){said}"
        )


class Budget:
    """An episode's limits, and what all the models that it asks have used of them by now."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.turn = 0
        """The turn that goes on, from 1."""
        self.usage = Usage()

    def check_tokens(self) -> None:
        """Checks that there are tokens left for another call.

        Raises:
            RolloutFailure: ``max_turns``.
        """
        check_tokens(self.limits, self.usage, self.turn)


class UnusableTurns:
    """Counts unusable turns in a row."""

    def __init__(self) -> None:
        self._count = 0

    def reset(self) -> None:
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
