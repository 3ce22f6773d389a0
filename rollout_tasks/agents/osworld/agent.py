"""Runs one of OSWorld's own agents: the class in a cell, its model through the session gateway, its actions on the desktop.

Several of these classes answer an endpoint's failure with an action, as DONE, so that it would be scored as theirs. What the
gateway saw decides: once it has given up on a call, the attempt fails as the endpoint's, whatever the class says.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Literal
from urllib.parse import urlsplit

from benchmark.items import Item
from rollout_tasks.agents.base import Agent, Episode
from rollout_tasks.agents.limits import turns_used
from rollout_tasks.agents.osworld.agent_classes import PREFIX, AgentClass, agent_class
from rollout_tasks.agents.osworld.agent_log import AgentLog
from rollout_tasks.agents.osworld.constructor import arguments_of
from rollout_tasks.agents.osworld.model_front import GATEWAY_PORT
from rollout_tasks.agents.osworld.recorded_calls import RecordedCalls
from rollout_tasks.cells.cell import CallFailed, Cell, CellEnded, Handled, Handlers
from rollout_tasks.cells.template_process import shared_template
from rollout_tasks.config import Limits, RunConfig
from rollout_tasks.environments.base import Observation, ToolCall, World
from rollout_tasks.environments.osworld.action_spaces.base import CONTROL
from rollout_tasks.environments.osworld.action_spaces.pyautogui import SCRIPT
from rollout_tasks.environments.osworld.guest_python import SPECIAL
from rollout_tasks.environments.osworld.session_opening import limits_of_cell
from rollout_tasks.errors import FailureClass, RolloutFailure, boundary
from rollout_tasks.models.base import Model
from rollout_tasks.models.gateway.endpoint_engine import EndpointEngine
from rollout_tasks.models.gateway.gateway import SessionHandle
from rollout_tasks.models.gateway.session import SessionLimits
from rollout_tasks.models.gateway.shared import shared_gateway
from rollout_tasks.settings import settings
from rollout_tasks.trajectories.writer import TrajectoryWriter

_CELL_MODULE = "rollout_tasks.agents.osworld.cell_service"
_PORTS = {"model": GATEWAY_PORT}
_DIAL_SECONDS = 10.0


class OSWorldAgent(Agent):
    """An agent whose class is in ``mm_agents``."""

    needs_model: ClassVar[bool] = True
    needs_desktop: ClassVar[bool] = True
    agent_class: ClassVar[AgentClass]

    def __init__(self, config: RunConfig) -> None:
        """Stores the run's options."""
        self._config = config

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
            ValueError: The environment does not have what the agent acts through or sees.
        """
        if SCRIPT.name not in {tool.name for tool in environment.tools()}:
            raise ValueError(
                f"the agent acts through the tool {SCRIPT.name}, which this environment does not offer:"
                " take a desktop, with --action-space pyautogui"
            )
        calls = RecordedCalls(trajectory, model, {"agent": f"{PREFIX}{self.agent_class.name}"})
        episode = _Episode(self.agent_class, self._config, item, environment, observation, calls, trajectory)
        with calls, episode.opened(model.session_id, limits) as session:
            return episode.play(session, limits)


def official_agent(name: str) -> type[OSWorldAgent]:
    """Returns the agent with a class of ``mm_agents``.

    Args:
        name: ``osworld:`` and the class's name.

    Raises:
        UserError: There is no such class, or it cannot be used here.
    """
    found = agent_class(name.removeprefix(PREFIX))
    return type(f"OSWorldAgent({found.name})", (OSWorldAgent,), {"agent_class": found, "__module__": __name__})


class _Episode:
    """One episode."""

    def __init__(
        self,
        kind: AgentClass,
        config: RunConfig,
        item: Item,
        environment: World,
        observation: Observation,
        calls: RecordedCalls,
        trajectory: TrajectoryWriter,
    ) -> None:
        self._kind = kind
        self._config = config
        self._item = item
        self._environment = environment
        self._observation = observation
        self._calls = calls
        self._trajectory = trajectory
        self._log = AgentLog(trajectory.folder)
        self._handlers = Handlers({"execute": self._execute, "look": self._look}, {"log": self._log.add})
        self._turn = 0
        self._actions = 0
        self._ending: Literal["done", "fail"] | None = None
        self._failure: Exception | None = None
        self._cell: Cell | None = None

    @contextmanager
    def opened(self, session_id: str, limits: Limits) -> Iterator[SessionHandle]:
        """Opens the session and the cell, and closes both."""
        key = settings().openai_api_key
        engine = EndpointEngine(self._config.model, api_key=key.get_secret_value() if key else "")
        allowed = SessionLimits(tokens=limits.max_tokens, call_seconds=limits.max_seconds)
        gateway = shared_gateway()
        with gateway.open(session_id, engine, self._calls, allowed, when_over=self._abort) as session:
            address = urlsplit(gateway.url)

            def dial(_name: str) -> socket.socket:
                return socket.create_connection((address.hostname, address.port), _DIAL_SECONDS)

            with boundary(FailureClass.ENV_SETUP, f"opening a cell for {PREFIX}{self._kind.name}"):
                template = shared_template(_CELL_MODULE)
                self._cell = Cell(template, ports=_PORTS, dial=dial, limits=limits_of_cell(self._config))
            try:
                yield session
            finally:
                self._cell.close()

    def play(self, session: SessionHandle, limits: Limits) -> Episode:
        """Plays turns until an action ends the episode, or a limit is reached."""
        arguments = arguments_of(self._kind, self._config, limits)
        self._call(
            session,
            "begin",
            module=self._kind.module,
            class_name=self._kind.class_name,
            arguments=arguments,
            session_path=urlsplit(session.messages_url).path,
            token=session.token,
        )
        while self._turn < limits.max_turns:
            self._turn += 1
            said = self._call(session, "turn", instruction=self._item.question)
            if self._ending is not None:
                answer = said if isinstance(said, str) else ""
                return Episode(answer, self._ending, self._turn, session.summary().usage)
        raise turns_used(limits)

    def _call(self, session: SessionHandle, method: str, **arguments: Any) -> Any:
        """Calls a method in the cell; what really went wrong takes precedence over what the class made of it."""
        if self._cell is None:
            raise RuntimeError("the cell is not open")
        problem: RolloutFailure | None = None
        answer = None
        try:
            answer = self._cell.call(method, self._handlers, **arguments)
        except CellEnded as error:
            problem = RolloutFailure(FailureClass.PARSE, f"{PREFIX}{self._kind.name}: {error}")
        except CallFailed as error:
            what = f"{PREFIX}{self._kind.name} cannot go on: {error.kind}: {error}"
            problem = RolloutFailure(FailureClass.INTERNAL if method == "begin" else FailureClass.PARSE, what)
        finally:
            self._calls.write(self._turn)
        if self._failure is not None:
            raise self._failure
        summary = session.summary()
        if summary.failure_class is not None:
            raise RolloutFailure(summary.failure_class, summary.failure)
        if summary.limit:
            raise RolloutFailure(FailureClass.MAX_TURNS, summary.limit)
        if problem is not None:
            raise problem
        return answer

    def _abort(self, why: str) -> None:
        """Ends the cell once its session answers no more: some agents would ask hundreds of times."""
        if self._cell is not None:
            self._cell.abort(why)

    def _execute(self, action: Any) -> Handled:
        """Carries out an action; an error ends the episode, as the class may not pass it on."""
        if not isinstance(action, str) or self._ending is not None or self._failure is not None:
            raise ValueError("the episode is over, or this is no action")
        self._calls.write(self._turn)
        self._actions += 1
        name = f"turn-{self._turn}-{self._actions}"
        word = action.strip()
        if word in SPECIAL:
            call = ToolCall(name, CONTROL.name, {"action": word.lower()})
        else:
            call = ToolCall(name, SCRIPT.name, {"script": action})
        began = time.monotonic()
        try:
            result = self._environment.execute(call)
        except Exception as error:
            self._failure = error
            raise
        self._trajectory.step(turn=self._turn, call=call, result=result, seconds=time.monotonic() - began)
        self._observation = result.observation or self._observation
        self._ending = result.ends_episode
        return {"ended": self._ending is not None}, [self._picture()]

    def _look(self) -> Handled:
        return None, [self._picture()]

    def _picture(self) -> bytes:
        if not self._observation.images:
            self._failure = ValueError(
                "the agent needs a screenshot, and the environment shows none: --observation-type screenshot"
            )
            raise self._failure
        return self._observation.images[-1]
