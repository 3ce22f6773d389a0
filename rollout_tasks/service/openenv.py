"""An OpenEnv environment whose episodes are items of a benchmark on leased desktops. Needs the package `openenv`.

A model's tool call is one action. The episode ends when a call says so, when its turns are used up, or by an action with `end`;
then it is evaluated, and the last observation has the reward. What the infrastructure lost has no reward.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import secrets
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, ConcurrencyConfig, EnvironmentMetadata, Observation, State
from pydantic import Field
from starlette.types import ASGIApp

from rollout_tasks.environments import base
from rollout_tasks.http_services.client_presence import ClientPresence, client_gone
from rollout_tasks.http_services.token_guard import TokenGuard
from rollout_tasks.http_services.tokens import ServiceTokens
from rollout_tasks.service.desktop_sessions import DesktopSessions
from rollout_tasks.service.episode_tools import EpisodeTools
from rollout_tasks.service.played_session import PlayedSession
from rollout_tasks.service.session_results import SessionEnded, SessionRefused, Step

SPLIT = "test"
"""The only split of the items, for clients that ask for splits."""
_LAST_SESSION_SECONDS = 90.0
"""How long the session before may take to give its VM back: longer than a hurried cleanup and its grace."""
_LOOK_SECONDS = 1.0
_Made = TypeVar("_Made")


class ToolAction(Action):
    """One call of one of the environment's tools, as a model writes it."""

    name: str = Field("", max_length=200, description="The tool; a reset's observation lists them.")
    arguments: dict[str, Any] = Field(default_factory=dict, description="Its arguments.")
    end: bool = Field(False, description="Ends the episode without a call, and has it evaluated.")


class DesktopObservation(Observation):
    """What the agent is shown. The reward comes with `done`; it is null where the infrastructure lost the episode."""

    response: str = Field("", description="What the tool answered.")
    status: str = Field("success", description="success, or failed for a call that was wrong or did not work.")
    text: str = Field("", description="What can be read, such as the accessibility tree.")
    screenshots: list[str] = Field(default_factory=list, description="PNG files in base64; desktops show one.")
    item_id: str = Field("", description="The item that is played.")
    question: str = Field("", description="After a reset: the task.")
    instructions: str = Field("", description="After a reset: what a system prompt says about the environment.")
    tools: list[dict[str, Any]] = Field(
        default_factory=list, description="After a reset: the tools, in the format of OpenAI's Chat Completions."
    )


class DesktopState(State):
    """Where the episode stands, and how busy the server is."""

    item_id: str = ""
    session_id: str = Field("", description="The name of the session, and of the folder with its record.")
    vm_id: str = ""
    max_turns: int = 0
    sessions: int = Field(0, description="Sessions of all clients, those that wait for a VM included.")
    waiting: int = Field(0, description="Those of them that wait for a VM, or are being set up.")
    most_sessions: int = Field(0, description="How many there may be.")


class Desktops:
    """What all episodes of a server share."""

    def __init__(self, sessions: DesktopSessions) -> None:
        """Takes the sessions; whoever made them closes them."""
        self.sessions = sessions
        self.items = list(sessions.items.values())
        # A call may wait for a VM while another one releases it.
        self.threads = ThreadPoolExecutor(2 * sessions.most + 4, thread_name_prefix="openenv")
        self._next = itertools.count()

    def chosen(self, seed: int | None, item_id: str | None) -> tuple[str, int]:
        """Returns the item of an episode, and which of the item's rollouts it is."""
        if item_id is not None:
            return item_id, seed or 0
        index, place = divmod(next(self._next) if seed is None else seed, len(self.items))
        return self.items[place].id, index


class DesktopEnvironment(Environment):
    """One client's episodes, one after the other."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, desktops: Desktops) -> None:
        """Leases nothing yet."""
        super().__init__()
        self._desktops = desktops
        self._sessions = desktops.sessions
        self._session: PlayedSession | None = None
        self._session_id = ""
        self._episode_id: str | None = None
        self.mcp_client = EpisodeTools(self._tools, self._call)

    # OpenEnv's contract

    async def reset_async(
        self, seed: int | None = None, episode_id: str | None = None, item_id: str | None = None
    ) -> DesktopObservation:
        """Begins an episode; its client may go away meanwhile."""
        return await self._in_thread(partial(self.reset, seed, episode_id, item_id))

    async def step_async(self, action: ToolAction) -> DesktopObservation:
        """Carries out one action; its client may go away meanwhile."""
        return await self._in_thread(partial(self.step, action))

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, item_id: str | None = None
    ) -> DesktopObservation:
        """Waits for a VM and sets an item up on it.

        Args:
            seed: Chooses the item, and which of its rollouts it is; the same seed, the same both. Default: the next one.
            episode_id: The client's own name for the episode, which `state` repeats.
            item_id: The item. Default: the one that the seed chooses.

        Raises:
            SessionEnded: No VM came in time, or the item cannot be set up.
            SessionRefused: There is no such item, or there are as many sessions as there may be.
        """
        if seed is not None and (type(seed) is not int or seed < 0):
            raise SessionRefused("seed must be a whole number from 0")
        if not isinstance(item_id, str | None) or not isinstance(episode_id, str | None):
            raise SessionRefused("item_id and episode_id must be text")
        self.close()
        if self._session is not None:
            self._session.wait_until_ended(_LAST_SESSION_SECONDS)
        chosen, index = self._desktops.chosen(seed, item_id)
        self._session, self._session_id, self._episode_id = None, secrets.token_hex(8), episode_id
        session = self._session = self._sessions.acquire(chosen, session_id=self._session_id, index=index)
        shown = session.observation or base.Observation()
        return DesktopObservation(
            **_seen(shown),
            item_id=chosen,
            question=session.order.item.question,
            instructions=session.instructions,
            tools=[dict(tool) for tool in session.tools],
            metadata={"session_id": session.id, "vm_id": session.vm_id},
        )

    def step(self, action: ToolAction, timeout_s: float | None = None) -> DesktopObservation:  # noqa: ARG002
        """Carries out one action. The limits of a step are the environment's own.

        Raises:
            SessionRefused: There is no episode.
        """
        session = self._playing()
        fence = session.fence or 0
        step = None
        if not action.end:
            try:
                step = self._sessions.act(session.id, fence, action.name, action.arguments)
            except SessionEnded:
                return self._last(session, None)
            if step.over is None:
                return DesktopObservation(**_done(step), item_id=session.order.item.id, metadata={"turn": step.turn})
        return self._last(session, step)

    @property
    def state(self) -> DesktopState:
        """Where the episode stands."""
        known = self._sessions.known()
        session = self._session
        return DesktopState(
            episode_id=self._episode_id or self._session_id or None,
            step_count=session.turn if session else 0,
            item_id=session.order.item.id if session else "",
            session_id=self._session_id,
            vm_id=(session.vm_id if session else None) or "",
            max_turns=self._sessions.config.limits.max_turns,
            sessions=len(known),
            waiting=sum(one["state"] == "waiting" for one in known),
            most_sessions=self._sessions.most,
        )

    def get_metadata(self) -> EnvironmentMetadata:
        """Describes the environment."""
        number, mode = len(self._desktops.items), self._sessions.config.env_mode
        return EnvironmentMetadata(
            name=mode, description=f"{number} items of a benchmark, played in {mode}", version="1"
        )

    def close(self) -> None:
        """Gives the VM back, without waiting for that."""
        self._sessions.release(self._session_id)

    # What OpenEnv calls tasks are items

    def list_splits(self) -> list[str]:
        """Returns the only split."""
        return [SPLIT]

    def num_tasks(self, split: str) -> int:
        """Returns the number of items."""
        return len(self._tasks(split))

    def list_tasks(self, split: str) -> list[dict[str, Any]]:
        """Returns all items: their ids, which `reset` takes, and their questions."""
        return [{"item_id": item.id, "question": item.question} for item in self._tasks(split)]

    def get_task(self, split: str, index: int) -> dict[str, Any]:
        """Returns one item."""
        return self.list_tasks(split)[index]

    def get_task_range(self, split: str, start: int | None, stop: int | None) -> list[dict[str, Any]]:
        """Returns some of the items."""
        return self.list_tasks(split)[start:stop]

    # What is behind them

    def _tools(self) -> list[dict[str, Any]]:
        return [dict(tool) for tool in self._playing().tools]

    async def _call(self, name: str, arguments: Mapping[str, Any]) -> DesktopObservation:
        return await self.step_async(ToolAction(name=name, arguments=dict(arguments)))

    def _tasks(self, split: str) -> list[Any]:
        return self._desktops.items if split == SPLIT else []

    def _playing(self) -> PlayedSession:
        if self._session is None:
            raise SessionRefused("there is no episode yet: reset first")
        return self._session

    def _last(self, session: PlayedSession, step: Step | None) -> DesktopObservation:
        """Evaluates the episode; returns its last observation."""
        end = self._sessions.evaluate(session.id, session.fence or 0)
        shown = {"response": end.error or "the episode is over"} if step is None else _done(step)
        facts = {name: getattr(end, name) for name in ("score", "ending", "turns", "failure_class", "error")}
        return DesktopObservation(
            **shown,
            item_id=session.order.item.id,
            done=True,
            reward=end.reward,
            metadata={"session_id": session.id, **facts},
        )

    async def _in_thread(self, call: Callable[[], _Made]) -> _Made:
        """Makes a call in a thread; releases the session if the client goes away meanwhile."""
        work = asyncio.get_running_loop().run_in_executor(self._desktops.threads, call)
        gone = client_gone()
        if gone is not None:
            going = asyncio.ensure_future(gone.wait())
            first: set[asyncio.Future[Any]] = {work, going}
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
            going.cancel()
            while not work.done():
                self._sessions.release(self._session_id, "its client went away")
                await asyncio.wait({work}, timeout=_LOOK_SECONDS)
        return await work


def _seen(shown: base.Observation) -> dict[str, Any]:
    return {"text": shown.text, "screenshots": [base64.b64encode(image).decode() for image in shown.images]}


def _done(step: Step) -> dict[str, Any]:
    return {"response": step.response, "status": step.status, **_seen(step.observation or base.Observation())}


def served(sessions: DesktopSessions, tokens: ServiceTokens, *, session_timeout: float) -> ASGIApp:
    """Returns the ASGI application that serves the environment.

    Args:
        sessions: The sessions that its episodes are.
        tokens: Who may use it.
        session_timeout: Seconds after which an OpenEnv session without a connection or a call is forgotten.
    """
    environment = partial(DesktopEnvironment, Desktops(sessions))
    application = create_fastapi_app(
        environment,
        ToolAction,
        DesktopObservation,
        concurrency_config=ConcurrencyConfig(max_concurrent_envs=sessions.most, session_timeout=session_timeout),
        env_name=sessions.config.env_mode,
        state_cls=DesktopState,
        mode="simulation",
    )
    return TokenGuard(ClientPresence(application), tokens, free={"/health"})
