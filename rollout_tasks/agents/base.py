"""The contract of an agent: one episode from the first observation to an answer."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

from benchmark.items import Item
from rollout_tasks.config import Limits, RunConfig
from rollout_tasks.environments.base import Observation, World
from rollout_tasks.models.base import Model, Usage
from rollout_tasks.trajectories.writer import TrajectoryWriter


@dataclass(frozen=True, slots=True)
class Episode:
    """How an episode ended; what happened in it is in the trajectory."""

    answer: str
    """The final text; may be empty, as for a desktop task that ended by ``done``."""
    ending: Literal["answer", "done", "fail", "max_turns"]
    """A final text, or the tool call that says finished or infeasible. Anything else is raised as a failure; where the environment
    scores unfinished episodes, ``max_turns`` is made of that failure.
    """
    turns: int
    usage: Usage


class Agent(Protocol):
    """An agent, constructed as ``Class(config)``. Errors of environment and model pass through, already classified.

    A class may also have:
        - ``needs_desktop = True``, so that it is refused where there is none;
        - ``roles = frozenset({"grounder"})``, for further models that it asks by `Model.role`: the run must have them;
        - a classmethod ``check_config(config)``, which raises a `UserError` at submission if the run's options do not fit;
        - a classmethod ``prepare()``, which is called before a VM is asked for, for what takes long.
    """

    needs_model: ClassVar[bool]
    """Whether the agent ever asks the model; if not, the run needs no endpoint."""

    def __init__(self, config: RunConfig) -> None:
        """Stores the run's options; does nothing else."""

    @abstractmethod
    def run(
        self,
        item: Item,
        environment: World,
        observation: Observation,
        model: Model,
        limits: Limits,
        trajectory: TrajectoryWriter,
    ) -> Episode:
        """Acts until there is an answer.

        Args:
            item: The item to work on.
            environment: Already reset; its `execute` classifies its errors and refuses once the lease is lost.
            observation: What `environment.reset` returned.
            model: The model, already bound to this rollout's session.
            limits: Turns, seconds and tokens allowed.
            trajectory: Already started; the first observation, every message and every step goes here as it happens.

        Raises:
            RolloutFailure: ``max_turns`` or ``parse``, and whatever environment and model raised.
        """
