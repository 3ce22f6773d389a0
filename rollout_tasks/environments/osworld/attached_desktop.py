"""desktop-env's `DesktopEnv` on a VM that already runs and that its host manages: never boots, reverts or stops it.

Importing this module imports desktop-env. Errors that desktop-env hides are raised here: `VMUnreachable` if the VM is
gone, plain errors otherwise.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import requests

from rollout_tasks.config import DesktopConfig
from rollout_tasks.environments.osworld import desktop_env_import
from rollout_tasks.environments.osworld.browser import stay_with_the_guest
from rollout_tasks.environments.osworld.guest_python import Action, command_for
from rollout_tasks.environments.osworld.pending_saves import awaiting_saves
from rollout_tasks.environments.osworld.screenshot import as_png
from rollout_tasks.environments.osworld.session_results import CommandOutcome
from rollout_tasks.environments.osworld.vm_client import REQUESTS, ErrorResponse, VMClient, install

_library = desktop_env_import.desktop_env()
_construction = threading.Lock()
"""One construction at a time: it replaces desktop-env's factory of providers, a global of its module."""

SETUP_PATHS = frozenset(
    {"/setup/launch", "/setup/execute", "/setup/open_file", "/setup/upload", "/setup/change_wallpaper"}
)
"""An error answer here means that a setup step failed; desktop-env would only log it and go on."""


class Controller(_library.PythonController):  # type: ignore[misc,name-defined]
    """Sends requests to the guest. Nothing that acts is sent twice."""

    def __init__(self, address: str, port: int) -> None:
        super().__init__(vm_ip=address, server_port=port)
        self.retry_times = 2
        self.retry_interval = 1
        self.outcome = CommandOutcome(ok=True)
        self.file_answers: list[int | None] = []
        """The HTTP status of each file that was asked for; None where no answer came."""
        self.unanswered: requests.RequestException | None = None
        """Why the last file that was not answered was not, as desktop-env may hide it."""

    def execute_action(self, action: Action) -> None:
        """Carries out an action of computer_13; WAIT, DONE and FAIL have nothing to carry out."""
        if isinstance(action, dict):
            self.execute_python_command(command_for(action))

    def execute_python_command(self, command: str) -> dict[str, Any]:
        """Runs Python in the guest, once.

        Returns:
            The server's answer (`status`, `output`, `error`, `returncode`); one of the same shape if no answer came.
        """
        body = {"command": ["python", "-c", self.pkgs_prefix.format(command=command)], "shell": False}
        try:
            response = REQUESTS.post(f"{self.http_server}/execute", json=body)
            answer = dict(response.json())
        except (requests.RequestException, ValueError) as error:
            answer = {"status": "error", "message": f"no answer: {error}"}
        failed = answer.get("status") != "success" or answer.get("returncode", 0) != 0
        output, problem = str(answer.get("output") or ""), str(answer.get("error") or answer.get("message") or "")
        self.outcome = CommandOutcome(not failed, output, problem)
        return {"returncode": -1 if failed else 0, **answer, "output": output, "error": problem}

    def get_file(self, file_path: str) -> bytes | None:
        """Returns a file of the guest; None if it does not exist. Asks once: asking again would not change that."""
        self.file_answers.append(None)
        try:
            response = REQUESTS.post(f"{self.http_server}/file", data={"file_path": file_path})
        except (requests.ConnectionError, requests.Timeout) as error:
            self.unanswered = error
            raise
        self.file_answers[-1] = response.status_code
        return bytes(response.content) if response.status_code == 200 else None

    def start_recording(self) -> None:
        """Starts the recording.

        Raises:
            RuntimeError: The guest refuses.
            requests.RequestException: It does not answer.
        """
        _accepted(REQUESTS.post(f"{self.http_server}/start_recording"), "starting")

    def take_recording(self) -> bytes:
        """Ends the recording and returns it.

        Raises:
            RuntimeError: The guest refuses, or has recorded nothing.
            requests.RequestException: It does not answer.
        """
        answer = _accepted(REQUESTS.post(f"{self.http_server}/end_recording"), "ending")
        if not answer.content:
            raise RuntimeError("the guest recorded nothing")
        return bytes(answer.content)


class Desktop(_library.DesktopEnv):  # type: ignore[misc,name-defined]
    """A `DesktopEnv` for one episode.

    Args:
        address: Where the VM answers.
        ports: Port by purpose: ``control``, ``chromium``, ``vnc``, ``vlc``.
        config: The run's desktop options.
        cache_dir: The attempt's own folder for the task's files.
        proxy: Whether the guest's browser goes through a proxy if a task wants one.
    """

    def __init__(
        self, address: str, ports: Mapping[str, int], config: DesktopConfig, cache_dir: Path, *, proxy: bool = False
    ) -> None:
        self.vm = VMClient(address, ports["control"], list(ports.values()))
        with _construction, _provider(_Attached(address, ports)):
            super().__init__(
                provider_name="docker",
                path_to_vm="attached",
                action_space=config.action_space,
                cache_dir=str(cache_dir),
                screen_size=(config.screen_width, config.screen_height),
                headless=config.headless,
                require_a11y_tree=config.require_a11y_tree and config.observation_type != "screenshot",
                require_terminal=config.require_terminal,
                os_type=config.os_type,
                enable_proxy=proxy,
                client_password=config.client_password,
            )
        self.controller = Controller(address, ports["control"])
        install()
        stay_with_the_guest()
        self.vm.open()
        self.said = io.StringIO()
        """What desktop-env printed."""

    @property
    def is_environment_used(self) -> bool:
        """Always False: desktop-env would revert a used environment, but the VM's host does that."""
        return False

    @is_environment_used.setter
    def is_environment_used(self, used: bool) -> None:
        pass

    def set_up(self, task: Mapping[str, Any]) -> Mapping[str, Any]:
        """Brings the VM to the task's start and observes it.

        Raises:
            RuntimeError: A step failed; the message names it.
            VMUnreachable: The VM is gone.
        """
        self.vm.error_responses.clear()
        self.vm.must_accept = SETUP_PATHS
        with _checked_afterwards(self._check_setup):
            try:
                with self._quietly():
                    known = dict(task) if self.os_type == "Windows" else awaiting_saves(task)
                    observation: Mapping[str, Any] = self.reset(task_config=known)
            finally:
                self.vm.must_accept = frozenset()
        return self._seen(observation)

    def act(self, action: Action, pause: float) -> tuple[Mapping[str, Any], CommandOutcome]:
        """Carries out one action and observes the result after `pause` seconds.

        Raises:
            VMUnreachable: The VM is gone.
        """
        self.controller.outcome = CommandOutcome(ok=True)
        if action == "WAIT":
            pause /= 2  # desktop-env sleeps for the action, and again before it looks
        elif action not in ("DONE", "FAIL") and self.action_space != "computer_13":
            action = command_for(action)
        with self._quietly():
            observation, _reward, _done, _info = self.step(action, pause=pause)
        return self._seen(observation), self.controller.outcome

    def screenshot(self) -> bytes:
        """Returns the screen as it is now.

        Raises:
            VMUnreachable: The VM is gone.
        """
        picture: bytes | None = self.controller.get_screenshot()
        return self._seen({"screenshot": picture})["screenshot"]  # type: ignore[no-any-return]

    def look(self, pause: float) -> Mapping[str, Any]:
        """Observes without acting.

        Raises:
            VMUnreachable: The VM is gone.
        """
        time.sleep(pause)
        with self._quietly():
            observation: Mapping[str, Any] = self._get_obs()
        return self._seen(observation)

    def score(self) -> Any:
        """Returns the evaluator's score if the VM answers until the end: some getters take a lost VM for an answer.

        Raises:
            VMUnreachable: The VM is gone.
        """
        with self._quietly():
            score = self.evaluate()
            self.vm.probe("it was gone at the end of the evaluation")
            return score

    def close(self) -> None:
        """Detaches from the VM, which stays as it is."""
        self.vm.close()

    def _check_setup(self) -> None:
        """Raises if the guest refused a step, even if desktop-env went on."""
        refused = [response for response in self.vm.error_responses if response.path in SETUP_PATHS]
        if refused and not self.vm.lost:
            raise RuntimeError(f"the guest refused a setup step: {_sentence(refused)}")

    def _seen(self, observation: Mapping[str, Any]) -> Mapping[str, Any]:
        if observation["screenshot"] is None:
            self.vm.lose("it gives no screenshot")
        try:
            return {**observation, "screenshot": as_png(observation["screenshot"])}
        except ValueError as error:
            self.vm.distrust(str(error))
            raise

    @contextmanager
    def _quietly(self) -> Iterator[None]:
        """Keeps desktop-env's output out of the worker's log, and returns to the working folder."""
        folder = Path.cwd()
        with _checked_afterwards(self.vm.check):
            try:
                with contextlib.redirect_stdout(self.said), contextlib.redirect_stderr(self.said):
                    yield
            finally:
                os.chdir(folder)


@contextmanager
def _checked_afterwards(check: Callable[[], None]) -> Iterator[None]:
    """Checks something after the block, whose own error gives way to the check's; not if it is interrupted."""
    try:
        yield
    except Exception:
        check()
        raise
    check()


class _Attached:
    """Manager and provider, for desktop-env, of a VM that its host manages."""

    def __init__(self, address: str, ports: Mapping[str, int]) -> None:
        self._endpoint = ":".join([address, *(str(ports[name]) for name in ("control", "chromium", "vnc", "vlc"))])

    def start_emulator(self, *_arguments: object) -> None:
        """Does nothing: the VM already runs."""

    def get_ip_address(self, _path: str) -> str:
        """Returns address and ports in the form of desktop-env's own Docker provider."""
        return self._endpoint

    def stop_emulator(self, *_arguments: object) -> None:
        """Does nothing: the VM's host stops it."""

    def revert_to_snapshot(self, *_arguments: object) -> str:
        """Always raises: the VM's host reverts it."""
        raise RuntimeError("a leased VM is reverted by its host, never by a task")


@contextmanager
def _provider(attached: _Attached) -> Iterator[None]:
    factory: Callable[..., object] = _library.create_vm_manager_and_provider
    _library.create_vm_manager_and_provider = lambda *_arguments, **_options: (attached, attached)
    try:
        yield
    finally:
        _library.create_vm_manager_and_provider = factory


def _accepted(response: requests.Response, doing: str) -> requests.Response:
    if response.status_code != 200:
        raise RuntimeError(f"{doing} the recording: HTTP {response.status_code}: {response.text[:200]}")
    return response


def _sentence(refused: Sequence[ErrorResponse]) -> str:
    first = refused[0]
    more = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
    return f"{first.path} answered HTTP {first.status}: {_said(first.body)}{more}"


def _said(body: str) -> str:
    """Returns the message in an error's body, which the guest's own server sends as JSON."""
    with contextlib.suppress(ValueError, AttributeError, RecursionError):
        message = json.loads(body).get("message")
        body = message if isinstance(message, str) else body
    return " ".join(body.split())[:300]
