"""Runs one of OSWorld's own agents: the class in a cell, its model through the session gateway, its actions on the desktop.

Several of these classes answer an endpoint's failure with an action, as DONE, so that it would be scored as theirs. What the
gateway saw decides: once it has given up on a call, the attempt fails as the endpoint's, whatever the class says.
"""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack
from typing import Any, ClassVar, Literal, Self
from urllib.parse import urlsplit

from benchmark.items import Item
from rollout_tasks.agents.base import Agent, Episode
from rollout_tasks.agents.limits import UnusableTurns, turns_used
from rollout_tasks.agents.osworld.agent_classes import PREFIX, AgentClass, agent_class
from rollout_tasks.agents.osworld.constructor import arguments_of
from rollout_tasks.agents.osworld.model_proxy import GATEWAY_PORT
from rollout_tasks.agents.osworld.recorded_calls import RecordedCalls
from rollout_tasks.cells.cell import CallFailed, Cell, CellEnded, Handled, Handlers
from rollout_tasks.cells.output_log import OutputLog
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
from rollout_tasks.models.gateway.session_summary import SessionLimits
from rollout_tasks.models.gateway.shared import shared_gateway
from rollout_tasks.settings import settings
from rollout_tasks.trajectories.writer import TrajectoryWriter

_CELL_MODULE = "rollout_tasks.agents.osworld.cell_service"
_LOG_NAME = "agent.log"
_PORTS = {"model": GATEWAY_PORT}
_DIAL_SECONDS = 10.0
_LONGEST_TEXT = 20_000
"""Characters of what a turn says that are kept."""
_LONGEST_SCRIPT = 1 << 20
"""Characters of one action."""
_MOST_ACTIONS = 100
"""In one turn."""
_CALLS_PER_TURN = 30
"""Classes ask again, up to twenty times, where they cannot read a reply."""
_REFUSALS = 5
"""Requests in a row that are refused, or too long for the model: some classes make them shorter, others ask for ever."""
_REQUEST_BYTES = 64 << 20


class OSWorldAgent(Agent):
    """An agent whose class is in ``mm_agents``."""

    needs_model: ClassVar[bool] = True
    needs_desktop: ClassVar[bool] = True
    agent_class: ClassVar[AgentClass]

    def __init__(self, config: RunConfig) -> None:
        """Stores the run's options."""
        self._config = config

    @classmethod
    def prepare(cls) -> None:
        """Waits until cells can be made in which such classes run.

        Raises:
            CellsUnavailable: They cannot.
        """
        shared_template(_CELL_MODULE).wait_until_ready()

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
        name = f"{PREFIX}{self.agent_class.name}"
        calls = RecordedCalls(trajectory, model, {"agent": name})
        desktop = _Desktop(environment, observation, trajectory)
        with calls, _Cell(self.agent_class, self._config, desktop, calls, trajectory) as cell:
            cell.open(model.session_id, limits)
            return self._play(cell, desktop, calls, item, limits)

    def _play(self, cell: _Cell, desktop: _Desktop, calls: RecordedCalls, item: Item, limits: Limits) -> Episode:
        """Plays turns until an action ends the episode, or a limit is reached."""
        unusable = UnusableTurns()
        while desktop.turn < limits.max_turns:
            desktop.begin_turn()
            said, finished = cell.play_turn(item.question)
            if desktop.ending is None and finished:
                if calls.last is not None and (calls.last.reply or {}).get("tool_calls"):
                    unusable.add("a call that the agent's class could not read")
                    continue
                desktop.execute("DONE")
            unusable.reset()
            if desktop.ending is not None:
                return Episode(said, desktop.ending, desktop.turn, calls.usage)
        raise turns_used(limits)


def osworld_agent(name: str) -> type[OSWorldAgent]:
    """Returns the agent with a class of ``mm_agents``.

    Args:
        name: ``osworld:`` and the class's name.

    Raises:
        UserError: There is no such class, or it cannot be used here.
    """
    found = agent_class(name.removeprefix(PREFIX))
    return type(f"OSWorldAgent({found.name})", (OSWorldAgent,), {"agent_class": found, "__module__": __name__})


class _Desktop:
    """The episode's desktop: what was seen last, what is to be done, and how it ended."""

    def __init__(self, environment: World, observation: Observation, trajectory: TrajectoryWriter) -> None:
        self._environment = environment
        self._observation = observation
        self._trajectory = trajectory
        self._actions = 0
        self.turn = 0
        self.ending: Literal["done", "fail"] | None = None

    def begin_turn(self) -> None:
        """Begins to count the actions of another turn."""
        self.turn += 1
        self._actions = 0

    def execute(self, action: object) -> None:
        """Carries out an action.

        Raises:
            ValueError: It is not an action, the episode is over, or the turn had too many.
        """
        if not isinstance(action, str) or len(action) > _LONGEST_SCRIPT:
            raise ValueError("this is not an action, or one that is too long")
        if self.ending is not None or self._actions >= _MOST_ACTIONS:
            raise ValueError("the episode is over" if self.ending else f"a turn has at most {_MOST_ACTIONS} actions")
        self._actions += 1
        name = f"turn-{self.turn}-{self._actions}"
        word = action.strip()
        if word in SPECIAL:
            call = ToolCall(name, CONTROL.name, {"action": word.lower()})
        else:
            call = ToolCall(name, SCRIPT.name, {"script": action})
        began = time.monotonic()
        result = self._environment.execute(call)
        self._trajectory.step(turn=self.turn, call=call, result=result, seconds=time.monotonic() - began)
        self._observation = result.observation or self._observation
        self.ending = result.ends_episode

    def picture(self) -> bytes:
        """Returns the last screenshot.

        Raises:
            ValueError: There is none.
        """
        if not self._observation.images:
            raise ValueError(
                "the agent needs a screenshot, and the environment shows none: --observation-type screenshot"
            )
        return self._observation.images[-1]


class _Cell:
    """The cell with the agent's class, and its session at the gateway."""

    def __init__(
        self,
        kind: AgentClass,
        config: RunConfig,
        desktop: _Desktop,
        calls: RecordedCalls,
        trajectory: TrajectoryWriter,
    ) -> None:
        self._name = f"{PREFIX}{kind.name}"
        self._kind = kind
        self._config = config
        self._desktop = desktop
        self._calls = calls
        self._handlers = Handlers(
            {"execute": self._execute, "look": self._look},
            {"log": OutputLog(trajectory.folder and trajectory.folder / _LOG_NAME).add},
        )
        self._failure: Exception | None = None
        """What went wrong here while the class asked for something; the class may not pass it on."""
        self._cell: Cell | None = None
        self._session: SessionHandle | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with ExitStack() as steps:  # which are taken from the last to the first
            if self._session is not None:
                steps.callback(self._session.close)
            if self._cell is not None:
                steps.callback(self._cell.close)

    def open(self, session_id: str, limits: Limits) -> None:
        """Opens the session and the cell, and makes the agent in it."""
        key = settings().openai_api_key
        engine = EndpointEngine(self._config.model, api_key=key.get_secret_value() if key else "")
        allowed = SessionLimits(
            request_bytes=_REQUEST_BYTES,
            calls=_CALLS_PER_TURN * limits.max_turns,
            tokens=limits.max_tokens,
            call_seconds=limits.max_seconds,
            refusals=_REFUSALS,
        )
        gateway = shared_gateway()
        self._session = gateway.open(session_id, engine, self._calls, allowed, when_over=self._abort)
        address = urlsplit(gateway.url)

        def dial(_name: str) -> socket.socket:
            return socket.create_connection((address.hostname, address.port), _DIAL_SECONDS)

        with boundary(FailureClass.ENV_SETUP, f"opening a cell for {self._name}"):
            template = shared_template(_CELL_MODULE)
            self._cell = Cell(template, ports=_PORTS, dial=dial, limits=limits_of_cell(self._config))
        self._call(
            "begin",
            module=self._kind.module,
            class_name=self._kind.class_name,
            arguments=arguments_of(self._kind, self._config, limits),
            session_path=urlsplit(self._session.messages_url).path,
            token=self._session.token,
        )

    def play_turn(self, instruction: str) -> tuple[str, bool]:
        """Has the class decide on its next actions and carry them out.

        Returns:
            What it says, and whether its model's reply had no action, which ends the episode.
        """
        match self._call("turn", instruction=instruction):
            case {"said": str(said), "finished": bool(finished), "elsewhere": str(elsewhere)}:
                if elsewhere and self._calls.served_in_turn == 0:
                    raise RolloutFailure(
                        FailureClass.INTERNAL, f"{self._name} asked {elsewhere[:200]}, which is not a model's API"
                    )
                return said[:_LONGEST_TEXT], finished
        raise RolloutFailure(FailureClass.ENV_STEP, f"the cell of {self._name} gave no answer that can be used")

    def _call(self, method: str, **arguments: Any) -> Any:
        """Calls a method in the cell; what really went wrong takes precedence over what the class made of it."""
        if self._cell is None or self._session is None:
            raise RuntimeError("open must be called first")
        beginning = method == "begin"
        problem: RolloutFailure | None = None
        answer = None
        self._calls.begin_turn(self._desktop.turn)
        try:
            answer = self._cell.call(method, self._handlers, **arguments)
        except CellEnded as error:
            problem = RolloutFailure(FailureClass.ENV_SETUP if beginning else FailureClass.ENV_STEP, str(error))
        except CallFailed as error:
            what = f"{self._name} cannot go on: {error.kind}: {error}"
            problem = RolloutFailure(FailureClass.INTERNAL if beginning else FailureClass.PARSE, what)
        finally:
            self._calls.write()
        if self._failure is not None:
            raise self._failure
        summary = self._session.summary()
        if summary.failure_class is not None:
            raise RolloutFailure(summary.failure_class, summary.failure)
        if summary.limit:
            raise RolloutFailure(FailureClass.MAX_TURNS, summary.limit)
        if summary.unserved:
            raise RolloutFailure(FailureClass.MODEL, summary.unserved)
        if problem is not None:
            raise problem
        return answer

    def _abort(self, why: str) -> None:
        """Ends the cell once its session answers no more: some classes would ask hundreds of times."""
        if self._cell is not None:
            self._cell.abort(why)

    def _execute(self, action: Any) -> Handled:
        """Carries out an action for the class."""
        if self._failure is not None:
            raise ValueError("the episode is over")
        try:
            self._calls.write()
            self._desktop.execute(action)
            return {"ended": self._desktop.ending is not None}, [self._desktop.picture()]
        except ValueError:  # the class's own mistake
            raise
        except Exception as error:
            self._failure = error
            raise

    def _look(self) -> Handled:
        try:
            return None, [self._desktop.picture()]
        except ValueError as error:
            self._failure = error
            raise
