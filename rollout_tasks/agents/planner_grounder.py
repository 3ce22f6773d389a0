"""The agent with two models: a planner with native tool calls, which points in words, and a grounder, which finds the place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from benchmark.items import Item
from rollout_tasks.agents.base import Episode
from rollout_tasks.agents.grounder import ROLE, Grounder, NotFoundError
from rollout_tasks.agents.limits import Budget
from rollout_tasks.agents.tool_calling import ToolCallingAgent
from rollout_tasks.config import Limits, RunConfig
from rollout_tasks.environments.base import Observation, Tool, ToolCall, ToolResult, World
from rollout_tasks.errors import UserError
from rollout_tasks.models.base import Model
from rollout_tasks.trajectories.writer import TrajectoryWriter

TARGET = "target"
"""The parameter that replaces a tool's coordinates."""
_COORDINATES = ("x", "y")
_LONGEST_TARGET = 500
_DESCRIBED = (
    "what to point at, in words that fit nothing else on the screen: what it is, its text, its looks, and where it is, as in"
    " 'the blue Save button at the lower right of the dialog'"
)
_SEEN = ("screenshot", "screenshot_a11y_tree")


class PlannerGrounderAgent(ToolCallingAgent):
    """A `ToolCallingAgent` whose tools take a description of what to point at in place of coordinates."""

    roles: ClassVar[frozenset[str]] = frozenset({ROLE})
    needs_desktop: ClassVar[bool] = True

    @classmethod
    def check_config(cls, config: RunConfig) -> None:
        """Checks a run's options at its submission.

        Raises:
            UserError: The tools have no coordinates, or there are no screenshots without marks.
        """
        desktop = config.desktop
        if desktop.action_space != "computer_13":
            raise UserError(f"--action-space {desktop.action_space}: the planner points with the tools of computer_13")
        if desktop.observation_type not in _SEEN:
            raise UserError(
                f"--observation-type {desktop.observation_type}: the grounder needs plain screenshots: {' or '.join(_SEEN)}"
            )

    def run(
        self,
        item: Item,
        environment: World,
        observation: Observation,
        model: Model,
        limits: Limits,
        trajectory: TrajectoryWriter,
    ) -> Episode:
        """See `Agent`.

        Raises:
            ValueError: The run has no grounder with a profile, or the environment shows no screenshot.
        """
        budget = Budget(limits)
        with self._recording(trajectory) as record:
            grounder = Grounder(self._config, model.role(ROLE), budget, record)
            world = GroundedWorld(environment, grounder, observation)
            return self._play(item, world, observation, model, budget, trajectory)

    @contextmanager
    def _recording(self, trajectory: TrajectoryWriter) -> Iterator[TrajectoryWriter]:
        """Records what the grounder is asked in a folder of its own, in the form of a trajectory."""
        folder = trajectory.folder
        role = self._config.model_role(ROLE)
        record = TrajectoryWriter(folder / ROLE if folder else Path(), enabled=folder is not None)
        known = {} if role is None else {"model": role.model.name, "profile": role.profile_name}
        try:
            record.start({"role": ROLE, **known})
            yield record
        finally:
            record.finish()


class GroundedWorld(World):
    """An environment whose tools take a description in place of coordinates: a grounder finds these."""

    def __init__(self, environment: World, grounder: Grounder, observation: Observation) -> None:
        """Looks at the environment's tools.

        Args:
            environment: Already reset.
            grounder: Finds the places.
            observation: What was seen at the start.

        Raises:
            ValueError: None of the environment's tools has coordinates, or nothing is seen.
        """
        self._environment = environment
        self._grounder = grounder
        self._pointing = {tool.name for tool in environment.tools() if _has_coordinates(tool)}
        if not self._pointing:
            raise ValueError(
                "none of the environment's tools has coordinates: take a desktop, with --action-space computer_13"
            )
        if not observation.images:
            raise ValueError(
                "the grounder needs a screenshot, and the environment shows none: --observation-type screenshot"
            )
        self._screenshot = observation.images[-1]

    def instructions(self, item: Item) -> str:
        """See `World`."""
        return (
            f"{self._environment.instructions(item)}\n"
            "Where a tool points at something, describe it in words (target): another model finds the place on the newest"
            " screenshot. Look at what was pointed at before you go on, and describe it another way if it was the wrong thing."
        )

    def tools(self) -> list[Tool]:
        """See `World`."""
        return [_in_words(tool) if tool.name in self._pointing else tool for tool in self._environment.tools()]

    def reset(self, item: Item) -> Observation:
        """See `World`."""
        return self._environment.reset(item)

    def execute(self, call: ToolCall) -> ToolResult:
        """See `World`. What the grounder does not find is a failed call."""
        if call.name in self._pointing and (target := call.arguments.get(TARGET)) is not None:
            try:
                x, y = self._grounder.place(target, self._screenshot)
            except NotFoundError as problem:
                return ToolResult("failed", f"{target!r} was not found on the screenshot: {problem}")
            others = {name: value for name, value in call.arguments.items() if name != TARGET}
            call = ToolCall(call.id, call.name, {**others, "x": x, "y": y})
        result = self._environment.execute(call)
        if result.observation is not None and result.observation.images:
            self._screenshot = result.observation.images[-1]
        return result

    def evaluate(self) -> float | None:
        """See `World`."""
        return self._environment.evaluate()

    def close(self) -> None:
        """See `World`."""
        self._environment.close()


def _has_coordinates(tool: Tool) -> bool:
    properties = tool.parameters.get("properties", {})
    return all(name in properties for name in _COORDINATES)


def _in_words(tool: Tool) -> Tool:
    """Returns a tool with a description in place of its coordinates."""
    parameters = dict(tool.parameters)
    kept = {name: value for name, value in parameters["properties"].items() if name not in _COORDINATES}
    required = list(parameters.get("required", ()))
    where = str(parameters["properties"]["x"].get("description", "Where")).partition(":")[0]
    target: dict[str, Any] = {
        "type": "string",
        "minLength": 1,
        "maxLength": _LONGEST_TARGET,
        "description": f"{where}: {_DESCRIBED}.",
    }
    parameters["properties"] = {TARGET: target, **kept}
    if any(name in required for name in _COORDINATES):
        parameters["required"] = [TARGET, *(name for name in required if name not in _COORDINATES)]
    return Tool(tool.name, tool.description, parameters)
