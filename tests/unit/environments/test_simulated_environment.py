from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmark.items import Item
from rollout_tasks.agents.simulated import SimulatedAgent
from rollout_tasks.config import Limits, RunConfig, SimulatedConfig
from rollout_tasks.environments.base import EnvironmentContext
from rollout_tasks.environments.simulated import SimulatedEnvironment
from rollout_tasks.errors import FailureClass, RolloutFailure
from rollout_tasks.model_config import ModelConfig
from rollout_tasks.models.client import open_model
from rollout_tasks.trajectories.writer import TrajectoryWriter


def play(*, attempt: int = 1, index: int = 0, item: dict[str, Any] | None = None, **options: Any) -> float | None:
    config = RunConfig(simulated=SimulatedConfig(**{"seconds": (0, 0), **options}))
    environment = SimulatedEnvironment(EnvironmentContext(config, Path(), None, attempt=attempt, index=index))
    asked = Item(id="1", question="", env_config=item or {})
    observation = environment.reset(asked)
    model = open_model(ModelConfig(base_url="http://127.0.0.1:9/v1"), session_id="never asked")
    trajectory = TrajectoryWriter(Path(), enabled=False)
    episode = SimulatedAgent(config).run(asked, environment, observation, model, Limits(), trajectory)
    assert episode.ending == "done"
    assert episode.turns == config.simulated.steps
    return environment.evaluate()


def test_an_episode_takes_its_steps_and_scores() -> None:
    assert play() == 1.0


def test_the_drawn_time_is_divided_among_the_steps_and_the_same_again() -> None:
    def drawn(seed: int, index: int) -> float:
        config = RunConfig(simulated=SimulatedConfig(seconds=(1, 3), steps=4, seed=seed))
        environment = SimulatedEnvironment(EnvironmentContext(config, Path(), None, index=index))
        environment.reset(Item(id="1", question=""))
        return environment._step_seconds

    assert drawn(0, 0) == drawn(0, 0)
    assert len({drawn(0, 0), drawn(0, 1), drawn(1, 0)}) == 3
    assert all(0.25 <= drawn(0, index) <= 0.75 for index in range(50))


def test_successes_come_at_their_rate() -> None:
    scores = [play(index=index, steps=1, success_rate=0.3) for index in range(200)]

    assert 0.2 < sum(score == 1.0 for score in scores) / 200 < 0.4
    assert set(scores) == {0.0, 1.0}


def test_an_items_own_options_override() -> None:
    assert play(success_rate=1.0, item={"success_rate": 0.0, "env_mode": "simulated"}) == 0.0
    assert SimulatedEnvironment.needs_vm_for(RunConfig(), Item(id="1", question=""))
    assert not SimulatedEnvironment.needs_vm_for(RunConfig(), Item(id="1", question="", env_config={"needs_vm": False}))


@pytest.mark.parametrize("failure", ["env_setup", "env_step", "env_evaluate"])
def test_what_a_border_classifies_is_raised_as_a_plain_error(failure: str) -> None:
    with pytest.raises(RuntimeError, match=f"simulated {failure} in attempt 2"):
        play(fail=failure, fail_times=2, attempt=2)

    assert play(fail=failure, fail_times=2, attempt=3) == 1.0


@pytest.mark.parametrize(
    "failure",
    ["vm_lost", "lease_lost", "model", "model_overload", "parse", "timeout", "max_turns", "cancelled", "internal"],
)
def test_the_other_classes_are_raised_as_such(failure: str) -> None:
    with pytest.raises(RolloutFailure) as caught:
        play(item={"fail": failure})

    assert caught.value.failure_class is FailureClass(failure)


def test_a_lost_worker_is_a_killed_process() -> None:
    code = """
from pathlib import Path
from benchmark.items import Item
from rollout_tasks.config import RunConfig, SimulatedConfig
from rollout_tasks.environments.base import EnvironmentContext, ToolCall
from rollout_tasks.environments.simulated import SimulatedEnvironment
config = RunConfig(simulated=SimulatedConfig(fail="worker_lost", steps=1))
environment = SimulatedEnvironment(EnvironmentContext(config, Path(), None))
environment.reset(Item(id="1", question=""))
environment.execute(ToolCall("c", "work", {}))
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == -signal.SIGKILL
