"""What was refused or lost is looked for after each use of desktop-env, but never in place of an interruption."""

from __future__ import annotations

import pytest

from rollout_tasks.errors import EpisodeInterrupted, FailureClass

pytest.importorskip("desktop_env")

from rollout_tasks.environments.osworld.attached_desktop import _checked_afterwards


def refused() -> None:
    raise RuntimeError("a step was refused")


def test_an_interruption_stays_one() -> None:
    with pytest.raises(EpisodeInterrupted, match="late"), _checked_afterwards(refused):
        raise EpisodeInterrupted(FailureClass.TIMEOUT, "late")


@pytest.mark.parametrize("error", [ValueError("what came of it"), None])
def test_the_cause_comes_before_what_came_of_it(error: Exception | None) -> None:
    with pytest.raises(RuntimeError, match="a step was refused"), _checked_afterwards(refused):
        if error is not None:
            raise error


def test_an_error_without_a_cause_is_passed_on() -> None:
    with pytest.raises(ValueError, match="by itself"), _checked_afterwards(lambda: None):
        raise ValueError("by itself")
