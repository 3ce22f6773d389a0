"""OSWorld's tasks on a leased VM. Imports heavy modules only when an episode needs them: light workers use this too."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from benchmark.items import Item
from rollout_tasks.config import RunConfig
from rollout_tasks.environments.base import (
    Conformance,
    Environment,
    EnvironmentContext,
    Observation,
    Tool,
    ToolCall,
    ToolResult,
    VMLost,
)
from rollout_tasks.environments.osworld import desktop_env_import, instructions
from rollout_tasks.environments.osworld.action_spaces import SPACES
from rollout_tasks.environments.osworld.action_spaces.base import CallRefused, View
from rollout_tasks.environments.osworld.attestation import Attestation, check_server, forgeable
from rollout_tasks.environments.osworld.needs import needs_of, total
from rollout_tasks.environments.osworld.task import task_config
from rollout_tasks.environments.osworld.task_files import files_of
from rollout_tasks.environments.osworld.vm_requests import own_snapshot, unmet
from rollout_tasks.errors import FailureClass
from rollout_tasks.interruption import time_limit
from rollout_tasks.settings import settings

if TYPE_CHECKING:
    from desktop_image.conformance.facts import Facts
    from rollout_tasks.environments.osworld.attempt_files import WorkerFiles
    from rollout_tasks.environments.osworld.session_results import DesktopSession, DesktopView

logger = logging.getLogger(__name__)

STEP_SECONDS = 150.0
"""Longer than any command in the guest may take; a step's own pause is added."""
OUTPUT_CHARACTERS = 4_000
"""How much of a script's output the reply shows."""


class OSWorldEnvironment(Environment):
    """An OSWorld task on a desktop."""

    needs_vm: ClassVar[bool] = True
    needs_desktop: ClassVar[bool] = True
    scores_unfinished: ClassVar[bool] = True
    queue: ClassVar[str] = "rollout.osworld"
    default_agent: ClassVar[str] = "tool_calling"

    def __init__(self, context: EnvironmentContext) -> None:
        """Touches nothing yet."""
        self.task_code = "worker" if settings().trust_tasks else "cell"
        self._context = context
        self._config = context.config.desktop
        self._space = SPACES[self._config.action_space]
        self._session: DesktopSession | None = None
        self._files: WorkerFiles | None = None
        self._task: Mapping[str, Any] = {}
        self._view = View((self._config.screen_width, self._config.screen_height), system=self._config.os_type)

    @classmethod
    def check_available(cls) -> None:
        """Raises if desktop-env is not installed, or cells cannot be made and tasks are not trusted."""
        if not desktop_env_import.is_installed():
            raise RuntimeError(desktop_env_import.NOT_INSTALLED)
        from rollout_tasks.environments.osworld.session_opening import check_cells  # light workers lack requests

        check_cells()

    @classmethod
    def check_item(cls, config: RunConfig, item: Item) -> None:
        """Raises unless desktop-env can set up and evaluate the task."""
        task_config(item)
        desktop = config.desktop
        if desktop.observation_type in {"a11y_tree", "som"} and not desktop.require_a11y_tree:
            raise ValueError(
                f"--no-a11y-tree: an observation of type {desktop.observation_type} is made from that tree"
            )

    @classmethod
    def bare_item(cls, config: RunConfig) -> Item | None:  # noqa: ARG003
        """Returns a task without setup; its evaluator is there because desktop-env asks for one."""
        return Item("bare", "A desktop without a task.", metadata={"config": [], "evaluator": {"func": "infeasible"}})

    @classmethod
    def needs(cls, config: RunConfig, items: Iterable[Item]) -> Mapping[str, Any]:  # noqa: ARG003
        """Returns programs, downloads, accounts and the like."""
        return total(needs_of(task_config(item), item) for item in items)

    @classmethod
    def unmet(cls, config: RunConfig, items: Sequence[Item]) -> list[str]:
        """Returns sentences about snapshots, proxies and fixed addresses."""
        return unmet(config, items, map(task_config, items))

    @classmethod
    def conformance(cls, config: RunConfig, items: Sequence[Item], images: Sequence[Facts]) -> Sequence[Conformance]:  # noqa: ARG003
        """Compares what tasks touch with what the images have."""
        from rollout_tasks.environments.osworld.conformance import conformance  # here, because only submitters need it

        return conformance(items, images)

    @classmethod
    def snapshot(cls, item: Item) -> str | None:
        """Returns the snapshot that the item's env_config names."""
        return own_snapshot(item)

    @classmethod
    def prepare(cls, config: RunConfig, item: Item) -> Mapping[str, str]:  # noqa: ARG003
        """Downloads the task's files, and waits until desktop-env is imported; returns the files' hashes."""
        from rollout_tasks.environments.osworld.downloads import DownloadCache  # light workers need none of it
        from rollout_tasks.environments.osworld.session_opening import wait_until_imported

        wait_until_imported()
        return DownloadCache().fetch_all(file.url for file in files_of(task_config(item)))

    @classmethod
    def preload(cls) -> None:
        """Begins to import desktop-env with all its evaluators, in the process that cells are forked from."""
        from rollout_tasks.environments.osworld.session_opening import preload  # light workers have no cells

        preload()

    def instructions(self, item: Item) -> str:  # noqa: ARG002
        """See `Environment`."""
        return instructions.instructions(self._config)

    def tools(self) -> list[Tool]:
        """Returns the tools of the run's action space."""
        tools: list[Tool] = self._space.tools(self._view)
        return tools

    def reset(self, item: Item) -> Observation:
        """Attaches to the VM and sets the task up on it."""
        from rollout_tasks.environments.osworld.attempt_files import WorkerFiles  # light workers lack requests
        from rollout_tasks.environments.osworld.session_opening import open_session

        if self._context.vm is None:
            raise ValueError("a desktop task needs a VM")
        self._files = WorkerFiles(self._context.directory)
        with self._vm_watched():
            self._task = task_config(item)
            self._session = open_session(self._context.vm, self._context.config, self._task, self._files)
            return self._seen(self._session.begin())

    def execute(self, call: ToolCall) -> ToolResult:
        """Acts, waits, and looks at the screen."""
        try:
            plan = self._space.plan(call, self._view)
        except CallRefused as refusal:
            return ToolResult("failed", f"Validation failed for {call.name}: {refusal}")
        pause = self._config.sleep_after_execution if plan.pause is None else float(plan.pause)
        limit = STEP_SECONDS + pause
        with self._vm_watched(), time_limit(limit, FailureClass.ENV_STEP, f"{call.name} took longer than {limit:g} s"):
            outcome, desktop_view = self._open_session.act(plan.action, pause)
            observation = self._seen(desktop_view)
        output = outcome.output.strip()[:OUTPUT_CHARACTERS]
        if not outcome.ok:
            problem = outcome.error.strip()[-OUTPUT_CHARACTERS:] or "no reason given"
            return ToolResult("failed", f"Execution failed for {call.name}: {_joined(problem, output)}", observation)
        response = f"Action executed successfully: {plan.said}"
        return ToolResult(
            "success", _joined(response, output) if plan.answers else response, observation, ends_episode=plan.ends
        )

    def evaluate(self) -> float | None:
        """Returns the evaluator's score; raises if the VM's host says that the guest's server is another one."""
        with self._vm_watched():
            self._keep_recording(self._open_session)
            self._attested()
            score = self._open_session.score()
            self.attestation = self._attested()  # again: it may have changed during the evaluation
            return score

    def close(self) -> None:
        """Detaches from the VM and removes the attempt's working files."""
        session, self._session = self._session, None
        if session is None:
            return
        try:
            self._keep_recording(session)
        finally:
            session.close()

    def _attested(self) -> Attestation | None:
        """Returns what is known about which server answers in the VM."""
        if self._context.vm is not None and check_server(self._context.vm):
            return "attested"
        return "unattested" if forgeable(self._task) else None

    def _keep_recording(self, session: DesktopSession) -> None:
        """Ends the recording, if there is one; an episode is complete without it."""
        if self._files is None:
            return
        try:
            with self._vm_watched(), self._files.recording() as take:
                session.take_recording(take)
        except (VMLost, RuntimeError, OSError) as error:
            logger.warning("ending the recording failed: %s", error)

    @property
    def _open_session(self) -> DesktopSession:
        if self._session is None:
            raise RuntimeError("reset must be called first")
        return self._session

    def _seen(self, desktop_view: DesktopView) -> Observation:
        """Returns the observation; remembers what the agent's next call may point at."""
        self._view = View(desktop_view.screen, desktop_view.marks, self._config.os_type)
        return desktop_view.observation

    @contextmanager
    def _vm_watched(self) -> Iterator[None]:
        from rollout_tasks.environments.osworld.vm_client import VMUnreachable  # light workers lack requests

        try:
            yield
        except VMUnreachable as lost:
            raise VMLost(str(lost)) from lost


def _joined(first: str, output: str) -> str:
    return f"{first}\n{output}" if output else first
