"""An environment of the tests' own, offered as other packages offer theirs: does what its item says and notes what is done."""

from __future__ import annotations

import importlib
import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from benchmark.items import Item
from rollout_tasks.agents.base import Agent, Episode
from rollout_tasks.config import RunConfig
from rollout_tasks.environments.base import Environment, EnvironmentContext, Observation, Tool, ToolCall, ToolResult
from rollout_tasks.errors import FailureClass, RolloutFailure
from rollout_tasks.models.base import Usage
from rollout_tasks.trajectories.writer import TrajectoryWriter
from vm_pool.states import Endpoint

CALLS: list[tuple[str, int]] = []
"""What was called, and in which attempt; emptied by the fixture `calls`."""
HOOKS: dict[str, Any] = {}
"""By call: something to run in it, given the environment."""

TOOL = Tool(name="act", description="Acts.", parameters={"type": "object", "properties": {}})


class WatchedEnvironment(Environment):
    """`env_config`: ``at`` names a call, ``raises`` what it raises (``module:Class``), or ``fails_as`` its failure class;
    ``times`` says in how many attempts.
    """

    needs_vm: ClassVar[bool] = True
    queue: ClassVar[str] = "rollout.watched"
    default_agent: ClassVar[str] = "simulated"

    def __init__(self, context: EnvironmentContext) -> None:
        self.context = context
        self.item: Item | None = None
        self._called("init")

    @classmethod
    def needs_vm_for(cls, config: RunConfig, item: Item) -> bool:  # noqa: ARG003
        return bool(item.env_config.get("needs_vm", True))

    @classmethod
    def snapshot(cls, item: Item) -> str | None:
        if item.env_config.get("at") == "snapshot":
            _raise(item)
        return item.env_config.get("snapshot")

    @classmethod
    def prepare(cls, config: RunConfig, item: Item) -> Mapping[str, str] | None:  # noqa: ARG003
        CALLS.append(("prepare", 0))
        if item.env_config.get("at") == "prepare":
            _raise(item)
        return item.env_config.get("downloads")

    def instructions(self, item: Item) -> str:  # noqa: ARG002
        return "Act."

    def tools(self) -> list[Tool]:
        return [TOOL]

    def reset(self, item: Item) -> Observation:
        self.item = item
        self._called("reset")
        return Observation("begin")

    def execute(self, call: ToolCall) -> ToolResult:  # noqa: ARG002
        self._called("execute")
        return ToolResult("success", "done", ends_episode="done")

    def evaluate(self) -> float | None:
        self._called("evaluate")
        return float(self.item.env_config.get("score", 1.0)) if self.item else None

    def close(self) -> None:
        self._called("close")

    def _called(self, what: str) -> None:
        CALLS.append((what, self.context.attempt))
        if what in HOOKS:
            HOOKS[what](self)
        item = self.item
        if item is None or self.context.attempt > item.env_config.get("times", 1_000):
            return
        if item.env_config.get("at") == what:
            _raise(item)


def _raise(item: Item) -> None:
    if "fails_as" in item.env_config:
        raise RolloutFailure(FailureClass(item.env_config["fails_as"]), "said")
    module, name = str(item.env_config.get("raises", "builtins:RuntimeError")).split(":")
    if name == "sleep":
        time.sleep(600)
    raise getattr(importlib.import_module(module), name)("it broke")


class UnfinishedEnvironment(WatchedEnvironment):
    """Scores episodes whose turns are used up."""

    scores_unfinished: ClassVar[bool] = True


class WrongReturnsEnvironment(WatchedEnvironment):
    """`env_config`: ``returns`` is what the method that ``of`` names returns in place of what it should."""

    def __getattribute__(self, name: str) -> Any:
        item = object.__getattribute__(self, "__dict__").get("item")
        if item is not None and name == item.env_config["of"]:
            return lambda *_arguments: item.env_config["returns"]
        return super().__getattribute__(name)

    def reset(self, item: Item) -> Any:
        observation = super().reset(item)
        return item.env_config["returns"] if item.env_config["of"] == "reset" else observation


class SnapshotProvider:
    """VMs that start from a snapshot, and answer where its name says."""

    needs_reset: ClassVar[bool] = False
    option_names: ClassVar[frozenset[str]] = frozenset({"snapshot_name"})

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = options

    def boot(self, vm_id: str) -> Endpoint:  # noqa: ARG002
        return Endpoint(f"{self.options.get('snapshot_name', 'none')}.example.org")

    def reset(self, vm_id: str) -> Endpoint:
        return self.boot(vm_id)

    def check(self, vm_id: str) -> None:
        pass

    def stop(self, vm_id: str) -> None:
        HOOKS.get("stop", lambda _vm_id: None)(vm_id)

    def reap_leftovers(self, host_id: str) -> Sequence[str]:  # noqa: ARG002
        return ()


class BrokenAgent(Agent):
    needs_model: ClassVar[bool] = False

    def __init__(self, config: RunConfig) -> None:
        pass

    def run(self, *_arguments: Any, **_options: Any) -> Episode:
        raise ZeroDivisionError("the agent broke")


class SilentAgent(Agent):
    """Forgets to return how the episode ended."""

    needs_model: ClassVar[bool] = False

    def __init__(self, config: RunConfig) -> None:
        pass

    def run(self, *_arguments: Any, **_options: Any) -> Any:
        """Returns nothing."""


class AnsweringAgent(Agent):
    """Asks its model once and takes what it says for the answer."""

    needs_model: ClassVar[bool] = True

    def __init__(self, config: RunConfig) -> None:
        pass

    def run(self, item: Item, environment: Any, observation: Any, model: Any, *_more: Any) -> Episode:  # noqa: ARG002
        reply = model.complete([{"role": "user", "content": item.question}], [])
        return Episode(answer=reply.text, ending="answer", turns=1, usage=reply.usage)


class RecordingAgent(AnsweringAgent):
    """Asks its model once and records what it said."""

    def run(
        self,
        item: Item,
        environment: Any,  # noqa: ARG002
        observation: Any,  # noqa: ARG002
        model: Any,
        limits: Any,  # noqa: ARG002
        trajectory: TrajectoryWriter,
    ) -> Episode:
        question = {"role": "user", "content": item.question}
        trajectory.message(question)
        reply = model.complete([question], [])
        trajectory.message({"role": "assistant", "content": reply.text}, turn=1, reply=reply)
        return Episode(answer=reply.text, ending="answer", turns=1, usage=reply.usage)


class InstructedAgent(Agent):
    """Asks the environment for its instructions and takes them for the answer."""

    needs_model: ClassVar[bool] = False

    def __init__(self, config: RunConfig) -> None:
        pass

    def run(self, item: Item, environment: Any, *_more: Any) -> Episode:
        return Episode(environment.instructions(item), "answer", 0, Usage())


class AskingAgent(Agent):
    """Asks its model once and gives up."""

    needs_model: ClassVar[bool] = True

    def __init__(self, config: RunConfig) -> None:
        pass

    def run(self, item: Item, environment: Any, observation: Any, model: Any, *_more: Any) -> Episode:  # noqa: ARG002
        model.complete([{"role": "user", "content": item.question}], [])
        raise RolloutFailure(FailureClass.PARSE, "nothing to read")


class LateAgent(AskingAgent):
    """Takes more than half of two seconds before it asks its model."""

    def run(self, *arguments: Any, **options: Any) -> Episode:
        time.sleep(1.2)
        return super().run(*arguments, **options)
