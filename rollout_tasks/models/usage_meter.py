"""Counts an attempt's tokens and model time, so that they are known for failed attempts too."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from rollout_tasks.models.base import BoundModel, Message, Model, Reply, Usage


class UsageMeter:
    """A model that adds up its replies' usage and time, and so do the further models beside it, each for itself."""

    def __init__(self, model: BoundModel, roles: Mapping[str, UsageMeter] | None = None) -> None:
        self._model = model
        self.session_id = model.session_id
        self.roles: Mapping[str, UsageMeter] = roles or {}
        self.usage = Usage()
        self.turns = 0
        self.seconds = 0.0
        self.unanswered = 0.0
        """Seconds that the last call took, if it brought no reply."""

    def complete(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> Reply:
        """See `Model`."""
        began = time.monotonic()
        try:
            reply = self._model.complete(messages, tools)
        except BaseException:
            self.unanswered = time.monotonic() - began
            raise
        finally:
            self.seconds += time.monotonic() - began
        self.unanswered = 0.0
        self.usage += reply.usage
        self.turns += 1
        return reply

    def count(self, usage: Usage, *, turn: int, answered: bool) -> None:
        """See `Model`."""
        self.seconds += usage.seconds
        self.usage += usage
        self.turns = turn
        self.unanswered = 0.0 if answered else usage.seconds

    def role(self, name: str) -> Model:
        """See `Model`."""
        if name not in self.roles:
            raise ValueError(f"the run has no model named {name}: --model-role {name}=MODEL,base-url=URL,profile=NAME")
        return self.roles[name]

    @property
    def total(self) -> Usage:
        """The usage of this and the further models together."""
        return sum((meter.usage for meter in self.roles.values()), self.usage)

    @property
    def kept_waiting(self) -> float:
        """Seconds of the longest call, of those that were each model's last, that brought no reply."""
        return max(self.unanswered, *(meter.unanswered for meter in self.roles.values()), 0.0)
