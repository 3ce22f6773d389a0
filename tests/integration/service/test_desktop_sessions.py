"""Sessions of programs outside a rollout: calls may be repeated, none touches a VM without a lease, nothing is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from benchmark.items import Item
from rollout_tasks.config import parse_config
from rollout_tasks.errors import FailureClass, UserError
from rollout_tasks.redis_client import connect
from rollout_tasks.service import session_ends
from rollout_tasks.service.desktop_sessions import DesktopSessions
from rollout_tasks.service.session_results import SessionEnded, SessionRefused
from tests.conftest import REPOSITORY
from tests.virtual_machines import wait_until
from vm_pool.pool import VMPool
from vm_pool.states import Endpoint, VMState

TTL = 2.0
ITEMS = [Item("one", "Do the work.", env_config={"env_mode": "simulated"}), Item("two", "Do it, too.")]
QUICK = {"seconds": [0, 0], "steps": 3}


def config(**changes: Any) -> Any:
    values = {
        "env_mode": "simulated",
        "simulated": {**QUICK, **changes.pop("simulated", {})},
        "vm": {"wait_seconds": 20, **changes.pop("vm", {})},
        "limits": {"max_turns": 10, "max_seconds": 60, **changes.pop("limits", {})},
    }
    return parse_config({**values, **changes})


@pytest.fixture
def pool(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[VMPool]:
    monkeypatch.setenv("ROLLOUT_REDIS_URL", redis_url)
    monkeypatch.setenv("ROLLOUT_LEASE_TTL", str(TTL))
    with connect(tries=1, url=redis_url) as client:
        pool = VMPool(client)
        pool.register("vm-1", Endpoint("127.0.0.1", {}))
        yield pool
        pool.close()


class Opened:
    """Sessions that are closed with the test."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._opened: list[DesktopSessions] = []

    def __call__(self, *, most: int = 8, silent_seconds: float = 60.0, **changes: Any) -> DesktopSessions:
        made = DesktopSessions(config(**changes), ITEMS, self._folder, most=most, silent_seconds=silent_seconds)
        self._opened.append(made)
        return made

    def close(self) -> None:
        for one in self._opened:
            one.close()


@pytest.fixture
def opened(tmp_path: Path, pool: VMPool) -> Iterator[Opened]:
    made = Opened(tmp_path / "sessions")
    yield made
    made.close()
    assert [vm.state for vm in pool.status().vms] == [VMState.FREE] * len(pool.status().vms)


def is_free(pool: VMPool, vm_id: str = "vm-1") -> bool:
    return {vm.vm_id: vm.state for vm in pool.status().vms}[vm_id] is VMState.FREE


def test_a_client_reaches_no_vm_that_is_evaluated_or_given_back(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = opened()
    evaluated = sessions.acquire("one")
    closed = []
    send = evaluated._commands.send
    monkeypatch.setattr(evaluated._commands, "send", lambda frame: closed.append(evaluated.closed) or send(frame))  # type: ignore[func-returns-value]
    assert not evaluated.closed
    sessions.evaluate(evaluated.id, evaluated.fence or 0)
    assert closed == [True]
    killed = sessions.acquire("one")
    give_back = session_ends.give_back
    monkeypatch.setattr(
        session_ends,
        "give_back",
        lambda session, pool: closed.append(session.closed) or give_back(session, pool),  # type: ignore[func-returns-value]
    )
    killed.kill()
    assert killed.wait_until_ended(20)
    assert closed == [True, True]
    expired = opened(limits={"max_seconds": 1}).acquire("one")
    wait_until(lambda: expired.closed, seconds=20)


def test_a_desktop_whose_ports_are_lent_is_not_recorded(opened: Opened) -> None:
    """Its client may record it, and a guest makes one recording at a time."""
    sessions = opened()
    lent, played = (sessions.begin(ITEMS[0], lends_ports=lends) for lends in (True, False))
    assert [one.order.config.desktop.enable_recording for one in (lent, played)] == [False, True]


def test_an_item_is_played_to_its_score(opened: Opened, pool: VMPool, tmp_path: Path) -> None:
    sessions = opened()
    session = sessions.acquire("one", session_id="mine")
    fence = session.fence
    assert fence is not None
    assert sessions.observe("mine", fence).text == "3 steps to do"
    assert [tool["function"]["name"] for tool in session.tools] == ["work"]
    steps = [sessions.act("mine", fence, "work", {}) for _ in range(3)]
    assert [step.response for step in steps] == ["2 steps left", "1 steps left", "0 steps left"]
    assert [step.over for step in steps] == [None, None, "done"]
    with pytest.raises(SessionRefused, match=r"the episode is over \(done\): evaluate it"):
        sessions.act("mine", fence, "work", {})
    end = sessions.evaluate("mine", fence)
    assert (end.score, end.reward, end.ending, end.turns, end.failure_class) == (1.0, 1.0, "done", 3, None)
    assert is_free(pool)
    assert sessions.evaluate("mine", fence) == end
    assert sessions.release("mine") is False
    with pytest.raises(SessionEnded, match="the session was evaluated and is over"):
        sessions.act("mine", fence, "work", {})
    record = sessions.record("mine")
    assert record["state"] == "ended"
    assert record["reward"] == 1.0
    assert record["files"] == ["session.json", "trajectory.jsonl"]
    lines = (tmp_path / "sessions" / "mine" / "trajectory.jsonl").read_text().splitlines()
    assert [json.loads(line)["kind"] for line in lines] == ["start", "observation", "step", "step", "step"]


def test_a_repeated_acquire_finds_its_session(opened: Opened, pool: VMPool) -> None:
    sessions = opened()
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda _: sessions.acquire("one", session_id="again"), range(4)))
    assert len({id(one) for one in found}) == 1
    assert len(sessions.known()) == 1
    with pytest.raises(SessionRefused, match="session again plays another item"):
        sessions.acquire("two", session_id="again")
    assert sessions.release("again") is True
    wait_until(lambda: is_free(pool))
    with pytest.raises(SessionEnded, match="its client released it") as ended:
        sessions.acquire("one", session_id="again")
    assert ended.value.failure_class is FailureClass.CANCELLED


def test_an_act_with_a_key_happens_once(opened: Opened) -> None:
    sessions = opened()
    session = sessions.acquire("one")
    fence = session.fence or 0
    first = sessions.act(session.id, fence, "work", {}, key="a")
    with ThreadPoolExecutor(4) as threads:
        again = list(threads.map(lambda _: sessions.act(session.id, fence, "work", {}, key="b"), range(4)))
    assert (first.response, {one.response for one in again}) == ("2 steps left", {"1 steps left"})
    with pytest.raises(SessionRefused, match="'a' was carried out before the last one"):
        sessions.act(session.id, fence, "work", {}, key="a")
    assert session.turn == 2


def test_a_call_needs_the_fence_of_the_lease(opened: Opened, pool: VMPool) -> None:
    sessions = opened()
    session = sessions.acquire("one")
    fence = session.fence or 0
    for call in (
        lambda: sessions.act(session.id, fence - 1, "work", {}),
        lambda: sessions.renew(session.id, fence + 1),
        lambda: sessions.observe(session.id, fence + 1),
        lambda: sessions.evaluate(session.id, fence + 1),
    ):
        with pytest.raises(SessionRefused, match="does not have the lease"):
            call()
    assert session.turn == 0
    pool.force_release("vm-1")
    session.wait_until_ended(20)
    with pytest.raises(SessionEnded, match="is over: its renewal was refused") as ended:
        sessions.act(session.id, fence, "work", {})
    assert ended.value.failure_class is FailureClass.LEASE_LOST
    end = sessions.evaluate(session.id, fence)
    assert (end.score, end.reward) == (None, None)


def test_wrong_calls_are_failed_steps(opened: Opened) -> None:
    sessions = opened()
    session = sessions.acquire("one")
    fence = session.fence or 0
    wrong = sessions.act(session.id, fence, "fly", {})
    assert (wrong.status, wrong.response, wrong.observation) == ("failed", "Tool 'fly' not found. Known: work.", None)
    wrong = sessions.act(session.id, fence, "work", {"hard": True})
    assert wrong.status == "failed"
    assert wrong.response.startswith("Validation failed for work")
    assert (wrong.turn, sessions.act(session.id, fence, "work", {}).response) == (2, "2 steps left")
    with pytest.raises(SessionRefused, match="the arguments are not JSON"):
        sessions.act(session.id, fence, "work", {"hard": float("nan")})


def test_an_agent_that_uses_up_its_turns_has_the_reward_0(opened: Opened) -> None:
    sessions = opened(limits={"max_turns": 2})
    session = sessions.acquire("one")
    fence = session.fence or 0
    assert [sessions.act(session.id, fence, "work", {}).over for _ in range(2)] == [None, "max_turns"]
    end = sessions.evaluate(session.id, fence)
    assert (end.score, end.reward, end.failure_class) == (None, 0.0, FailureClass.MAX_TURNS)


def test_an_agent_that_is_too_slow_has_the_reward_0(opened: Opened, pool: VMPool) -> None:
    sessions = opened(limits={"max_seconds": 1})
    session = sessions.acquire("one")
    assert session.wait_until_ended(20)
    end = sessions.evaluate(session.id, session.fence or 0)
    assert (end.reward, end.failure_class, end.error) == (0.0, FailureClass.TIMEOUT, "not finished within 1 s")
    assert is_free(pool)


def test_a_silent_client_loses_its_session(opened: Opened, pool: VMPool) -> None:
    sessions = opened(silent_seconds=1.5)
    silent, talking = sessions.acquire("one"), None
    wait_until(lambda: is_free(pool), seconds=10)
    with pytest.raises(SessionEnded, match=r"its client was silent for 1\.5 s"):
        sessions.act(silent.id, silent.fence or 0, "work", {})
    talking = sessions.acquire("one")
    until = time.monotonic() + 4
    while time.monotonic() < until:
        sessions.renew(talking.id, talking.fence or 0)
        time.sleep(0.2)
    assert talking.end is None


def test_as_many_play_as_there_are_vms_and_the_others_wait(opened: Opened, pool: VMPool) -> None:
    pool.register("vm-2", Endpoint("127.0.0.1", {}))
    sessions = opened(simulated={"seconds": [0.3, 0.3]})

    def play(number: int) -> float | None:
        session = sessions.acquire("one", index=number)
        fence = session.fence or 0
        while sessions.act(session.id, fence, "work", {}).over is None:
            assert sum(one["state"] == "ready" for one in sessions.known()) <= 2
        return sessions.evaluate(session.id, fence).reward

    with ThreadPoolExecutor(6) as threads:
        assert list(threads.map(play, range(6))) == [1.0] * 6


def test_waiting_for_a_vm_is_bounded_and_told(opened: Opened, pool: VMPool) -> None:
    sessions = opened(vm={"wait_seconds": 1}, most=2)
    sessions.acquire("one")
    with pytest.raises(SessionEnded, match=r"waiting for a VM: AcquireTimeout: .*place 1 in the queue of 1") as ended:
        sessions.acquire("two")
    assert ended.value.failure_class is FailureClass.ENV_SETUP


def test_there_are_no_more_sessions_than_there_may_be(opened: Opened) -> None:
    sessions = opened(most=1)
    session = sessions.acquire("one")
    with pytest.raises(SessionRefused, match="there are 1 sessions, the most at a time"):
        sessions.acquire("two")
    sessions.evaluate(session.id, session.fence or 0)
    assert sessions.acquire("two").ready


def test_a_session_that_waits_for_a_vm_can_be_released(opened: Opened, pool: VMPool) -> None:
    sessions = opened()
    sessions.acquire("one")
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(sessions.acquire, "two", session_id="waits")
        wait_until(lambda: pool.status().waiters, seconds=20)
        assert sessions.release("waits") is True
        with pytest.raises(SessionEnded, match="its client released it"):
            waiting.result(20)
    assert not pool.status().waiters


def test_what_cannot_be_set_up_says_why(opened: Opened, pool: VMPool) -> None:
    sessions = opened(simulated={"fail": "env_setup"})
    with pytest.raises(SessionEnded, match="simulated env_setup in attempt 1") as ended:
        sessions.acquire("one")
    assert ended.value.failure_class is FailureClass.ENV_SETUP
    assert is_free(pool)


def test_a_killed_session_process_gives_its_vm_back_at_once(opened: Opened, pool: VMPool) -> None:
    sessions = opened(simulated={"fail": "worker_lost"})
    session = sessions.acquire("one")
    with pytest.raises(SessionEnded, match="ended by itself") as ended:
        for _ in range(3):
            sessions.act(session.id, session.fence or 0, "work", {})
    assert ended.value.failure_class is FailureClass.WORKER_LOST
    assert is_free(pool)


def test_unknown_items_sessions_and_names_are_refused(opened: Opened) -> None:
    sessions = opened()
    with pytest.raises(SessionRefused, match="there is no item 'three'"):
        sessions.acquire("three")
    with pytest.raises(SessionRefused, match="a session's name has"):
        sessions.acquire("one", session_id="../up")
    with pytest.raises(SessionEnded, match="there is no session 'nobody'"):
        sessions.act("nobody", 1, "work", {})


def test_environments_without_a_score_of_their_own_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="environment 'math' gives no score itself"):
        DesktopSessions(parse_config({"env_mode": "math"}), [Item("sum", "1 + 1?", "2")], tmp_path, most=1)


PROGRAM = """
import sys, time
from pathlib import Path
from benchmark.items import Item
from rollout_tasks.config import parse_config
from rollout_tasks.service.desktop_sessions import DesktopSessions

if __name__ == "__main__":
    values = {"env_mode": "simulated", "simulated": {"seconds": [0, 0]}, "vm": {"wait_seconds": 20}}
    sessions = DesktopSessions(parse_config(values), [Item("one", "?")], Path(sys.argv[1]), most=2)
    sessions.acquire("one")
    print("plays", flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("everything", [False, True], ids=["the program", "all its processes"])
def test_a_killed_program_leaves_nothing(pool: VMPool, tmp_path: Path, everything: bool) -> None:
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "sessions")],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        env=dict(os.environ),
    )
    assert program.stdout is not None
    assert program.stdout.readline() == b"plays\n"
    below = psutil.Process(program.pid).children(recursive=True)
    assert len(below) >= 2
    assert not is_free(pool)
    for process in [program, *(below if everything else ())]:
        os.kill(process.pid, signal.SIGKILL)
    program.wait()
    wait_until(lambda: pool.reap() or is_free(pool), seconds=TTL + 5)
    wait_until(lambda: not any(process.is_running() for process in below), seconds=20)
