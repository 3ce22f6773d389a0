"""One attempt's hold on a desktop: the attached `DesktopEnv`, its working files, its recording and its log."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from typing import Any

import psutil
import requests

from rollout_tasks.environments.base import EnvironmentContext
from rollout_tasks.environments.osworld import library
from rollout_tasks.environments.osworld.commands import Action
from rollout_tasks.environments.osworld.desktop import Desktop, Outcome
from rollout_tasks.environments.osworld.downloads import DownloadCache
from rollout_tasks.environments.osworld.scoring import score
from rollout_tasks.environments.osworld.screenshot import size_of
from rollout_tasks.environments.osworld.settling import settle, shows_something
from rollout_tasks.environments.osworld.sight import Sight, sight
from rollout_tasks.environments.osworld.task import metrics_of
from rollout_tasks.environments.osworld.task_files import place_files
from rollout_tasks.environments.osworld.wire import VMUnreachable
from rollout_tasks.environments.osworld.wishes import PROXY_VARIABLE, wants_proxy
from rollout_tasks.temporary import TemporaryFolder, programs_use

logger = logging.getLogger(__name__)

RECORDING_NAME = "recording.mp4"
LOG_NAME = "desktop-env.log"


class Session:
    """From the attempt's reset to its close."""

    def __init__(self, context: EnvironmentContext, task: Mapping[str, Any]) -> None:
        """Touches nothing yet."""
        self._context = context
        self._config = context.config.desktop
        self._task = task
        self._directory = context.directory
        self._recording = False
        self._seen: Mapping[str, Any] = {}
        self._desktop: Desktop
        self._opened = contextlib.ExitStack()

    def begin(self) -> None:
        """Sets the task up, and starts the recording.

        Raises:
            RuntimeError: The VM is not the one the run describes, a setup step failed, or the evaluator needs what is not
                installed.
            DownloadError: A file of the task cannot be had.
            VMUnreachable: The VM is gone.
        """
        if library.OCR_METRIC in metrics_of(self._task["evaluator"]) and not library.has_ocr():
            raise RuntimeError(library.OCR_MISSING)
        self._attach()
        before = self._checked_screen()
        place_files(self._task, self._workspace, DownloadCache())
        self._seen = self._desktop.set_up(self._task)
        if shows_something(self._task):
            settle(self._desktop.controller.get_screenshot, before)
            self._seen = self._desktop.look(0)
        if self._config.enable_recording:
            with self._recording_may_fail("starting"):
                self._desktop.controller.start_recording()
                self._recording = True

    def sight(self) -> Sight:
        """What was seen last."""
        return sight(self._seen, self._config)

    def act(self, action: Action | None, pause: float) -> Outcome:
        """Carries out an action, or only looks.

        Raises:
            VMUnreachable: The VM is gone.
        """
        if action is None:
            self._seen = self._desktop.look(pause)
            return Outcome(ok=True)
        self._seen, outcome = self._desktop.act(action, pause)
        return outcome

    def score(self) -> float:
        """Ends the recording and evaluates."""
        self._end_recording()
        return score(self._desktop, self._task)

    def close(self) -> None:
        """Ends the recording, lets go of the VM, ends what evaluators left running, removes the working files."""
        with self._opened:
            self._end_recording()

    def _attach(self) -> None:
        vm = self._context.vm
        if vm is None:
            raise RuntimeError("a desktop task needs a VM")
        if not vm.ports.get("control"):
            raise RuntimeError(f"{vm.vm_id} is no desktop: VMs of its provider have nothing to connect to")
        proxy = wants_proxy(self._task)
        if self._task["proxy"] and not proxy:
            logger.info("the task asks for a proxy and goes without: %s is not set", PROXY_VARIABLE)
        workspace = TemporaryFolder("osworld-")
        self._opened.callback(workspace.remove)
        self._workspace = workspace.path
        self._opened.enter_context(programs_use(workspace.path / "tmp"))  # a browser's driver leaves some
        self._opened.callback(_end_drivers)
        self._desktop = Desktop(vm.address, vm.ports, self._config, workspace.path, proxy=proxy)
        self._opened.callback(self._desktop.close)
        if self._context.config.save_results and not proxy:  # its log would have the proxies' passwords
            self._opened.enter_context(self._logged())

    def _checked_screen(self) -> bytes:
        """The screen before the task; the run's coordinates mean nothing on one of another size."""
        picture = self._desktop.screenshot()
        wanted = (self._config.screen_width, self._config.screen_height)
        found = size_of(picture)
        if found != wanted:
            raise RuntimeError(
                f"the VM's screen has {found[0]}x{found[1]} pixels, the run's {wanted[0]}x{wanted[1]}:"
                f" say --screen-width {found[0]} --screen-height {found[1]}, or change the VMs"
            )
        return picture

    def _end_recording(self) -> None:
        if not self._recording:
            return
        self._recording = False
        if self._desktop.wire.lost:
            return
        with self._recording_may_fail("ending"):
            self._directory.mkdir(parents=True, exist_ok=True)
            self._desktop.controller.end_recording(str(self._directory / RECORDING_NAME))

    @contextlib.contextmanager
    def _recording_may_fail(self, doing: str) -> Iterator[None]:
        try:
            yield
        except (RuntimeError, OSError, requests.RequestException, VMUnreachable) as error:
            logger.warning("%s the recording failed: %s", doing, error)

    @contextlib.contextmanager
    def _logged(self) -> Iterator[None]:
        """Has what desktop-env does in this attempt written into the attempt's folder."""
        self._directory.mkdir(parents=True, exist_ok=True)
        handler = logging.FileHandler(self._directory / LOG_NAME, mode="w", encoding="utf-8", delay=True)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        package = logging.getLogger(library.LOGGER)
        package.setLevel(logging.INFO)
        package.addHandler(handler)
        try:
            yield
        finally:
            package.removeHandler(handler)
            handler.close()
            if said := self._desktop.said.getvalue():
                with (self._directory / LOG_NAME).open("a", encoding="utf-8") as log:
                    log.write(f"\nPrinted:\n{said}")


def _end_drivers() -> None:
    """Ends the browser drivers that an interrupted evaluator left behind."""
    for process in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            if any("playwright" in word for word in process.cmdline()):
                process.kill()
                process.wait(1)
