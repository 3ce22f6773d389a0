"""A host's side of a pool: when it tries again, how it tells what came of a VM, and who may speak for it."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from vm_pool import host_client
from vm_pool import jobs as jobs_module
from vm_pool.errors import (
    AcquireTimeout,
    HostSuperseded,
    HostTaken,
    PoolRefused,
    PoolUnreachable,
    TransitionRefused,
    UnknownVM,
)
from vm_pool.host_client import Beat, HostClient, HostedVM
from vm_pool.jobs import Jobs
from vm_pool.pool import VMPool
from vm_pool.processes import machine, this_process
from vm_pool.states import Endpoint, VMState


def test_a_failed_vm_is_tried_again_after_the_asked_seconds(pool: VMPool) -> None:
    side = HostClient(pool, "h", silent_after=60)
    side.trust(side.beat(take_over=True).server)
    fence = side.register("h-0", VMState.INITIALIZING, needs_reset=True, known_fence=0)

    side.failed("h-0", fence, "no screenshot", first_delay=30, longest_delay=60)

    (vm,) = side.beat().vms
    assert vm.state is VMState.ERROR
    assert vm.retry_in == pytest.approx(30, abs=2)


def test_a_beat_takes_nobodys_host_over_unless_told_to(pool: VMPool) -> None:
    HostClient(pool, "h", silent_after=60).beat(take_over=True)

    with pytest.raises(HostSuperseded):
        HostClient(pool, "h", silent_after=60).beat()
    with pytest.raises(HostTaken):
        HostClient(pool, "h", silent_after=60).beat(take_over=True)


@pytest.fixture
def jobs() -> Jobs:
    side: Any = SimpleNamespace(host_id="h")
    return Jobs(side, 1, (1.0, 1.0))


def test_what_came_of_a_vm_is_told_again_after_a_pause(jobs: Jobs) -> None:
    told: list[float] = []

    def say() -> None:
        told.append(time.monotonic())
        if len(told) < 4:
            raise PoolUnreachable("away")

    jobs._report(say)

    assert len(told) == 4
    assert told[3] - told[0] > 0.25  # three times a tenth of a second


def test_a_host_that_stops_tells_nothing_more(jobs: Jobs) -> None:
    jobs.stop.set()

    jobs._report(lambda: pytest.fail("it was told"))


def test_ending_for_good_waits_for_every_vm(jobs: Jobs) -> None:
    ended: list[str] = []

    def end(machine: Any) -> None:
        time.sleep(0.2)
        ended.append(machine)

    jobs._end_for_good = end  # type: ignore[method-assign]

    jobs.end_for_good(["a", "b"])  # type: ignore[list-item]

    assert sorted(ended) == ["a", "b"]


def test_a_quarantined_vm_is_booted_anew_and_a_free_one_reset(pool: VMPool) -> None:
    for vm_id in ("vm-0", "vm-1"):
        pool.register(vm_id, Endpoint("127.0.0.1", {"control": 1}))
    pool.quarantine("vm-0", "an operator said so")

    assert pool.reset("vm-0") is VMState.INITIALIZING
    assert pool.reset("vm-1") is VMState.RESETTING
    assert [vm.state for vm in pool.status().vms] == [VMState.INITIALIZING, VMState.RESETTING]


# What a host says and hears, word for word


class Told(HostClient):
    """Hears what the test says instead of Redis; notes what it says itself."""

    def __init__(self, pool: VMPool, *answers: Any, host_id: str = "h", silent_after: float = 2.5) -> None:
        super().__init__(pool, host_id, silent_after=silent_after)
        self.said: list[tuple[Any, ...]] = []
        self._answers = list(answers)

    def _run(self, script: str, *args: str | int) -> Any:
        self.said.append((script, *args))
        return self._answers.pop(0)


NOW = 5_000_000_000
ENDED = f"{machine()}:{os.getpid()}:1"
"""A process whose number another one has by now."""
ACCEPTED = [1, NOW, NOW, "server"]


def test_a_beat_says_who_and_how_long_and_hears_of_every_vm(pool: VMPool) -> None:
    rows = [
        ["h-0", "error", 7, "1", NOW + 1_500_000],
        ["h-1", "error", 8, "0", NOW - 250_000],
        ["h-2", "free", 9, "0", 0],
    ]
    side = Told(pool, [1, NOW, NOW + 3_250_000, "server", *rows], ACCEPTED, ACCEPTED)

    assert side.beat() == Beat(
        "server",
        (
            HostedVM("h-0", VMState.ERROR, 7, True, 1.5),
            HostedVM("h-1", VMState.ERROR, 8, False, -0.25),
            HostedVM("h-2", VMState.FREE, 9, False, None),
        ),
        3.25,
    )
    side.trust("server")
    assert side.trusted == "server"
    assert side.beat(take_over=True) == Beat("server", (), 0.0)
    (first, second) = side.said
    instance = first[2]
    assert instance.partition(" ")[2] == this_process()
    assert first == ("beat", "h", instance, 2_500_000, "0", "")
    assert second == ("beat", "h", instance, 2_500_000, "1", "server")


def test_two_objects_of_one_process_are_two_speakers(pool: VMPool) -> None:
    sides = [Told(pool, ACCEPTED) for _ in range(2)]
    for side in sides:
        side.beat()
    assert sides[0].said[0][2] != sides[1].said[0][2]
    assert len(sides[0].said[0][2].partition(" ")[0]) == 16


@pytest.mark.parametrize("take_over", [False, True])
def test_a_predecessor_that_has_ended_is_replaced_at_once(pool: VMPool, take_over: bool) -> None:
    side = Told(pool, [0, f"ab {ENDED}", NOW], ACCEPTED)
    assert side.beat(take_over=take_over).server == "server"
    assert [said[4] for said in side.said] == ["1" if take_over else "0", f"ab {ENDED}"]


def test_what_a_successor_that_has_ended_offered_is_not_lent_unseen(pool: VMPool) -> None:
    first, second = HostClient(pool, "h", silent_after=0.01), HostClient(pool, "h", silent_after=60)
    first.trust(first.beat(take_over=True).server)
    first.beat()
    time.sleep(0.02)  # stopped, say
    second._instance = f"ab {ENDED}"
    second.trust(second.beat(take_over=True).server)
    fence = second.register("h-0", VMState.INITIALIZING, needs_reset=True, known_fence=0)
    second.beat()
    second.ready("h-0", fence, Endpoint("127.0.0.1", {"control": 1}))
    first.silent_after = 60

    for _ in range(2):
        assert first.beat().server != first.trusted
        assert first.displaced

    with pytest.raises(AcquireTimeout):
        pool.acquire("me", timeout=0)
    first.register("h-0", VMState.INITIALIZING, needs_reset=True, known_fence=0)
    first.trust(first.beat().server)
    assert not first.displaced


@pytest.mark.parametrize(
    ("process", "who"),
    [
        (f"{machine()}:{os.getpid()}:" + this_process().rpartition(":")[2], f"process {os.getpid()} of this machine"),
        ("elsewhere:7:8", "a process of another machine or container"),
        ("", "a process of another machine or container"),
    ],
    ids=["of this machine", "of another", "nobody knows which"],
)
def test_one_that_has_not_ended_is_named_with_what_to_do(pool: VMPool, process: str, who: str) -> None:
    taken = [0, f"ab {process}", NOW + 7]
    with pytest.raises(HostTaken) as refused:
        Told(pool, taken).beat(take_over=True)
    assert str(refused.value) == (
        f"host h of pool 'test' is run by another process, {who}: stop that one, or give this one another id (--host-id)"
    )
    assert (refused.value.instance, refused.value.alive_until) == (f"ab {process}", NOW + 7)
    with pytest.raises(HostSuperseded) as superseded:
        Told(pool, taken).beat()
    assert not isinstance(superseded.value, HostTaken)
    assert str(superseded.value) == "another process speaks for host h of pool 'test' now"


def test_where_this_machine_is_unknown_nobody_is_said_to_be_of_it(
    pool: VMPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_client, "machine", lambda: "")
    with pytest.raises(HostTaken, match="a process of another machine or container"):
        Told(pool, [0, "ab :7:8", NOW]).beat(take_over=True)
    assert Told(pool).end_the_dead() == 0, "nothing is asked"


@pytest.mark.parametrize("host_id", ["", "a b", "a/b", "x" * 101, "a\n"])
def test_a_host_has_a_plain_name(pool: VMPool, host_id: str) -> None:
    with pytest.raises(ValueError, match=r"is not a host's id: use 1 to 100 letters, digits, '_', '\.' and '-'"):
        HostClient(pool, host_id, silent_after=1)
    assert HostClient(pool, "x" * 100, silent_after=1).host_id == "x" * 100


def test_only_those_that_have_ended_are_ended_wherever_they_stand(
    pool: VMPool, caplog: pytest.LogCaptureFixture
) -> None:
    alive = this_process()
    leases = ["vm-0", 10, alive, "vm-1", 11, ENDED, "vm-2", 12, alive, "vm-3", 13, ENDED]
    waiters = ["t0", alive, "t1", ENDED, "t2", alive, "t3", ENDED]
    side = Told(pool, [leases, waiters], 4, [leases[:3], waiters[:2]])

    assert side.end_the_dead() == 4
    assert side.end_the_dead() == 0, "and where nobody has, nothing more is said"

    assert side.said == [
        ("processes", machine(), 100),
        ("ended", "vm-1", 11, "vm-3", 13, "t1", "", "t3", ""),
        ("processes", machine(), 100),
    ]
    assert caplog.messages == [f"host h: the holder of vm-{n} has ended; it is taken back" for n in (1, 3)]


def test_a_waiter_that_has_ended_leaves_the_queue_and_one_that_lives_keeps_its_place(pool: VMPool) -> None:
    from vm_pool.waiting import Request

    pool.register("vm-0", Endpoint("127.0.0.1"))
    pool.acquire("holder", timeout=5, heartbeat=False)
    for number, process in enumerate([this_process(), ENDED, this_process(), ENDED]):
        words = Request(f"waiter {number}", 0, 60, 60, 60, token=f"t{number}").words(0, False)
        pool._run("acquire", *words[:-1], process)

    assert HostClient(pool, "h", silent_after=60).end_the_dead() == 2

    assert [(waiter.token, waiter.place) for waiter in pool.status().waiters] == [("t0", 1), ("t2", 2)]


def test_what_came_of_a_vm_is_said_in_words(pool: VMPool) -> None:
    side = Told(pool, 1, 0, None, None, 21, "other")

    assert side.ready("h-0", 7, Endpoint("10.0.0.1", {"vnc": 2, "control": 1})) is True
    assert side.ready("h-0", 8, Endpoint("")) is False
    side.failed("h-0", 9, "x" * 501, first_delay=1.5, longest_delay=30.25)
    side.retire()
    assert side.register("h-0", VMState.RESETTING, needs_reset=True, known_fence=5) == 21
    with pytest.raises(TransitionRefused) as refused:
        side.register("h-1", VMState.INITIALIZING, needs_reset=False, known_fence=0)

    assert str(refused.value) == "h-1 of pool 'test' belongs to host other"
    nowhere = '{"address": "", "ports": {}}'
    assert side.said == [
        ("ready", "h-0", 7, '{"address": "10.0.0.1", "ports": {"control": 1, "vnc": 2}}'),
        ("ready", "h-0", 8, nowhere),
        ("failed", "h-0", 9, "x" * 500, 1_500_000, 30_250_000),
        ("retire", "h", side._instance),
        ("register", "h-0", "h", nowhere, 1, "resetting", 5),
        ("register", "h-1", "h", nowhere, 0, "initializing", 0),
    ]


@pytest.mark.parametrize("refusal", [TransitionRefused("x"), UnknownVM("x")])
def test_a_vm_that_has_moved_on_by_itself_is_left_alone(
    pool: VMPool, refusal: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    moves: list[Any] = []

    def move(vm_id: str, allowed: set[VMState], to: VMState, **terms: Any) -> int:
        moves.append((vm_id, allowed, to, terms))
        raise refusal

    monkeypatch.setattr(pool, "move", move)
    caplog.set_level(logging.INFO)
    HostClient(pool, "h", silent_after=1).try_move("h-0", {VMState.FREE}, VMState.RESETTING, 7)
    assert moves == [("h-0", {VMState.FREE}, VMState.RESETTING, {"fence": 7})]
    assert caplog.messages == ["host h: h-0 moved on by itself"]


def test_work_is_waited_for_once_however_often_it_was_announced(pool: VMPool) -> None:
    side = HostClient(pool, "h", silent_after=60)
    for _ in range(3):
        side.wake()
    assert side.wait_for_work(20) is True
    assert side.wait_for_work(0) is False, "and no wait of no time is for ever"


def test_a_wait_for_work_has_an_end_that_is_said_to_redis(pool: VMPool, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    monkeypatch.setattr(pool.redis, "call", lambda *words, **options: calls.append((words, options)))
    side = HostClient(pool, "h", silent_after=60)
    for seconds in (0, 0.25, 12):
        assert side.wait_for_work(seconds) is False
    key = "{pool:test}:work:h"
    assert calls == [
        (("BLPOP", key, "0.001"), {"seconds": 2.0}),
        (("BLPOP", key, "0.250"), {"seconds": 2.25}),
        (("BLPOP", key, "12.000"), {"seconds": 14.0}),
    ]


# What is done to a VM, and told of it


class Side:
    """Notes what a host's jobs tell its pool."""

    host_id = "h"

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []
        self.nudged = threading.Semaphore(0)
        self.fails: Exception | None = None

    def ready(self, *what: Any) -> None:
        self.told.append(("ready", *what))

    def failed(self, *what: Any, **terms: Any) -> None:
        self.told.append(("failed", *what, terms))

    def try_move(self, *what: Any) -> None:
        self.told.append(("try_move", *what))

    def wake(self) -> None:
        self.nudged.release()
        if self.fails is not None:
            raise self.fails


class Worked:
    """A machine as its jobs see it."""

    def __init__(self, vm_id: str = "h-0") -> None:
        self.may_run = True
        self.vm_id, self.job, self.checked_at = vm_id, None, 0.0
        self.stops: list[float] = []
        self.fault: Exception | None = None
        self.on_stop: Callable[[], None] = lambda: None

    @property
    def busy(self) -> bool:
        return self.job is not None and not self.job.done()  # type: ignore[attr-defined]

    def check(self) -> None:
        if self.fault:
            raise self.fault

    def stop(self) -> None:
        self.stops.append(time.monotonic())
        self.on_stop()
        if self.fault:
            raise self.fault


@pytest.fixture
def side() -> Side:
    return Side()


@pytest.fixture
def working(side: Side) -> Iterator[Jobs]:
    jobs = Jobs(side, 2, (1.5, 30.25))  # type: ignore[arg-type]
    yield jobs
    jobs.wait()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    clock = SimpleNamespace(monotonic=lambda: 100.0)
    monkeypatch.setattr(jobs_module, "time", clock)
    return clock


def test_a_vm_that_came_up_has_just_been_checked(
    working: Jobs, side: Side, clock: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    vm: Any = Worked()
    endpoint = Endpoint("10.0.0.1")
    worked: list[int] = []
    working.prepare(vm, 7, lambda fence: worked.append(fence) or endpoint)  # type: ignore[func-returns-value]
    vm.job.result(20)

    assert worked == [7]
    assert side.told == [("ready", "h-0", 7, endpoint)]
    assert vm.checked_at == 100.0
    assert side.nudged.acquire(timeout=20)
    assert caplog.messages == []


def test_a_vm_that_did_not_is_quarantined_and_told_why(
    working: Jobs, side: Side, clock: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    def work(fence: int) -> Endpoint:
        raise OSError("no disk")

    vm: Any = Worked()
    side.fails = PoolUnreachable("gone")
    working.prepare(vm, 7, work)
    vm.job.result(20)

    assert side.told == [("failed", "h-0", 7, "OSError: no disk", {"first_delay": 1.5, "longest_delay": 30.25})]
    assert vm.checked_at == 0.0
    assert caplog.messages == ["host h: h-0 is quarantined: OSError: no disk"]


def test_a_host_that_stops_begins_nothing_and_tells_nothing(
    working: Jobs, side: Side, caplog: pytest.LogCaptureFixture
) -> None:
    vm: Any = Worked()

    def work(fence: int) -> Endpoint:
        working.stop.set()
        raise OSError("its VM was stopped beneath it")

    working.prepare(vm, 7, work)
    vm.job.result(20)
    working.prepare(vm, 8, lambda _fence: pytest.fail("it was begun"))
    vm.job.result(20)
    working.wait()

    assert (side.told, caplog.messages) == ([], [])
    assert not side.nudged.acquire(blocking=False)


@pytest.mark.parametrize("fault", [None, RuntimeError("no screenshot")])
def test_a_check_counts_from_its_beginning_and_a_failed_one_asks_for_a_reset(
    working: Jobs, side: Side, clock: SimpleNamespace, fault: Exception | None, caplog: pytest.LogCaptureFixture
) -> None:
    vm: Any = Worked()
    vm.fault = fault
    working.check(vm, 7)
    vm.job.result(20)

    assert vm.checked_at == 100.0
    assert side.told == ([("try_move", "h-0", {VMState.FREE}, VMState.RESETTING, 7)] if fault else [])
    assert caplog.messages == (["host h: h-0 failed its check and is reset: no screenshot"] if fault else [])


def test_a_vm_that_cannot_be_stopped_holds_up_nobody(working: Jobs, caplog: pytest.LogCaptureFixture) -> None:
    first, second = Worked("h-0"), Worked("h-1")
    first.fault = OSError("stuck")
    working.end_for_good([first, second])  # type: ignore[list-item]
    working.end(second)  # type: ignore[arg-type]
    second.job.result(20)  # type: ignore[attr-defined]

    assert (len(first.stops), len(second.stops)) == (1, 2)
    assert caplog.messages == ["host h: h-0 could not be stopped"]


def test_a_vm_that_is_stopped_though_its_gate_does_not_close_is_said_to_be(
    working: Jobs, caplog: pytest.LogCaptureFixture
) -> None:
    vm: Any = Worked("h-0")
    vm.fault, vm.may_run = TimeoutError("its gate does not close"), False
    working.end_for_good([vm])

    assert caplog.messages == ["host h: h-0 is stopped, but its gate does not close"]


def test_what_goes_on_after_the_stop_is_stopped_again_after_a_while_and_once_more_at_its_end(working: Jobs) -> None:
    vm: Any = Worked()
    twice = threading.Event()
    vm.on_stop = lambda: twice.set() if len(vm.stops) == 2 else None
    working.prepare(vm, 7, lambda _fence: twice.wait(20) and Endpoint(""))  # type: ignore[arg-type,return-value]

    working.end_for_good([vm])

    assert len(vm.stops) == 3
    assert vm.stops[1] - vm.stops[0] >= 0.49
    assert not vm.busy


def test_waiting_for_the_end_waits_for_what_is_being_done(working: Jobs) -> None:
    vm: Any = Worked()
    begun = threading.Event()

    def work(_fence: int) -> Endpoint:
        begun.set()
        time.sleep(0.2)
        return Endpoint("")

    working.prepare(vm, 7, work)
    assert begun.wait(20)
    working.wait()
    assert not vm.busy


@pytest.mark.parametrize("error", [PoolUnreachable("away"), PoolRefused("no memory")])
def test_what_redis_does_not_take_now_is_told_again(jobs: Jobs, error: Exception) -> None:
    answers = [error, None]

    def say() -> None:
        if (answer := answers.pop(0)) is not None:
            raise answer

    jobs._report(say)
    assert answers == []
    with pytest.raises(ValueError, match="a defect"):
        jobs._report(lambda: (_ for _ in ()).throw(ValueError("a defect")))
