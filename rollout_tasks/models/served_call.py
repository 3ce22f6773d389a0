"""One model call as it was served: what was asked, what was sampled, and by which replica and weights.

The facts and their checks only: `rollout_tasks.trajectories.calls` writes them, the session gateway makes them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from rollout_tasks.errors import FailureClass
from rollout_tasks.models.base import Message, Usage
from rollout_tasks.models.served import Served, VersionSpan

Outcome = Literal["served", "failed", "cut"]
"""A reply was given; the engine gave up; the client went away before it had the whole reply."""


class CallFactsError(ValueError):
    """Facts of a call that cannot be true; the message says which."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """The tokens of a call as the engine saw and sampled them; fields are empty where it does not tell."""

    prompt_ids: tuple[int, ...] = ()
    output_ids: tuple[int, ...] = ()
    output_texts: tuple[str, ...] = ()
    """The sampled tokens as text, where there are no ids."""
    logprobs: tuple[float, ...] = ()
    """The log-probability of each sampled token."""

    def check(self, served: Served) -> None:
        """Checks that the facts fit each other.

        Raises:
            CallFactsError: They do not; the message completes "the call has".
        """
        for name, ids in (("prompt", self.prompt_ids), ("output", self.output_ids)):
            wrong = next((place for place, one in enumerate(ids) if type(one) is not int or one < 0), None)
            if wrong is not None:
                raise CallFactsError(f"{str(ids[wrong])[:50]} as {name} id {wrong}, which is not a token id")
        wrong = next((place for place, one in enumerate(self.logprobs) if not _finite(one)), None)
        if wrong is not None:
            raise CallFactsError(f"{self.logprobs[wrong]} as log-probability {wrong}, which is not a finite number")
        for what, tokens in (("ids", self.output_ids), ("texts", self.output_texts)):
            if tokens and self.logprobs and len(tokens) != len(self.logprobs):
                raise CallFactsError(
                    f"{len(self.logprobs)} log-probabilities for {len(tokens)} {what} of output tokens"
                )
        self._check_spans(served.spans)

    def _check_spans(self, spans: Sequence[VersionSpan]) -> None:
        reached = 0
        for place, span in enumerate(spans):
            if span.start != reached or span.end < span.start:
                raise CallFactsError(f"version span {place} from {span.start} to {span.end}, where {reached} is next")
            reached = span.end
        if spans and self.output_ids and reached != len(self.output_ids):
            raise CallFactsError(f"version spans for {reached} tokens, but {len(self.output_ids)} output ids")


@dataclass(frozen=True, slots=True)
class ServedCall:
    """One call, from when its request was complete to when its outcome was known."""

    id: str
    number: int
    """In its session, from 1, in the order in which calls began."""
    began: float
    """Seconds since the epoch."""
    ended: float
    dialect: str
    """The API that the client spoke: ``chat``, ``responses`` or ``messages``."""
    asked_model: str
    """The name that the client asked for; the engine may serve another."""
    outcome: Outcome
    messages: Sequence[Message]
    """The prompt as sent to the engine: Chat Completions messages, with pictures as data URLs."""
    tools: Sequence[Mapping[str, Any]] = ()
    sampling: Mapping[str, Any] = field(default_factory=dict)
    """The other fields of the request as sent to the engine."""
    model: str = ""
    """The name that the engine gave in its reply."""
    reply: Message | None = None
    """The model's message, with its thinking if there was any; None without a whole reply."""
    finish_reason: str = ""
    usage: Usage = field(default_factory=Usage)
    """Tokens, and the requests that were made for it."""
    sampled: Sampled = field(default_factory=Sampled)
    served: Served = field(default_factory=Served)
    failure_class: FailureClass | None = None
    sentence: str = ""
    """What went wrong, for calls that failed or were cut."""

    def check(self) -> None:
        """Checks what can be checked without the model.

        Raises:
            CallFactsError: Something cannot be true; one sentence that names the call.
        """
        try:
            self.sampled.check(self.served)
        except CallFactsError as error:
            raise CallFactsError(f"call {self.number} has {error}") from None
        if not (_finite(self.began) and _finite(self.ended) and self.began <= self.ended):
            raise CallFactsError(f"call {self.number} begins at {self.began} and ends at {self.ended}")
        if (self.reply is not None) != (self.outcome == "served"):
            raise CallFactsError(f"call {self.number} is {self.outcome}, with{'' if self.reply else 'out'} a reply")
        if (self.failure_class is not None) != (self.outcome == "failed"):
            raise CallFactsError(f"call {self.number} is {self.outcome}, with failure class {self.failure_class}")


class Recorder(Protocol):
    """Where a session's calls are recorded."""

    def record(self, call: ServedCall) -> None:
        """Records one call, once its outcome is known. Called by one thread at a time.

        Raises:
            OSError: It cannot be written.
        """


def _finite(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
