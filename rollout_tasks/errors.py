"""Failure classes and errors: the whole error design.

1. A bad rollout is data, not a crash. Every rollout that does not complete ends as a verdict with one `FailureClass`,
   which says whether another attempt may help (`retried`) and whose fault it counts as (`counted_as`).
2. Code that extends the pipeline (environments, agents, metrics, providers) raises plain Python errors. `boundary()`
   surrounds each call of such code and turns its errors into a `RolloutFailure` of one class. Elsewhere `Exception` is
   caught only in a thread or process that must go on, or answers for another; a comment there says why.
3. What stops an episode from outside (deadline, lost lease, cancellation) arrives as `EpisodeInterrupted`, a
   `BaseException`: code that catches `Exception` cannot swallow it.
4. A user's error is a `UserError`: one sentence naming what and where. Commands print it and exit with 2;
   with 1 for a `ServiceEnded`, which no input caused.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Literal

from rollout_tasks.unicode_text import printable

WRONG_INPUT = 2
"""The exit code of a program that was given wrong input."""


class FailureClass(StrEnum):
    """Why a rollout did not complete."""

    ENV_SETUP = "env_setup"
    """The environment could not be brought to the item's first observation, or not in time, or no VM came in time."""
    ENV_STEP = "env_step"
    """The environment broke while carrying out an action."""
    ENV_EVALUATE = "env_evaluate"
    """The environment could not say how the agent did, or not in time."""
    VM_LOST = "vm_lost"
    """The VM stopped answering in the episode, or something else answered in its place."""
    LEASE_LOST = "lease_lost"
    """The right to use the VM ended before the episode did."""
    MODEL = "model"
    """The model's endpoint refused, or sent an unusable answer."""
    MODEL_OVERLOAD = "model_overload"
    """The model's endpoint was overloaded or out of reach in all tries, or kept the agent waiting until its time was over."""
    PARSE = "parse"
    """The model's replies could not be read as actions, or were cut off at a token limit, several turns in a row; or it refused
    to go on, or a reply that was cut off used its context up."""
    TIMEOUT = "timeout"
    """The agent took longer than allowed."""
    MAX_TURNS = "max_turns"
    """The agent used all its turns, or all its tokens, without an answer."""
    WORKER_LOST = "worker_lost"
    """The worker processes that ran it died, until its attempts were used up."""
    CANCELLED = "cancelled"
    """The run was cancelled."""
    INTERNAL = "internal"
    """A defect of this program."""

    @property
    def retried(self) -> bool:
        """Whether another attempt may end differently."""
        return self in _RETRIED

    @property
    def counted_as(self) -> Literal["agent", "infrastructure"]:
        """Whose failure it is in the report: the agent's, or a loss that says nothing about the agent."""
        return "agent" if self in _AGENTS_OWN else "infrastructure"


_AGENTS_OWN = frozenset({FailureClass.PARSE, FailureClass.TIMEOUT, FailureClass.MAX_TURNS})
_RETRIED = frozenset(
    {
        FailureClass.ENV_SETUP,
        FailureClass.ENV_STEP,
        FailureClass.ENV_EVALUATE,
        FailureClass.VM_LOST,
        FailureClass.LEASE_LOST,
        FailureClass.MODEL_OVERLOAD,
    }
)


class RolloutFailure(Exception):
    """An attempt ended without a score; carries the class and one sentence that is safe to show on a terminal."""

    def __init__(self, failure_class: FailureClass, message: str) -> None:
        super().__init__(printable(message))
        self.failure_class = failure_class


class EpisodeInterrupted(BaseException):
    """The episode was stopped from outside: its deadline passed, its lease was lost, its run was cancelled."""

    def __init__(self, failure_class: FailureClass, message: str) -> None:
        super().__init__(message)
        self.failure_class = failure_class


class UserError(Exception):
    """Something a user gave is wrong: one sentence naming what and where."""


class SubmissionStopped(KeyboardInterrupt):
    """Ctrl-C ended a submission."""

    def __init__(self, sentence: str) -> None:
        """Keeps the sentence that says what there is of the run now; it is empty if there is nothing."""
        super().__init__(sentence)
        self.sentence = sentence


class ServiceEnded(UserError):
    """A service that an embedded run needs has ended by itself: the run stops, and can be resumed."""


@contextmanager
def boundary(failure_class: FailureClass, what: str) -> Iterator[None]:
    """Classifies every plain error raised inside as `failure_class`; failures already classified pass unchanged.

    Args:
        failure_class: The class of errors raised inside.
        what: What was being done, for the sentence, as in ``"calculator"`` or ``"reset of item 7"``.

    Raises:
        RolloutFailure: In place of any `Exception` raised inside, and of `SystemExit`, which other code may raise.
    """
    try:
        yield
    except RolloutFailure:
        raise
    except (Exception, SystemExit) as error:
        sentence = f"{what}: {type(error).__name__}: {error}" if str(error) else f"{what}: {type(error).__name__}"
        raise RolloutFailure(failure_class, sentence[:2000]) from error
