"""An agent that plays a simulated episode without asking a model."""

from __future__ import annotations

import time
from typing import ClassVar

from benchmark.items import Item
from rollout_tasks.agents.base import Agent, Episode
from rollout_tasks.config import Limits, RunConfig
from rollout_tasks.environments.base import Observation, ToolCall, World
from rollout_tasks.errors import FailureClass, RolloutFailure
from rollout_tasks.models.base import Model, Usage
from rollout_tasks.trajectories.writer import TrajectoryWriter


class SimulatedAgent(Agent):
    """Calls the environment's first tool until the episode ends."""

    needs_model: ClassVar[bool] = False

    def __init__(self, config: RunConfig) -> None:
        """Has no options."""

    def run(
        self,
        item: Item,  # noqa: ARG002
        environment: World,
        observation: Observation,  # noqa: ARG002
        model: Model,  # noqa: ARG002
        limits: Limits,
        trajectory: TrajectoryWriter,
    ) -> Episode:
        """See `Agent`."""
        (tool, *_) = environment.tools()
        for turn in range(1, limits.max_turns + 1):
            call = ToolCall(f"call_{turn}", tool.name, {})
            started = time.monotonic()
            result = environment.execute(call)
            trajectory.step(turn=turn, call=call, result=result, seconds=time.monotonic() - started)
            if result.ends_episode is not None:
                return Episode("", result.ends_episode, turn, Usage())
        raise RolloutFailure(FailureClass.MAX_TURNS, f"not finished after {limits.max_turns} turns")
