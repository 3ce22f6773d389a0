"""A simulated environment that only takes time, and fails on request: to plan numbers of VMs and workers, and to test.

It touches no VM; its caller checks the lease. Its duration is drawn from seed, item and index, so it is the same in
every attempt.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import ValidationError

from benchmark.items import Item
from rollout_tasks.config import RunConfig, SimulatedConfig
from rollout_tasks.environments.base import Environment, EnvironmentContext, Observation, Tool, ToolCall, ToolResult
from rollout_tasks.errors import FailureClass, RolloutFailure
from rollout_tasks.validation_messages import clause, location_of

WORK = Tool(
    name="work",
    description="Does a share of the work; the last share ends the episode.",
    parameters={"type": "object", "properties": {}, "additionalProperties": False},
)

_MOST_STEPS = 10_000
"""As many as the configuration allows."""

_PLAIN_ERRORS = {
    FailureClass.ENV_SETUP: "reset",
    FailureClass.ENV_STEP: "execute",
    FailureClass.ENV_EVALUATE: "evaluate",
}
"""Where to raise plain errors for the classes that the caller assigns; others are raised as failures, in `execute`."""


class SimulatedEnvironment(Environment):
    """An environment whose steps take a random time."""

    needs_vm: ClassVar[bool] = True
    queue: ClassVar[str] = "rollout.simulated"
    default_agent: ClassVar[str] = "simulated"

    def __init__(self, context: EnvironmentContext) -> None:
        """Draws nothing yet: an episode's duration depends on the item."""
        self._context = context
        self._options = context.config.simulated
        self._draw = random.Random()  # noqa: S311
        self._step_seconds = 0.0
        self._steps_done = 0

    @classmethod
    def needs_vm_for(cls, config: RunConfig, item: Item) -> bool:
        """Returns what the run's options and the item say."""
        return simulated_options(config.simulated, item.env_config).needs_vm

    @classmethod
    def check_item(cls, config: RunConfig, item: Item) -> None:
        """Raises unless the item's own options are valid."""
        try:
            simulated_options(config.simulated, item.env_config)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, ("env_config", *location_of(first, item.env_config))))
            raise ValueError(f"{where} {clause(first)}") from error

    @classmethod
    def bare_item(cls, config: RunConfig) -> Item | None:  # noqa: ARG003
        """Returns an item whose work does not end by itself."""
        return Item("bare", "A desktop without a task.", env_config={"steps": _MOST_STEPS})

    def instructions(self, item: Item) -> str:  # noqa: ARG002
        """See `Environment`."""
        return "Call work until the episode ends."

    def tools(self) -> list[Tool]:
        """Returns one tool, which takes time."""
        return [WORK]

    def reset(self, item: Item) -> Observation:
        """Draws the episode's length."""
        self._options = simulated_options(self._context.config.simulated, item.env_config)
        self._draw.seed(f"{self._options.seed}/{item.id}/{self._context.index}")
        self._step_seconds = self._draw.uniform(*self._options.seconds) / self._options.steps
        self._fail_at("reset")
        return Observation(f"{self._options.steps} steps to do")

    def execute(self, call: ToolCall) -> ToolResult:  # noqa: ARG002
        """Sleeps for one step's time."""
        if self._steps_done == self._options.steps // 2:
            self._fail_at("execute")
        if self._step_seconds > 0:  # even a sleep of nothing lets other processes go first
            time.sleep(self._step_seconds)
        self._steps_done += 1
        left = self._options.steps - self._steps_done
        return ToolResult("success", f"{left} steps left", ends_episode="done" if left <= 0 else None)

    def evaluate(self) -> float | None:
        """Returns 1 for the configured share of episodes, chosen at random, else 0."""
        self._fail_at("evaluate")
        return 1.0 if self._draw.random() < self._options.success_rate else 0.0

    def close(self) -> None:
        """Does nothing."""

    def _fail_at(self, stage: str) -> None:
        if self._options.fail is None or self._context.attempt > self._options.fail_times:
            return
        failure = self._options.fail
        if _PLAIN_ERRORS.get(failure, "execute") != stage:
            return
        sentence = f"simulated {failure.value} in attempt {self._context.attempt}"
        if failure is FailureClass.WORKER_LOST:
            os.kill(os.getpid(), signal.SIGKILL)
        if failure in _PLAIN_ERRORS:
            raise RuntimeError(sentence)
        raise RolloutFailure(failure, sentence)


def simulated_options(run: SimulatedConfig, item: Mapping[str, Any]) -> SimulatedConfig:
    """Returns the run's options with those that an item's `env_config` overrides.

    Raises:
        pydantic.ValidationError: An item's value is not valid for the option.
    """
    overridden = {name: value for name, value in item.items() if name in SimulatedConfig.model_fields}
    return SimulatedConfig.model_validate({**run.model_dump(), **overridden}) if overridden else run
