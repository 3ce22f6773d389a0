"""How long a task's setup and evaluation may take: as long as the run says, not less."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from rollout_tasks.config import Limits, RunConfig
from rollout_tasks.environments.base import EnvironmentContext
from rollout_tasks.environments.osworld.environment import OSWorldEnvironment
from rollout_tasks.environments.osworld.guest_python import Action
from rollout_tasks.environments.osworld.session_opening import limits_of_cell
from rollout_tasks.environments.osworld.session_results import CommandOutcome, DesktopView
from rollout_tasks.environments.osworld.vm_client import ANSWER_SECONDS
from rollout_tasks.errors import FailureClass
from rollout_tasks.execution.stages import CLEANUP_SECONDS
from rollout_tasks.interruption import Interruption


class Asked:
    """A session that knows only how many seconds are left until it is interrupted."""

    def begin(self) -> DesktopView:
        raise NotImplementedError

    def act(self, action: Action | None, pause: float) -> tuple[CommandOutcome, DesktopView]:
        raise NotImplementedError

    def take_recording(self, take: Callable[[bytes], object]) -> None:
        raise NotImplementedError

    def score(self) -> float:
        return signal.getitimer(signal.ITIMER_REAL)[0]

    def close(self) -> None:
        raise NotImplementedError


@pytest.mark.parametrize("seconds", [200.0, 5000.0])
def test_an_evaluation_may_take_as_long_as_the_run_says(seconds: float, tmp_path: Path) -> None:
    config = RunConfig(limits=Limits(max_seconds=seconds))
    world = OSWorldEnvironment(EnvironmentContext(config, tmp_path, None))
    world._session, world._task = Asked(), {"evaluator": {"func": "infeasible"}}
    with Interruption().scope(seconds, FailureClass.ENV_EVALUATE, "late", grace=1.0):
        left = world.evaluate()
    assert left is not None
    assert seconds - 60 < left <= seconds


@pytest.mark.parametrize("seconds", [1.0, 600.0, 86400.0])
def test_a_cell_may_compute_as_long_as_its_attempt_may_take(seconds: float) -> None:
    """Setup, agent and evaluation have as much each."""
    limits = limits_of_cell(RunConfig(limits=Limits(max_seconds=seconds)))
    assert limits.cpu_seconds >= max(3600, 3 * seconds)


def test_closing_leaves_a_slow_guest_the_time_to_finish_its_recording() -> None:
    """Of an episode that failed, too: its recording is ended as it is closed."""
    assert ANSWER_SECONDS["/end_recording"] + 30 < CLEANUP_SECONDS
