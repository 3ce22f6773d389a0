"""One attempt's session on a desktop: the attached `DesktopEnv`, its working files, its recording and its log.

Importing this module imports desktop-env. It runs in a cell (`cell_service.py`), or in the worker if tasks are trusted.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import psutil
import requests

from rollout_tasks.config import DesktopConfig
from rollout_tasks.environments.osworld import desktop_env_import
from rollout_tasks.environments.osworld.attached_desktop import Desktop
from rollout_tasks.environments.osworld.guest_python import Action
from rollout_tasks.environments.osworld.observation import desktop_view
from rollout_tasks.environments.osworld.scoring import score
from rollout_tasks.environments.osworld.screenshot import size_of
from rollout_tasks.environments.osworld.session_results import AttemptFiles, CommandOutcome, DesktopView
from rollout_tasks.environments.osworld.stable_screen import shows_something, wait_until_stable
from rollout_tasks.environments.osworld.task import metrics_of
from rollout_tasks.environments.osworld.task_files import place_files
from rollout_tasks.log_lines import keep_to_one_line
from rollout_tasks.temporary_files import TemporaryFolder, programs_use
from vm_pool.gate_relay import relayed
from vm_pool.states import Endpoint

logger = logging.getLogger(__name__)


class AttachedSession:
    """A session, from the attempt's reset to its close."""

    def __init__(
        self,
        config: DesktopConfig,
        endpoint: Endpoint,
        task: Mapping[str, Any],
        files: AttemptFiles,
        *,
        proxy: bool = False,
        keep_log: bool = True,
    ) -> None:
        """Touches nothing yet.

        Args:
            config: The run's desktop options.
            endpoint: Where the VM answers.
            task: As `task_config` makes it.
            files: The attempt's files.
            proxy: Whether the guest's browser goes through a proxy.
            keep_log: Whether desktop-env's log is kept.
        """
        self._config = config
        self._endpoint = endpoint
        self._task = task
        self._files = files
        self._proxy = proxy
        self._keep_log = keep_log
        self._recording = False
        self._desktop: Desktop
        self._opened = contextlib.ExitStack()

    def begin(self) -> DesktopView:
        """Sets the task up, starts the recording, and looks.

        Raises:
            RuntimeError: The VM is not as the run describes it, a setup step failed, or the evaluator needs a package
                that is not installed.
            VMUnreachable: The VM is gone.
        """
        if desktop_env_import.OCR_METRIC in metrics_of(self._task["evaluator"]) and not desktop_env_import.has_ocr():
            raise RuntimeError(desktop_env_import.OCR_MISSING)
        self._attach()
        before = self._checked_screen()
        place_files(self._task, self._workspace, self._files)
        seen = self._desktop.set_up(self._task)
        if shows_something(self._task):
            wait_until_stable(self._desktop.controller.get_screenshot, before)
            seen = self._desktop.look(0)
        if self._config.enable_recording:
            try:
                self._desktop.controller.start_recording()
                self._recording = True
            except (RuntimeError, requests.RequestException) as error:
                logger.warning("starting the recording failed: %s", error)
        return desktop_view(seen, self._config)

    def act(self, action: Action | None, pause: float) -> tuple[CommandOutcome, DesktopView]:
        """Carries out an action, or only waits, and looks.

        Raises:
            VMUnreachable: The VM is gone.
        """
        if action is None:
            outcome, seen = CommandOutcome(ok=True), self._desktop.look(pause)
        else:
            seen, outcome = self._desktop.act(action, pause)
        return outcome, desktop_view(seen, self._config)

    def take_recording(self, take: Callable[[bytes], object]) -> None:
        """Ends the recording, if there is one.

        Raises:
            RuntimeError: The guest refuses, or has recorded nothing.
            requests.RequestException: It does not answer.
            VMUnreachable: The VM is gone.
        """
        if self._recording and not self._desktop.vm.lost:
            self._recording = False
            take(self._desktop.controller.take_recording())

    def score(self) -> float:
        """Evaluates the task and returns its score.

        Raises:
            Exception: Anything that goes wrong in the evaluation.
            VMUnreachable: The VM is gone.
        """
        return score(self._desktop, self._task)

    def close(self) -> None:
        """Detaches from the VM, ends processes that evaluators left running, removes the working files."""
        self._opened.close()

    def _attach(self) -> None:
        workspace = TemporaryFolder("osworld-")
        self._opened.callback(workspace.remove)
        self._workspace = workspace.path
        self._opened.enter_context(programs_use(workspace.path / "tmp"))  # a browser's driver leaves temporary files
        self._opened.callback(_end_drivers)
        there = self._opened.enter_context(relayed(self._endpoint))
        self._desktop = Desktop(there.address, there.ports, self._config, workspace.path, proxy=self._proxy)
        self._opened.callback(self._desktop.close)
        if self._keep_log and not self._proxy:  # its log would contain the proxies' passwords
            self._opened.enter_context(self._logged())

    def _checked_screen(self) -> bytes:
        """Returns the screen before the task; raises if its size is not the run's, as coordinates would be wrong."""
        picture = self._desktop.screenshot()
        wanted = (self._config.screen_width, self._config.screen_height)
        found = size_of(picture)
        if found != wanted:
            raise RuntimeError(
                f"the VM's screen has {found[0]}x{found[1]} pixels, the run's {wanted[0]}x{wanted[1]}:"
                f" say --screen-width {found[0]} --screen-height {found[1]}, or change the VMs"
            )
        return picture

    @contextlib.contextmanager
    def _logged(self) -> Iterator[None]:
        """Keeps desktop-env's log of this attempt, and what it prints, with the attempt."""
        try:
            with keeping_records(self._files):
                yield
        finally:
            if said := self._desktop.said.getvalue():
                self._files.log(f"\nPrinted:\n{said}")


@contextlib.contextmanager
def keeping_records(files: AttemptFiles) -> Iterator[None]:
    """Keeps what desktop-env logs with an attempt, one line for each record: pages choose part of it."""
    keep_to_one_line()  # in a cell, nothing else does
    handler = _Kept(files)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    package = logging.getLogger(desktop_env_import.LOGGER)
    package.setLevel(logging.INFO)
    package.addHandler(handler)
    try:
        yield
    finally:
        package.removeHandler(handler)


class _Kept(logging.Handler):
    """Writes records to an attempt's log."""

    def __init__(self, files: AttemptFiles) -> None:
        super().__init__()
        self._files = files

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler`."""
        self._files.log(f"{self.format(record)}\n")


def _end_drivers() -> None:
    """Ends browser drivers that an interrupted evaluator left. A cell sees no processes, but its own end with it."""
    with contextlib.suppress(psutil.Error, OSError):
        for process in psutil.Process().children():
            with contextlib.suppress(psutil.Error):
                if any("playwright" in word for word in process.cmdline()):
                    process.kill()
                    process.wait(1)
