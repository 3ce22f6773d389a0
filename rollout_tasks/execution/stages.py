"""The stages around an agent's use of its environment: preparing, setting up, acting, evaluating, closing. Each has a deadline.

Attempts of rollouts have them, and so do sessions of programs outside.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, Protocol

from rollout_tasks.environments.base import Environment, EnvironmentContext
from rollout_tasks.errors import EpisodeInterrupted, FailureClass, RolloutFailure, boundary
from rollout_tasks.execution.checked_environment import CheckedEnvironment
from rollout_tasks.interruption import Interruption

logger = logging.getLogger(__name__)

PREPARE_SECONDS = 1800.0
"""How long an environment may prepare before a VM is asked for; a task's files may be large."""
CLEANUP_SECONDS = 210.0
"""How long closing an environment may take: a slow guest finishes the recording of a long episode within 170 s."""
HURRIED_CLEANUP_SECONDS = 30.0
"""How long that may take where the attempt was asked to stop: its worker stops, its run is cancelled, or another one has it."""
GRACE_SECONDS = 30.0
"""How long after its deadline a stuck attempt's process is killed."""

Stage = Literal["setup", "acting", "evaluation"]
_STAGES: dict[Stage, tuple[FailureClass, str]] = {
    "setup": (FailureClass.ENV_SETUP, "set up"),
    "acting": (FailureClass.TIMEOUT, "finished"),
    "evaluation": (FailureClass.ENV_EVALUATE, "evaluated"),
}


class Interruptible(Protocol):
    """What has stages: an attempt, or a session."""

    interruption: Interruption

    @property
    def name(self) -> str:
        """What it is in the log."""


@contextmanager
def limited(interruption: Interruption, stage: Stage, seconds: float) -> Iterator[None]:
    """Limits a stage to `seconds` of wall time.

    Raises:
        EpisodeInterrupted: The time passed, or a stop was requested.
    """
    failure_class, done = _STAGES[stage]
    with interruption.scope(seconds, failure_class, f"not {done} within {seconds:g} s", grace=GRACE_SECONDS):
        yield


@contextmanager
def preparing(interruption: Interruption) -> Iterator[None]:
    """Limits what is done before a VM is asked for, and classifies its errors.

    Raises:
        EpisodeInterrupted: The time passed, or a stop was requested.
        RolloutFailure: It failed.
    """
    message = f"preparing took longer than {PREPARE_SECONDS:g} s"
    with (
        interruption.scope(PREPARE_SECONDS, FailureClass.ENV_SETUP, message, grace=GRACE_SECONDS),
        boundary(FailureClass.ENV_SETUP, "preparing"),
    ):
        yield


def made(environment_class: type[Environment], context: EnvironmentContext) -> CheckedEnvironment:
    """Returns a new environment whose use is checked.

    Raises:
        RolloutFailure: It cannot be made.
    """
    with boundary(FailureClass.ENV_SETUP, f"environment {environment_class.__name__}"):
        return CheckedEnvironment(environment_class(context), context.vm)


@contextmanager
def closing(user: Interruptible, opened: Sequence[CheckedEnvironment]) -> Iterator[None]:
    """Closes what was opened, after the stages and under a deadline of its own."""
    try:
        yield
    finally:
        seconds = HURRIED_CLEANUP_SECONDS if user.interruption.requested else CLEANUP_SECONDS
        user.interruption = Interruption(heeds_requests=False)
        for environment in opened:
            message = f"closing the environment took longer than {seconds:g} s"
            try:
                with user.interruption.scope(seconds, FailureClass.ENV_STEP, message, grace=GRACE_SECONDS):
                    environment.close()
            except (RolloutFailure, EpisodeInterrupted) as problem:
                logger.warning("%s: environment not closed cleanly: %s", user.name, problem)
        user.interruption = Interruption()  # hears of a cancellation again
