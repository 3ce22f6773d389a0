"""Checks an agent's use of its environment: that the lease is held, and what the environment returns and raises.

Also measures the time that the environment takes.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Real
from typing import Literal

from benchmark.items import Item
from rollout_tasks.config import RunConfig
from rollout_tasks.environments.base import (
    Environment,
    Observation,
    Tool,
    ToolCall,
    ToolResult,
    VMAccess,
    VMLost,
    World,
)
from rollout_tasks.errors import FailureClass, RolloutFailure, boundary
from vm_pool.contracts import ContractBroken, returned
from vm_pool.errors import LeaseLost

MOST_TEXT = 250_000_000
"""Characters that an environment may say in one attempt: they stay in memory and on disk."""
MOST_IMAGES = 600_000_000
"""Bytes of all the images that it may show in one attempt: they stay there, too."""
MOST_DOWNLOADS = 1000
"""Files whose hashes are recorded for one attempt."""


def prepared(environment_class: type[Environment], config: RunConfig, item: Item) -> dict[str, str]:
    """Prepares an attempt; returns the SHA-256 of each file that was downloaded, by its URL without user and password.

    Raises:
        ContractBroken: What the environment returns is something else.
    """
    method = f"{environment_class.__name__}.prepare"
    hashes = returned(environment_class.prepare(config, item), Mapping[str, str] | None, method) or {}
    if len(hashes) > MOST_DOWNLOADS:
        raise ContractBroken(
            f"{method} returned hashes of {len(hashes):,} files; at most {MOST_DOWNLOADS:,} are recorded"
        )
    if odd := [one for one in hashes.values() if not re.fullmatch("[0-9a-f]{64}", one)]:
        raise ContractBroken(
            f"{method} returned {odd[0][:100]!r} instead of a SHA-256, which has 64 hexadecimal digits"
        )
    return {_without_login(url): one for url, one in hashes.items()}


def _without_login(url: str) -> str:
    return re.sub(r"^([^/?#]*//)[^/?#]*@", r"\1", url)


class CheckedEnvironment(World):
    """An environment whose errors become `RolloutFailure`s, and which refuses calls once its lease is lost.

    What it returns against its contract is such an error.
    """

    def __init__(self, world: World, vm: VMAccess | None) -> None:
        self._world = world
        self._vm = vm
        self._name = type(world).__name__
        self._said = self._shown = 0
        self.seconds = {"setup": 0.0, "acting": 0.0, "evaluation": 0.0}
        """Wall time by stage."""

    @property
    def task_code(self) -> Literal["cell", "worker"] | None:
        """See `Environment`; environments of other packages may lack it."""
        return getattr(self._world, "task_code", None)

    @property
    def attestation(self) -> Literal["attested", "unattested"] | None:
        """See `Environment`; environments of other packages may lack it."""
        return getattr(self._world, "attestation", None)

    def instructions(self, item: Item) -> str:
        """See `World`."""
        with boundary(FailureClass.ENV_SETUP, self._name):
            return returned(self._world.instructions(item), str, f"{self._name}.instructions")

    def tools(self) -> list[Tool]:
        """See `World`."""
        with boundary(FailureClass.ENV_SETUP, self._name):
            return returned(self._world.tools(), Sequence[Tool], f"{self._name}.tools")

    def reset(self, item: Item) -> Observation:
        """See `World`."""
        self._check_lease()
        with boundary(FailureClass.ENV_SETUP, f"{self._name}: reset"), self._touching("setup"):
            observation = returned(self._world.reset(item), Observation, f"{self._name}.reset")
            self._count(observation)
            return observation

    def execute(self, call: ToolCall) -> ToolResult:
        """See `World`."""
        self._check_lease()
        with boundary(FailureClass.ENV_STEP, f"{self._name}: {call.name}"), self._touching("acting"):
            result = returned(self._world.execute(call), ToolResult, f"{self._name}.execute")
            self._count(result.observation, result.response)
            return result

    def evaluate(self) -> float | None:
        """See `World`. A score outside [0, 1] is an error."""
        self._check_lease()
        with boundary(FailureClass.ENV_EVALUATE, f"{self._name}: evaluation"), self._touching("evaluation"):
            score = returned(self._world.evaluate(), Real | None, f"{self._name}.evaluate")
            if score is not None and not 0.0 <= score <= 1.0:
                raise ValueError(f"a score must be between 0 and 1, got {score!r}")
            return None if score is None else float(score)

    def close(self) -> None:
        """See `World`."""
        with boundary(FailureClass.ENV_STEP, f"{self._name}: close"):
            self._world.close()

    def _count(self, observation: Observation | None, response: str = "") -> None:
        self._said += len(response)
        if observation is not None:
            self._said += len(observation.text)
            self._shown += sum(map(len, observation.images))
        if self._said > MOST_TEXT:
            raise ValueError(f"it has said more than {MOST_TEXT:,} characters in all")
        if self._shown > MOST_IMAGES:
            raise ValueError(f"it has shown images of more than {MOST_IMAGES:,} bytes in all")

    @contextmanager
    def _touching(self, stage: str) -> Iterator[None]:
        """Measures a stage; a VM that does not answer counts as lost, unless its lease is gone."""
        began = time.monotonic()
        try:
            yield
        except VMLost as lost:
            self._check_lease()
            raise RolloutFailure(FailureClass.VM_LOST, str(lost)) from lost
        finally:
            self.seconds[stage] += time.monotonic() - began

    def _check_lease(self) -> None:
        if self._vm is None:
            return
        try:
            self._vm.check()
        except LeaseLost as lost:
            raise RolloutFailure(FailureClass.LEASE_LOST, str(lost)) from lost
