"""What calls of a session return and raise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from rollout_tasks.environments.base import Observation
from rollout_tasks.errors import FailureClass


class SessionRefused(Exception):
    """A call that is refused; a session that goes on still does. One sentence says why."""


class UnknownItem(SessionRefused):
    """There is no such item."""


class NoRoom(SessionRefused):
    """No session can begin now; later one may."""


class SessionEnded(Exception):
    """The session is over, or could not begin."""

    def __init__(self, failure_class: FailureClass | None, sentence: str) -> None:
        super().__init__(sentence)
        self.failure_class = failure_class
        """Why; None after an evaluation, or where that is not known."""


@dataclass(frozen=True, slots=True)
class Step:
    """What became of one act."""

    status: Literal["success", "failed"]
    response: str
    observation: Observation | None
    """None if the act showed nothing new, as one that was refused."""
    turn: int
    """Which act of the session it was, from 1."""
    over: str | None
    """How the episode ended with it: ``done``, ``fail`` or ``max_turns``. Then only an evaluation is left."""
    seconds: float = 0.0
    """How long the environment took for it."""


@dataclass(frozen=True, slots=True)
class SessionEnd:
    """How a session ended."""

    score: float | None = None
    """In [0, 1]; None without an evaluation."""
    ending: str | None = None
    """As `Step.over`."""
    turns: int = 0
    failure_class: FailureClass | None = None
    error: str = ""
    stages: Mapping[str, float] = field(default_factory=dict)
    """Seconds by stage."""
    helped: bool = False
    """Whether a person used the desktop, too: then score and record are not the agent's alone."""

    @property
    def reward(self) -> float | None:
        """The score; 0 where the agent failed; None where the infrastructure did, which says nothing about the agent."""
        if self.failure_class is None:
            return self.score
        return 0.0 if self.failure_class.counted_as == "agent" else None
