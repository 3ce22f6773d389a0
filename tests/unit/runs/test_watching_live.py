"""Looking at a run until it is over: what is printed when, and when looking ends. The clock is the tests' own."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from rich.console import Console

from benchmark.items import Item
from rollout_tasks.config import RunConfig
from rollout_tasks.errors import FailureClass, UserError
from rollout_tasks.runs import presence
from rollout_tasks.runs import watch as module
from rollout_tasks.runs.progress import progress_of
from rollout_tasks.runs.store import RunStore
from rollout_tasks.runs.submission_store import reserve
from rollout_tasks.runs.verdict import Verdict
from rollout_tasks.runs.waits import pool_state, pool_status
from rollout_tasks.runs.watch import describe, watch
from tests.conftest import free_port
from vm_pool.pool import VMPool
from vm_pool.states import Endpoint

RUN = "night-1"
KEY = f"{{run:{RUN}}}"
QUEUE = "rollout.light"
NOBODY = f"no worker serves {QUEUE}: start one with `celery -A rollout_tasks worker`"


class Clock:
    """Goes on by what is slept; does what is due then."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []
        self.due: dict[float, Callable[[], object]] = {}

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        for at in [at for at in self.due if at <= self.now - 1000.0]:
            self.due.pop(at)()


class Screen:
    """What is printed, with the second at which it was; no terminal."""

    def __init__(self, clock: Clock, width: int = 60) -> None:
        self.clock = clock
        self.lines: list[tuple[float, str]] = []
        self.console = Console(file=self, width=width)  # type: ignore[arg-type]
        self._begun = ""

    def write(self, text: str) -> int:
        self._begun += text
        *whole, self._begun = self._begun.split("\n")
        self.lines += [(self.clock.now - 1000.0, line) for line in whole]
        return len(text)

    def flush(self) -> None:
        pass

    def isatty(self) -> bool:
        return False


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.fixture
def screen(clock: Clock) -> Screen:
    return Screen(clock)


@pytest.fixture
def store(redis_url: str) -> RunStore:
    client = redis.Redis.from_url(redis_url, decode_responses=True, retry=Retry(NoBackoff(), 0))
    store = RunStore(client, silent_seconds=60)
    stored = reserve(store.client, RUN, RunConfig(), "/nowhere", 3, [QUEUE])
    stored.add_items([Item(name, "?") for name in "abc"], ["a#0", "b#0", "c#0"])
    assert stored.everything_sent()
    return store


def finish(store: RunStore, rollout_id: str, failure: FailureClass | None = None) -> None:
    store.claim(RUN, rollout_id, {"token": rollout_id})
    verdict = Verdict(rollout_id, 1, "failed" if failure else "completed", failure_class=failure)
    assert store.commit(RUN, verdict, rollout_id).outcome == "ok"


def over(store: RunStore, state: str = "done") -> None:
    store.client.hset(KEY, "state", state)


def test_a_line_comes_at_once_and_then_every_ten_seconds(store: RunStore, clock: Clock, screen: Screen) -> None:
    presence.announce(store.client, "one@here", [QUEUE])
    clock.due = {
        4.0: lambda: finish(store, "a#0"),
        12.0: lambda: finish(store, "b#0", FailureClass.TIMEOUT),
        25.0: lambda: over(store),
    }
    looks: list[float] = []

    progress = watch(store, RUN, screen.console, pool=None, alive=lambda: looks.append(clock.now - 1000.0))

    assert (progress.state, progress.committed) == ("done", 2)
    assert screen.lines == [
        (0.0, "running: 0/3 rollouts · 0 running"),
        (10.5, "running: 1/3 rollouts · 0 running · 0.1/s, about 21 s left"),
        (21.0, "running: 2/3 rollouts · 0 running · 0.1/s, about 10 s left · timeout: 1"),
    ]
    assert set(clock.slept) == {0.5}
    assert clock.now == 1025.0
    assert looks == [number / 2 for number in range(50)]


def test_nobody_is_missed_while_workers_may_still_be_starting(store: RunStore, clock: Clock, screen: Screen) -> None:
    clock.due = {32.0: lambda: over(store, "cancelled")}

    assert watch(store, RUN, screen.console, pool=None).state == "cancelled"

    waiting = "running: 0/3 rollouts · 0 running"
    assert screen.lines == [
        (0.0, waiting),
        (10.5, waiting),
        (21.0, f"{waiting} · {NOBODY}"),
        (31.5, screen.lines[-1][1]),
    ]


def test_what_was_started_for_a_run_is_waited_for_from_the_beginning(
    store: RunStore, clock: Clock, screen: Screen
) -> None:
    def worker() -> None:
        presence.announce(store.client, "one@here", [QUEUE])

    def vm() -> None:
        VMPool(store.client, "mine").register("vm-0", Endpoint("127.0.0.1", {"control": 1}))

    clock.due = {2.0: worker, 12.0: vm, 25.0: lambda: over(store)}

    watch(store, RUN, screen.console, pool="mine", own_worker=True)

    waiting = "running: 0/3 rollouts · 0 running"
    assert screen.lines == [
        (0.0, f"{waiting} · its worker is starting"),
        (10.5, f"{waiting} · the host of its VMs is starting"),
        (21.0, f"{waiting} · VMs 1 free"),
    ]


def fall_silent(store: RunStore, seconds: float) -> None:
    """As if those who hold rollouts had been killed so long ago."""
    for rollout_id in store.client.zrange(f"{KEY}:alive", 0, -1):
        store.client.zincrby(f"{KEY}:alive", -seconds, rollout_id)


def test_what_a_killed_worker_holds_is_told_with_when_it_goes_on_and_no_invented_time_left(
    store: RunStore, clock: Clock, screen: Screen
) -> None:
    presence.announce(store.client, "another@here", [QUEUE])
    store.claim(RUN, "c#0", {"token": "killed"})
    clock.due = {
        4.0: lambda: finish(store, "a#0"),
        8.0: lambda: finish(store, "b#0"),
        9.0: lambda: fall_silent(store, 70),
        15.0: lambda: store.claim(RUN, "c#0", {"token": "another"}),
        25.0: lambda: over(store),
    }

    watch(store, RUN, screen.console, pool=None)

    assert [line for _, line in screen.lines[::2]] == [
        "running: 0/3 rollouts · 1 running",
        "running: 2/3 rollouts · 1 running · 0.1/s, about 10 s left",
    ]
    said = re.fullmatch(
        r"running: 2/3 rollouts · 0 running · 1 rollout is held by a worker that has gone silent;"
        r" another worker gets it in (\d+) s at the latest",
        screen.lines[1][1],
    )
    assert said, screen.lines
    assert 30 <= int(said[1]) <= 55


@pytest.mark.parametrize("state", ["done", "cancelled", "half_submitted"])
def test_looking_ends_with_the_run(store: RunStore, clock: Clock, screen: Screen, state: str) -> None:
    over(store, state)

    assert watch(store, RUN, screen.console, pool=None).state == state
    assert (screen.lines, clock.slept) == ([], [])


@pytest.mark.parametrize("state", ["submitting", "draining", "cancelling", "finalizing"])
def test_looking_goes_on_while_the_run_does(store: RunStore, clock: Clock, screen: Screen, state: str) -> None:
    over(store, state)
    clock.due = {3.0: lambda: over(store)}

    watch(store, RUN, screen.console, pool=None)

    assert clock.now == 1003.0


def test_looking_ends_when_it_was_told_to(store: RunStore, clock: Clock, screen: Screen) -> None:
    clock.due = {1.0: lambda: finish(store, "a#0")}

    progress = watch(store, RUN, screen.console, pool=None, until=lambda progress: progress.committed == 1)

    assert (progress.state, progress.committed, clock.now) == ("running", 1, 1001.0)


def test_looking_ends_with_whoever_makes_it_worth_while(store: RunStore, clock: Clock, screen: Screen) -> None:
    def dead() -> None:
        raise UserError("the worker has ended")

    with pytest.raises(UserError, match="the worker has ended"):
        watch(store, RUN, screen.console, pool=None, alive=dead)
    away(store)
    with pytest.raises(UserError, match="the worker has ended"):
        watch(store, RUN, screen.console, pool=None, alive=dead)
    assert screen.lines == []


def test_a_run_that_redis_does_not_know_is_told(store: RunStore, clock: Clock, screen: Screen) -> None:
    said = r"^Redis does not know run 'other'; if its data was lost, rollouts resume other rebuilds it$"
    with pytest.raises(UserError, match=said):
        watch(store, "other", screen.console, pool=None)


def reach(store: RunStore, port: int) -> None:
    """From now on Redis is looked for there."""
    pool = store.client.connection_pool
    pool.disconnect()
    pool.connection_kwargs["port"] = port
    for connection in pool._available_connections:
        connection.port = port


def away(store: RunStore) -> None:
    reach(store, free_port())


def test_a_redis_that_is_away_is_waited_for_each_time_and_told_once_each_time(
    store: RunStore, clock: Clock, screen: Screen
) -> None:
    port = store.client.connection_pool.connection_kwargs["port"]
    presence.announce(store.client, "one@here", [QUEUE])
    for at, what in ((5.0, away), (604.0, reach), (605.0, away), (1204.0, reach)):
        clock.due[at] = lambda what=what: what(store, *([port] if what is reach else []))
    clock.due[1206.0] = lambda: over(store)

    assert watch(store, RUN, screen.console, pool="none").state == "done"

    assert [(at, line.partition(":")[0]) for at, line in screen.lines] == [
        (0.0, "running"),
        (5.0, "Redis does not answer; still trying"),
        (604.0, "running"),
        (605.0, "Redis does not answer; still trying"),
        (1204.0, "running"),
    ]
    assert set(clock.slept) == {0.5}


def test_a_redis_that_stays_away_is_given_up_after_ten_minutes(store: RunStore, clock: Clock, screen: Screen) -> None:
    away(store)

    with pytest.raises(UserError) as told:
        watch(store, RUN, screen.console, pool=None)

    assert clock.now == 1600.5
    said = str(told.value)
    assert said.startswith("Redis has not answered for 600 s (")
    assert said.endswith("); the run goes on once it is back: see rollouts watch night-1")


def test_a_terminal_shows_a_picture_and_leaves_no_line(
    store: RunStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    console = Console(file=io.StringIO(), width=100, force_terminal=True, color_system=None)
    clock.due = {30.0: lambda: over(store)}

    watch(store, RUN, console, pool=None)

    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "Run night-1: running" in shown
    assert "0 of 3" in shown
    assert NOBODY[:40] in shown
    assert "0/3 rollouts" not in shown
    assert shown.endswith("\x1b[2K"), "it is wiped out in the end"


def test_a_terminal_that_cannot_draw_shows_lines(
    store: RunStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    console = Console(file=io.StringIO(), width=100, force_terminal=True, color_system=None)
    clock.due = {30.0: lambda: over(store)}

    watch(store, RUN, console, pool=None)

    assert "0/3 rollouts" in console.file.getvalue()  # type: ignore[attr-defined]


def test_vms_are_counted_by_state_with_those_who_wait(store: RunStore) -> None:
    pool = VMPool(store.client, "mine")
    assert pool_state(pool_status(store.client, "mine")) == {}
    pool.register("vm-0", Endpoint("127.0.0.1", {"control": 1}))
    lease = pool.acquire("somebody", heartbeat=False)
    try:
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(pool.acquire, "somebody else", timeout=60.0, heartbeat=False)
            while not pool.status().waiters:
                assert not waiting.done()
            found = pool_state(pool_status(store.client, "mine"))
            lease.release()
            waiting.result().release()
    finally:
        pool.close()

    assert found == {"leased": 1, "waited for": 1}
    assert "waited for" not in pool_state(pool_status(store.client, "mine"))


def test_a_pool_that_cannot_be_seen_shows_no_vms(store: RunStore) -> None:
    store.client.set("{pool:odd}:vms", "no list of VMs")
    assert pool_status(store.client, "odd") is None
    away(store)
    assert pool_state(pool_status(store.client, "mine")) == {}


def test_a_runs_progress_is_said_as_stored(store: RunStore) -> None:
    finish(store, "a#0", FailureClass.TIMEOUT)

    found = json.loads(json.dumps(describe(progress_of(store, RUN), vms={"free": 2})))

    assert found.pop("created") > 1_700_000_000
    assert found == {
        "run_id": RUN,
        "state": "running",
        "total": 3,
        "pending": 2,
        "committed": 1,
        "running": 0,
        "completed": 0,
        "failed": 1,
        "cancelled": 0,
        "failures": {"timeout": 1},
        "score_sum": 0.0,
        "cost": None,
        "queues": [QUEUE],
        "problem": "",
        "vms": {"free": 2},
    }
