"""Counts an attempt's tokens and model time, so that they are known for failed attempts too."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from rollout_tasks.models.base import BoundModel, Message, Reply, Usage


class UsageMeter:
    """A model that adds up its replies' usage and time."""

    def __init__(self, model: BoundModel) -> None:
        self._model = model
        self.session_id = model.session_id
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
