"""Stands between an agent and its environment: checks the lease before every touch, and classifies what the world raises."""

from __future__ import annotations

from typing import ClassVar

from benchmark.items import Item
from rollout_tasks.environments.base import Environment, Observation, Tool, ToolCall, ToolResult, VMAccess
from rollout_tasks.errors import FailureClass, RolloutFailure, boundary
from vm_pool.errors import LeaseLost


class GuardedEnvironment(Environment):
    """An environment whose errors are failures of a class, and which refuses once its lease is lost."""

    needs_vm: ClassVar[bool] = False
    queue: ClassVar[str] = ""
    default_agent: ClassVar[str] = ""

    def __init__(self, environment: Environment, vm: VMAccess | None) -> None:
        self._environment = environment
        self._vm = vm
        self._name = type(environment).__name__

    @classmethod
    def check_available(cls) -> None:
        """The environment behind it was checked by its own class."""
        return

    def instructions(self, item: Item) -> str:
        """See `Environment`."""
        with boundary(FailureClass.ENV_SETUP, self._name):
            return self._environment.instructions(item)

    def tools(self) -> list[Tool]:
        """See `Environment`."""
        with boundary(FailureClass.ENV_SETUP, self._name):
            return self._environment.tools()

    def reset(self, item: Item) -> Observation:
        """See `Environment`."""
        self._check_lease()
        with boundary(FailureClass.ENV_SETUP, f"{self._name}: reset"):
            return self._environment.reset(item)

    def execute(self, call: ToolCall) -> ToolResult:
        """See `Environment`."""
        self._check_lease()
        with boundary(FailureClass.ENV_STEP, f"{self._name}: {call.name}"):
            return self._environment.execute(call)

    def evaluate(self) -> float | None:
        """See `Environment`. A score outside [0, 1] is no score."""
        self._check_lease()
        with boundary(FailureClass.ENV_EVALUATE, f"{self._name}: evaluation"):
            score = self._environment.evaluate()
            if score is not None and not 0.0 <= score <= 1.0:
                raise ValueError(f"a score must be between 0 and 1, got {score!r}")
            return score

    def close(self) -> None:
        """See `Environment`."""
        with boundary(FailureClass.ENV_STEP, f"{self._name}: close"):
            self._environment.close()

    def _check_lease(self) -> None:
        if self._vm is None:
            return
        try:
            self._vm.check()
        except LeaseLost as lost:
            raise RolloutFailure(FailureClass.LEASE_LOST, str(lost)) from lost
