"""A desktop that dies or freezes in the middle of things: noticed in time, and said to be lost."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import psutil
import pytest

from rollout_tasks.environments.base import VMLost
from rollout_tasks.environments.osworld import vm_client
from rollout_tasks.errors import EpisodeInterrupted, FailureClass
from rollout_tasks.interruption import Interruption
from tests.desktops import needs_local_desktops
from tests.integration.environments.osworld.conftest import Desk, Play

pytestmark = needs_local_desktops

Begin = Callable[..., Play]
WITHIN_SECONDS = 60.0
"""Far more than it takes; what is tested is that it ends at all, and how."""
PATIENCE_SECONDS = 15.0
"""How long a living desktop may take to say that it is there; a question that was asked just before it froze lasts as long."""


@pytest.fixture(autouse=True)
def thawed(desk: Desk, clean: None) -> Iterator[None]:
    yield
    for process in desk.processes:
        with contextlib.suppress(psutil.Error):
            process.send_signal(signal.SIGCONT)


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy desktop is asked often whether it is there, but may take its time to say so."""
    monkeypatch.setattr(vm_client, "SILENT_SECONDS", 1.0)
    monkeypatch.setattr(vm_client, "PROBE_SECONDS", PATIENCE_SECONDS)
    monkeypatch.setattr(vm_client, "CONNECT_SECONDS", PATIENCE_SECONDS)
    monkeypatch.setattr(vm_client, "ANSWER_SECONDS", dict(vm_client.ANSWER_SECONDS))


def lose_patience() -> None:
    """Nobody needs to wait for a desktop that is known to be gone. The fixture `impatience` undoes it."""
    vm_client.PROBE_SECONDS = vm_client.CONNECT_SECONDS = 1.0
    for path in ("/screenshot", "/terminal"):
        vm_client.ANSWER_SECONDS[path] = 2.0


def freeze(desk: Desk) -> None:
    for process in desk.processes:
        with contextlib.suppress(psutil.Error):
            process.suspend()
    lose_patience()


def kill_server(desk: Desk) -> None:
    for process in desk.processes:
        with contextlib.suppress(psutil.Error):
            process.kill()
    lose_patience()


BREAKDOWNS = pytest.mark.parametrize("breakdown", [freeze, pytest.param(kill_server, marks=pytest.mark.slow)])


in_this_process = pytest.mark.usefixtures("trusted")


@pytest.mark.slow
@in_this_process
@BREAKDOWNS
def test_before_the_reset(breakdown: Callable[[Desk], None], play: Begin, desk: Desk) -> None:
    breakdown(desk)
    with pytest.raises(VMLost, match="does not answer"):
        play()


@in_this_process
@BREAKDOWNS
def test_during_the_setup(breakdown: Callable[[Desk], None], play: Begin, desk: Desk) -> None:
    threading.Timer(2.0, breakdown, (desk,)).start()
    with pytest.raises(VMLost, match="does not answer"):
        play([{"type": "execute", "parameters": {"command": "sleep 100", "shell": True}}])


@pytest.mark.slow
def test_a_cell_sees_it_too(play: Begin, desk: Desk) -> None:
    playing = play(action_space="pyautogui", enable_recording=True)
    playing.act("desktop_execute_python_script", script="pass")
    kill_server(desk)
    with pytest.raises(VMLost, match="does not answer"):
        playing.do("desktop_execute_python_script", script="pass")
    playing.environment.close()
    assert not (playing.folder / "recording.mp4").exists()


@in_this_process
@pytest.mark.parametrize("breakdown", [freeze, kill_server])
def test_in_a_step(breakdown: Callable[[Desk], None], play: Begin, desk: Desk) -> None:
    playing = play(action_space="pyautogui")
    playing.act("desktop_execute_python_script", script="pass")
    breakdown(desk)
    with pytest.raises(VMLost, match="does not answer"):
        playing.do("desktop_execute_python_script", script="pass")


@in_this_process
@BREAKDOWNS
def test_during_the_evaluation(breakdown: Callable[[Desk], None], play: Begin, desk: Desk) -> None:
    evaluator = {
        "func": "exact_match",
        "result": {"type": "vm_command_line", "command": "sleep 100", "shell": True},
        "expected": {"type": "rule", "rules": {"expected": ""}},
    }
    playing = play(evaluator=evaluator)
    threading.Timer(1.0, breakdown, (desk,)).start()
    with pytest.raises(VMLost, match="does not answer"):
        playing.environment.evaluate()


@pytest.mark.slow
@in_this_process
@BREAKDOWNS
def test_while_an_evaluator_looks_into_the_browser(breakdown: Callable[[Desk], None], play: Begin, desk: Desk) -> None:
    page_info = {
        "postconfig": 3 * [{"type": "sleep", "parameters": {"seconds": 2}}],
        "func": "is_expected_url_pattern_match",
        "result": {"type": "page_info", "url": "http://127.0.0.1/"},
        "expected": {"type": "rule", "rules": {"expected": ["nowhere"]}},
    }
    playing = play(evaluator=page_info)
    threading.Timer(4.0, breakdown, (desk,)).start()
    with pytest.raises(VMLost, match="does not answer"):
        playing.environment.evaluate()


@in_this_process
def test_closing_a_lost_one_is_quick_and_quiet(play: Begin, desk: Desk) -> None:
    playing = play(enable_recording=True)
    freeze(desk)
    playing.environment.close()
    assert not (playing.folder / "recording.mp4").exists()


def scope(failure_class: FailureClass) -> AbstractContextManager[None]:
    """As long as the run lets a part of the attempt take."""
    return Interruption().scope(2.0, failure_class, "it took longer than 2 s", grace=WITHIN_SECONDS)


def test_a_setup_that_takes_too_long_is_a_failed_setup(play: Begin) -> None:
    began = time.monotonic()
    with (
        pytest.raises(EpisodeInterrupted, match="it took longer than 2 s") as raised,
        scope(FailureClass.ENV_SETUP),
    ):
        play([{"type": "execute", "parameters": {"command": "sleep 100", "shell": True}}])
    assert raised.value.failure_class is FailureClass.ENV_SETUP
    assert time.monotonic() - began < WITHIN_SECONDS


def test_an_evaluation_that_takes_too_long_is_a_failed_evaluation(play: Begin) -> None:
    slow = {
        "func": "exact_match",
        "result": {"type": "vm_command_line", "command": "sleep 100", "shell": True},
        "expected": {"type": "rule", "rules": {"expected": ""}},
    }
    playing = play(evaluator=slow)
    with (
        pytest.raises(EpisodeInterrupted, match="it took longer than 2 s") as raised,
        scope(FailureClass.ENV_EVALUATE),
    ):
        playing.environment.evaluate()
    assert raised.value.failure_class is FailureClass.ENV_EVALUATE


@in_this_process
def test_a_script_that_hangs_is_a_failed_result_on_a_living_desktop(
    play: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    playing = play(action_space="pyautogui")
    with monkeypatch.context() as meanwhile:
        meanwhile.setitem(vm_client.ANSWER_SECONDS, "/execute", 3.0)
        hanging = playing.do("desktop_execute_python_script", script="time.sleep(1000)")
    assert hanging.status == "failed"
    assert "Execution failed for desktop_execute_python_script: no answer" in hanging.response
    assert hanging.observation is not None
    playing.act("desktop_execute_python_script", script="pass")
