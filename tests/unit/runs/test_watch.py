"""What somebody who watches a run reads: a line, a picture, JSON; and how fast the run is said to be."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
import redis
from rich.console import Console

from rollout_tasks.runs import presence, waits, watch
from rollout_tasks.runs.states import Progress
from rollout_tasks.runs.store import RunStore
from rollout_tasks.runs.watch import Rate, describe, line

PROGRESS = Progress(
    run_id="night-1",
    state="running",
    total=10,
    pending=6,
    committed=4,
    running=2,
    completed=1,
    failed=2,
    cancelled=1,
    failures={"timeout": 2, "cancelled": 1},
    score_sum=0.5,
    created=1000.0,
    queues=("rollout.osworld",),
)
VMS = {"ready": 3, "resetting": 0, "waited for": 5}


class Clock:
    """A clock that stands still unless it is moved."""

    def __init__(self) -> None:
        self.now = 50.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(watch, "time", clock)
    return clock


def rate(clock: Clock, *seen: tuple[float, int]) -> Rate:
    found = Rate()
    for at, committed in seen:
        clock.now = at
        found.add(committed)
    return found


@pytest.mark.parametrize(
    ("seen", "per_second"),
    [
        ([], 0.0),
        ([(1, 5)], 0.0),
        ([(1, 5), (1, 9)], 0.0),
        ([(1, 5), (5, 5)], 0.0),
        ([(1, 5), (5, 7)], 0.5),
        ([(1, 5), (3, 6), (5, 9)], 1.0),
        ([(0, 0), (10, 90), (130, 210)], 1.0),  # just two minutes
        ([(0, 0), (10, 90), (131, 90), (140, 99)], 1.0),  # what is older than that is forgotten
        ([(0, 0), (1000, 500)], 0.5),  # unless nothing else was seen
    ],
)
def test_the_rate_is_that_of_the_last_two_minutes(
    clock: Clock, seen: list[tuple[float, int]], per_second: float
) -> None:
    assert rate(clock, *seen).per_second == pytest.approx(per_second)


def test_a_line_says_how_far_how_fast_and_what_failed(clock: Clock) -> None:
    assert line(PROGRESS, rate(clock, (0, 1), (6, 4)), VMS, "its worker is starting") == (
        "running: 4/10 rollouts · 2 running · 0.5/s, about 12 s left · timeout: 2 · cancelled: 1"
        " · VMs 3 ready, 5 waited for · its worker is starting"
    )


def test_a_line_leaves_out_what_there_is_not() -> None:
    assert line(replace(PROGRESS, failures={}), Rate(), {}) == "running: 4/10 rollouts · 2 running"


def test_what_it_cost_is_shown_where_it_is_known(clock: Clock) -> None:
    dear = replace(PROGRESS, cost=1.5)
    assert line(dear, Rate(), {}).startswith("running: 4/10 rollouts · 2 running · $1.50 · timeout: 2")
    assert picture(dear, rate(clock, (0, 1), (6, 4)), VMS, "")[3].split() == ["cost", "$1.50"]


def test_a_picture_says_the_same(clock: Clock) -> None:
    shown = picture(PROGRESS, rate(clock, (0, 1), (6, 4)), VMS, "its worker is starting")

    assert shown[0] == "Run night-1: running"
    assert [row.split(maxsplit=1)[0] for row in shown[1:]] == ["rollouts", "now", "failed", "VMs", "waiting"]
    assert shown[1].endswith("4 of 10")
    assert shown[1].count("━") == 16  # four tenths of the bar
    assert shown[2].split(maxsplit=1)[1].split("  ")[0] == "2 running"
    assert shown[2].endswith("0.50/s, 12 s left")
    assert shown[3].endswith("timeout 2, cancelled 1")
    assert shown[4].endswith("3 ready, 5 waited for")
    assert shown[5].endswith("its worker is starting")


def test_a_picture_leaves_out_what_there_is_not() -> None:
    shown = picture(replace(PROGRESS, failures={}, total=0, committed=0), Rate(), {}, "")

    assert [row.split(maxsplit=1)[0] for row in shown] == ["Run", "rollouts", "now"]
    assert shown[1].endswith("0 of 0")
    assert shown[2].endswith("-, - left")


def picture(progress: Progress, rate: Rate, vms: dict[str, int], idle: str) -> list[str]:
    console = Console(file=io.StringIO(), width=100, color_system=None)
    console.print(watch._picture(progress, rate, vms, idle))
    return [row.rstrip() for row in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.9, "0 s"),
        (119.9, "119 s"),
        (120, "2 min"),
        (179, "2 min"),
        (7199, "119 min"),
        (7200, "2.0 h"),
        (9000, "2.5 h"),
    ],
)
def test_times_are_said_in_the_unit_that_people_would_take(seconds: float, said: str) -> None:
    assert watch._duration(seconds) == said


def test_progress_as_json_has_what_a_program_needs(clock: Clock) -> None:
    found = json.loads(json.dumps(describe(PROGRESS, rate(clock, (0, 1), (7, 4)), VMS)))

    assert found == {
        "run_id": "night-1",
        "state": "running",
        "total": 10,
        "pending": 6,
        "committed": 4,
        "running": 2,
        "completed": 1,
        "failed": 2,
        "cancelled": 1,
        "failures": {"timeout": 2, "cancelled": 1},
        "score_sum": 0.5,
        "created": 1000.0,
        "queues": ["rollout.osworld"],
        "problem": "",
        "rollouts_per_second": 0.429,
        "eta_seconds": 14.0,
        "cost": None,
        "vms": VMS,
    }


def test_progress_as_json_gives_no_time_while_nothing_happens() -> None:
    found = describe(PROGRESS, Rate())

    assert (found["rollouts_per_second"], found["eta_seconds"]) == (0.0, None)
    assert "vms" not in found
    assert "rollouts_per_second" not in describe(PROGRESS)


NOBODY = "no worker serves rollout.osworld: start one with `celery -A rollout_tasks worker`"
BOOTING = {"initializing": 2, "free": 0, "waited for": 3}


@pytest.fixture
def store(redis_url: str) -> RunStore:
    return RunStore(redis.Redis.from_url(redis_url, decode_responses=True))


@pytest.mark.parametrize(("running", "pending", "said"), [(0, 6, NOBODY), (2, 6, ""), (0, 0, ""), (2, 0, "")])
def test_the_absence_of_workers_is_worth_a_word_where_rollouts_wait_and_none_runs(
    store: RunStore, running: int, pending: int, said: str
) -> None:
    assert waits.nobody_serves(store, replace(PROGRESS, running=running, pending=pending)) == said


@pytest.mark.parametrize(
    ("served", "own", "patient", "said"),
    [
        (False, False, False, NOBODY),
        (False, False, True, ""),
        (False, True, False, "its worker is starting"),
        (True, True, False, ""),
        (True, False, False, ""),
    ],
)
def test_what_a_run_waits_for_is_said(store: RunStore, served: bool, own: bool, patient: bool, said: str) -> None:
    if served:
        presence.announce(store.client, "one@here", PROGRESS.queues)

    assert waits.waits_for(store, replace(PROGRESS, running=0), own_worker=own, patient=patient) == said


@pytest.mark.parametrize(
    ("vms", "own", "pending", "said"),
    [
        ({}, False, 6, ""),
        ({}, True, 6, "the host of its VMs is starting"),
        ({"free": 0, "waited for": 3}, True, 6, "the host of its VMs is starting"),
        ({"silent": 3, "waited for": 3}, True, 6, "the host of its VMs is starting"),
        (BOOTING, True, 6, "the first VM is booting"),
        (BOOTING, False, 6, "the first VM is booting"),
        (BOOTING, True, 0, ""),
        ({"initializing": 1, "free": 1}, True, 6, ""),
        ({"leased": 1}, True, 6, ""),
    ],
)
def test_the_first_vm_is_waited_for(vms: dict[str, int], own: bool, pending: int, said: str) -> None:
    assert watch._first_vm(replace(PROGRESS, pending=pending), vms, own_host=own) == said


def test_no_time_left_is_said_while_nothing_goes_on(clock: Clock) -> None:
    stands = replace(PROGRESS, running=0, failures={})
    seen = rate(clock, (0, 1), (6, 4))

    assert line(stands, seen, {}, "it waits") == "running: 4/10 rollouts · 0 running · it waits"
    assert "12 s left" in line(stands, seen, {})
    assert picture(stands, seen, {}, "it waits")[2].endswith("-, - left")
    assert picture(stands, seen, {}, "")[2].endswith("0.50/s, 12 s left")


def test_speed_and_time_left_are_rounded_to_what_they_are_worth(clock: Clock) -> None:
    found = describe(PROGRESS, rate(clock, (0, 0), (11, 7)))

    assert (found["rollouts_per_second"], found["eta_seconds"]) == (0.636, 9.4)
