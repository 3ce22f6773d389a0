"""A host's decisions, one look at a time: what it starts for which VM, when it looks again, and what it closes at its end."""

from __future__ import annotations

import asyncio
import io
import logging
import multiprocessing
import resource
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeVar

import pytest
import redis

from vm_pool import Endpoint, PoolUnreachable, VMPool, VMState
from vm_pool import host as host_module
from vm_pool import jobs as jobs_module
from vm_pool.canary import CleanState, Drift
from vm_pool.descriptor_limit import DESCRIPTORS
from vm_pool.errors import HostSuperseded, PoolRefused, VMsInUse
from vm_pool.gate import Gates
from vm_pool.host import VMHost
from vm_pool.host_client import Beat, HostedVM
from vm_pool.machine import Machine

BOOTING, FREE, LEASED, RESETTING, ERROR, STOPPED = (
    VMState.INITIALIZING, VMState.FREE, VMState.LEASED, VMState.RESETTING, VMState.ERROR, VMState.STOPPED
)  # fmt: skip


class Provider:
    """VMs that have a port behind which nobody is; notes what is asked of it."""

    needs_reset = True

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self.during: Callable[[str, str], None] = lambda _call, _vm_id: None
        self.ports = {"control": 1, "vnc": 2}

    def _note(self, call: str, vm_id: str) -> Endpoint:
        self.calls.append((call, vm_id))
        self.during(call, vm_id)
        return Endpoint("10.0.0.1", self.ports)

    def boot(self, vm_id: str) -> Endpoint:
        return self._note("boot", vm_id)

    def reset(self, vm_id: str) -> Endpoint:
        return self._note("reset", vm_id)

    def check(self, vm_id: str) -> None:
        self._note("check", vm_id)

    def stop(self, vm_id: str) -> None:
        self._note("stop", vm_id)

    def reap_leftovers(self, host_id: str) -> tuple[str, ...]:
        self._note("reap_leftovers", host_id)
        return ()


class Side:
    """The pool as the test has it."""

    host_id, silent_after, trusted, displaced = "box", 60.0, "server", False

    def __init__(self) -> None:
        self.said: list[tuple[Any, ...]] = []
        self.beats: list[Beat] = []
        self.fences = iter(range(1000, 2000))

    def beat(self, *, take_over: bool = False) -> Beat:
        self.said.append(("beat", take_over))
        return self.beats.pop(0)

    def try_move(self, *what: Any) -> None:
        self.said.append(("try_move", *what))

    def register(self, vm_id: str, state: VMState, *, needs_reset: bool, known_fence: int) -> int:
        self.said.append(("register", vm_id, state, needs_reset, known_fence))
        return next(self.fences)

    def trust(self, server: str) -> None:
        self.said.append(("trust", server))
        self.trusted = server

    def retire(self) -> None:
        self.said.append(("retire",))


class Jobs:
    """Notes what is to be done."""

    def __init__(self) -> None:
        self.begun: list[tuple[Any, ...]] = []
        self.stop = threading.Event()

    def prepare(self, machine: Machine, fence: int, work: Any) -> None:
        self.begun.append((work.__name__, machine.vm_id, fence))

    def check(self, machine: Machine, fence: int) -> None:
        self.begun.append(("check", machine.vm_id, fence))

    def end(self, machine: Machine) -> None:
        self.begun.append(("end", machine.vm_id))


class EndingJobs(Jobs):
    """Notes which VMs are ended for good."""

    def __init__(self) -> None:
        super().__init__()
        self.ended: list[Machine] = []

    def end_for_good(self, machines: Iterable[Machine]) -> None:
        self.ended += machines

    def wait(self) -> None:
        """There is no work."""


def cannot_reap(error: Exception) -> Callable[[str, str], None]:
    """What a provider does that cannot end what a predecessor left."""

    def during(call: str, _name: str) -> None:
        if call == "reap_leftovers":
            raise error

    return during


@pytest.fixture
def provider() -> Provider:
    return Provider()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    clock = SimpleNamespace(now=1000.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(host_module, "time", clock)
    return clock


@pytest.fixture
def host(pool: VMPool, provider: Provider, clock: SimpleNamespace) -> Any:
    host: Any = VMHost(pool, provider, num_vms=3, host_id="box", check_every=30.0)
    host._side, host._jobs, host._joined = Side(), Jobs(), True
    host._progress.done = True
    return host


def vm(
    number: int, state: VMState, *, drained: bool = False, retry_in: float | None = None, fence: int = 7
) -> HostedVM:
    return HostedVM(f"box-{number}", state, fence, drained, retry_in)


@pytest.mark.parametrize(
    ("booted", "seen", "begun", "moved", "again"),
    [
        (False, vm(0, BOOTING), [("boot", "box-0", 7)], [], 30.0),
        (True, vm(0, BOOTING), [("boot", "box-0", 7)], [], 30.0),
        (True, vm(0, RESETTING), [("reset", "box-0", 7)], [], 30.0),
        (False, vm(0, RESETTING), [("boot", "box-0", 7)], [], 30.0),
        (True, vm(0, RESETTING, drained=True), [], [({RESETTING}, STOPPED)], 30.0),
        (False, vm(0, BOOTING, drained=True), [], [({BOOTING}, STOPPED)], 30.0),
        (True, vm(0, STOPPED), [("end", "box-0")], [], 30.0),
        (False, vm(0, STOPPED), [], [], 30.0),
        (True, vm(0, ERROR), [("end", "box-0")], [], 30.0),
        (True, vm(0, ERROR, retry_in=2.5), [("end", "box-0")], [], 2.5),
        (False, vm(0, ERROR), [], [], 30.0),
        (False, vm(0, ERROR, retry_in=2.5), [], [], 2.5),
        (True, vm(0, ERROR, retry_in=0.0), [], [({ERROR}, BOOTING)], 30.0),
        (True, vm(0, ERROR, retry_in=-1.0), [], [({ERROR}, BOOTING)], 30.0),
        (True, vm(0, LEASED), [], [], 30.0),
    ],
)
def test_each_state_asks_for_its_work(
    host: Any, booted: bool, seen: HostedVM, begun: list[Any], moved: list[Any], again: float
) -> None:
    machine = host._machines["box-0"]
    machine.booted = machine.may_run = booted
    assert host._attend(machine, seen) == again
    assert host._jobs.begun == begun
    assert host._side.said == [("try_move", "box-0", allowed, to, 7) for allowed, to in moved]


class FirstFails:
    """What a provider does that fails at the first of some calls."""

    def __init__(self, call: str, error: Exception) -> None:
        self._call, self._error = call, error
        self._failed = False

    def __call__(self, call: str, _vm_id: str) -> None:
        if call == self._call and not self._failed:
            self._failed = True
            raise self._error


@pytest.mark.parametrize(
    ("seen", "waits"),
    [(vm(0, STOPPED), (30.0, 6.0, 2.0, 30.0, 30.0)), (vm(0, ERROR, retry_in=2.5), (2.5, 2.5, 2.0, 2.5, 2.5))],
)
def test_one_that_could_not_be_stopped_is_stopped_again_after_a_pause(
    host: Any,
    provider: Provider,
    clock: SimpleNamespace,
    monkeypatch: pytest.MonkeyPatch,
    seen: HostedVM,
    waits: tuple[float, ...],
) -> None:
    monkeypatch.setattr("vm_pool.jobs.time", clock)
    monkeypatch.setattr(host._side, "wake", lambda: None, raising=False)
    host._jobs = jobs_module.Jobs(host._side, 1, (1.0, 300.0))
    machine = host._machines["box-0"]
    machine.boot(7)
    provider.during = FirstFails("stop", TimeoutError("it does not end"))
    provider.calls.clear()
    stops: list[tuple[int, float]] = []
    for _ in range(5):
        looked_again = host._attend(machine, seen)
        machine.job.result(20)
        stops.append((provider.calls.count(("stop", "box-0")), looked_again))
        clock.now += 4.0
    host._jobs.wait()
    machine.close_gate()
    host._gates.close()
    assert stops == list(zip((1, 1, 1, 2, 2), waits, strict=True))


def test_what_a_predecessor_left_of_a_drained_vm_is_ended_once(host: Any) -> None:
    host._attend(host._machines["box-0"], vm(0, STOPPED))
    assert host._jobs.begun == [("end", "box-0")]


@pytest.mark.parametrize(
    ("checked_at", "begun", "again"),
    [(1000.0, 0, 30.0), (971.0, 0, 1.0), (970.25, 0, 0.25), (970.0, 1, 30.0), (900.0, 1, 30.0)],
)
def test_a_free_vm_is_checked_when_its_last_check_is_so_long_ago(
    host: Any, checked_at: float, begun: int, again: float
) -> None:
    machine = host._machines["box-1"]
    machine.checked_at = checked_at
    assert host._attend(machine, vm(1, FREE)) == again
    assert host._jobs.begun == [("check", "box-1", 7)] * begun


def look(host: Any, *seen: HostedVM, next_timer_in: float = 100.0) -> float:
    missing = [vm(number, LEASED) for number in range(3) if f"box-{number}" not in {one.vm_id for one in seen}]
    host._side.beats.append(Beat("server", (*seen, *missing), next_timer_in))
    seconds: float = host._serve_once()
    return seconds


def test_it_looks_again_when_the_first_thing_is_due(host: Any) -> None:
    assert look(host) == 20.0, "a third of what makes it silent"
    assert look(host, next_timer_in=3.5) == 3.5
    assert look(host, next_timer_in=-4.0) == 0.01
    assert look(host, vm(1, ERROR, retry_in=1.5)) == 1.5
    assert look(host, vm(0, LEASED), vm(1, ERROR, retry_in=1.5), vm(2, ERROR, retry_in=0.75)) == 0.75
    host._progress.done = False
    assert look(host, vm(0, BOOTING)) == host_module.SAY_EVERY_SECONDS == 5.0
    assert look(host, vm(0, BOOTING), next_timer_in=3.5) == 3.5


def test_one_that_is_no_vm_of_its_or_busy_keeps_it_from_no_other(host: Any) -> None:
    busy: Any = SimpleNamespace(done=lambda: False)
    host._machines["box-0"].job = busy
    strange = HostedVM("elsewhere-0", BOOTING, 7, False, None)
    look(host, strange, vm(0, BOOTING), vm(1, BOOTING, fence=9), vm(2, RESETTING, fence=8))
    assert host._jobs.begun == [("boot", "box-1", 9), ("boot", "box-2", 8)]
    assert [machine.fence for machine in host._machines.values()] == [0, 9, 8]
    look(host, vm(1, LEASED, fence=5))
    assert host._machines["box-1"].fence == 9


class Closing:
    """A gate that notes its end."""

    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


@pytest.mark.parametrize(
    ("state", "fence", "closed"),
    [
        (FREE, 8, 0), (LEASED, 8, 0), (RESETTING, 8, 1), (RESETTING, 7, 0),
        (BOOTING, 8, 1), (ERROR, 8, 1), (STOPPED, 8, 1),
    ],
)  # fmt: skip
@pytest.mark.parametrize("busy", [False, True])
def test_the_gate_of_a_lease_that_is_over_is_closed_and_no_later_one(
    host: Any, state: VMState, fence: int, closed: int, busy: bool
) -> None:
    machine, gate = host._machines["box-0"], Closing()
    machine._gate, machine._gate_fence = gate, 7
    machine.job = SimpleNamespace(done=lambda: not busy)
    look(host, vm(0, state, fence=fence))
    assert gate.closed == closed


@contextmanager
def stuck_gates(host: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The thread of the host's gates does nothing meanwhile."""
    going_on = threading.Event()
    host._gates._thread.loop.call_soon_threadsafe(going_on.wait, 60)
    with monkeypatch.context() as patch:
        patch.setattr("vm_pool.event_loop.CLOSE_SECONDS", 0.05)
        try:
            yield
        finally:
            going_on.set()


STUCK = "a gate does not close within 0.05 s: its thread is stuck"


def test_a_gate_that_does_not_close_keeps_the_host_from_nothing_else(
    host: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(2):
        host._machines[f"box-{number}"].boot(7)
    gates = [host._machines[f"box-{number}"]._gate for number in range(2)]
    with stuck_gates(host, monkeypatch):
        look(host, vm(0, RESETTING, fence=8), vm(1, STOPPED, fence=8), vm(2, BOOTING))
        assert host._jobs.begun == [("reset", "box-0", 8), ("end", "box-1"), ("boot", "box-2", 7)]
        assert caplog.messages == [f"host box: box-0: {STUCK}"], "it does not wait for the others, too"
        with pytest.raises(TimeoutError, match=STUCK):
            host._machines["box-0"].reset(8)
    look(host, vm(0, RESETTING, fence=8), vm(1, STOPPED, fence=8))
    assert all(gate._tasks.ended for gate in gates)
    host._gates.close()


def test_a_host_whose_gates_do_not_close_ends_its_vms_and_its_entry_all_the_same(
    host: Any, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host.pool, "remove", lambda _vm_ids: None)
    host._jobs, host._speaks = jobs_module.Jobs(host._side, 3, (1.0, 300.0)), True
    host._machines["box-0"].boot(7)
    provider.calls.clear()
    loop, thread = host._gates._thread.loop, host._gates._thread._thread
    with stuck_gates(host, monkeypatch):
        host._shut_down(False)
        assert sorted(provider.calls) == [("stop", f"box-{number}") for number in range(3)]
        assert host._side.said == [("retire",)]
    thread.join(20)
    loop.run_until_complete(asyncio.gather(*asyncio.all_tasks(loop), return_exceptions=True))
    loop.close()


def test_what_the_pool_has_lost_is_registered_anew_and_only_that(host: Any, caplog: pytest.LogCaptureFixture) -> None:
    host._machines["box-2"].booted = True
    host._machines["box-2"].fence = 5
    host._register_missing({"box-1"})
    assert host._side.said == [("register", "box-0", BOOTING, True, 0), ("register", "box-2", RESETTING, True, 5)]
    assert [host._machines[f"box-{number}"].fence for number in range(3)] == [1000, 0, 1001]
    assert caplog.messages == [f"host box: the pool has lost box-{n}; registering it anew" for n in (0, 2)]


@pytest.mark.parametrize("needs_reset", [True, False])
def test_after_a_restart_of_redis_only_leases_it_knows_nothing_after_are_left_alone(
    host: Any, provider: Provider, needs_reset: bool
) -> None:
    provider.needs_reset = needs_reset
    known = host._machines
    for machine in known.values():
        machine.fence, machine.booted = 7, True
    known["box-2"].booted = False
    strange = HostedVM("elsewhere-0", FREE, 7, False, None)

    def registered(*seen: HostedVM) -> dict[str, VMState]:
        host._side.said.clear()
        for machine in known.values():
            machine.fence = 7
        host._distrust(Beat("another", seen, 1.0))
        assert host._side.said[-1] == ("trust", "another")
        return {one[1]: one[2] for one in host._side.said if one[0] == "register"}

    assert registered(strange, vm(0, FREE), vm(2, FREE)) == {"box-0": RESETTING, "box-2": BOOTING}
    assert registered(strange, vm(0, LEASED, fence=6), vm(1, LEASED, fence=6)) == {
        "box-0": RESETTING, "box-1": RESETTING
    }  # fmt: skip
    alone = {} if needs_reset else {"box-0": RESETTING, "box-1": RESETTING, "box-2": BOOTING}
    assert registered(vm(0, LEASED), vm(1, ERROR), vm(2, STOPPED)) == alone
    assert registered(vm(0, LEASED, fence=8)) == {name: state for name, state in alone.items() if name == "box-0"}


def test_after_another_process_spoke_for_it_all_its_vms_are_booted(
    host: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    removed: list[Any] = []
    monkeypatch.setattr(host.pool, "remove", removed.append)
    for machine in host._machines.values():
        machine.fence, machine.booted = 7, True
    host._side.displaced = True

    seen = (vm(0, FREE, fence=9), vm(1, LEASED, fence=9), vm(2, STOPPED, fence=9), vm(7, FREE, fence=9))
    host._distrust(Beat("server", seen, 1.0))

    assert removed == [["box-7"]]
    registered = [("register", f"box-{number}", BOOTING, True, 7) for number in (0, 1)]
    assert host._side.said == [*registered, ("trust", "server")]
    assert caplog.messages == ["host box: another process spoke for it until it ended; its VMs are booted anew"]


def test_it_looks_for_the_dead_in_a_twentieth_of_its_time(host: Any, clock: SimpleNamespace) -> None:
    def look_for(seconds: float) -> Callable[[], None]:
        def end_the_dead() -> None:
            clock.now += seconds

        return end_the_dead

    host._side.end_the_dead = look_for(0.01)
    host._end_the_dead()
    assert host._dead_looked_for == pytest.approx(1000.01 + 0.5)
    host._side.end_the_dead = look_for(0.1)
    host._end_the_dead()
    assert host._dead_looked_for == pytest.approx(1000.11 + 2.0)


def test_it_sleeps_in_slices_until_its_time_or_work_comes(host: Any, clock: SimpleNamespace) -> None:
    slept: list[float] = []
    looked: list[float] = []
    host._end_the_dead = lambda: looked.append(clock.now)
    host._dead_looked_for = 1000.5

    def wait(seconds: float) -> bool:
        slept.append(seconds)
        clock.now += seconds
        return len(slept) == 5

    host._side.wait_for_work = wait
    host._sleep(1.25)
    assert (slept, looked) == ([0.5, 0.5, 0.25], [1000.5, 1001.0])
    host._sleep(60)
    assert slept == [0.5, 0.5, 0.25, 0.5, 0.5], "work ends it"
    host._sleep(0)
    host._stop.set()
    host._sleep(60)
    assert len(slept) == 5


def test_a_host_that_joins_takes_over_and_removes_what_is_not_its_own(
    host: Any, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed: list[Any] = []
    monkeypatch.setattr(host.pool, "remove", removed.append)
    host._joined = False
    host._side.beats.append(Beat("new", (HostedVM("box-7", FREE, 7, False, None), vm(1, FREE)), 1.0))
    assert host._join() is True
    assert (host._joined, host._speaks, removed) == (True, True, [["box-7"]])
    registered = [("register", f"box-{number}", BOOTING, True, 0) for number in range(3)]
    assert host._side.said == [("beat", True), *registered, ("trust", "new")]
    assert provider.calls == [("reap_leftovers", "box")]
    host._stop.set()
    assert host._join() is False, "told to stop, it says nothing"


def test_leftovers_that_cannot_be_ended_keep_no_host_from_joining(
    host: Any, provider: Provider, caplog: pytest.LogCaptureFixture
) -> None:
    provider.during = cannot_reap(RuntimeError("the cloud does not answer"))
    host._joined = False
    host._side.beats.append(Beat("new", (), 1.0))

    assert host._join() is True

    assert [one[0] for one in host._side.said] == ["beat", *["register"] * 3, "trust"]
    said = "host box: what a predecessor left could not be ended: RuntimeError: the cloud does not answer"
    assert said in caplog.messages


def test_a_host_whose_predecessor_lives_ends_no_vm_of_it(host: Any, provider: Provider) -> None:
    provider.during = cannot_reap(VMsInUse("process 7 of this machine uses box-0"))
    host._joined = False
    host._side.beats.append(Beat("new", (), 1.0))
    with pytest.raises(VMsInUse):
        host._join()
    host._jobs = EndingJobs()

    host._shut_down(False)

    assert host._jobs.ended == []
    assert host._side.said == [("beat", True), ("retire",)]


@pytest.mark.parametrize(("joins", "asked"), [(True, ["join", "beat"]), (False, ["join"])])
def test_a_host_attends_to_its_vms_once_it_has_joined(
    host: Any, monkeypatch: pytest.MonkeyPatch, joins: bool, asked: list[str]
) -> None:
    done: list[str] = []
    host._joined = False
    monkeypatch.setattr(host, "_join", lambda: done.append("join") or joins)
    beat = host._side.beat
    monkeypatch.setattr(host._side, "beat", lambda *given: done.append("beat") or beat(*given))
    host._side.beats.append(Beat(host._side.trusted, (), 100.0))

    sleep = host._serve_once()

    assert (done, sleep == 0.0) == (asked, not joins)


def test_what_a_host_does_unless_told_otherwise() -> None:
    assert VMHost.__init__.__kwdefaults__ == {
        "host_id": None, "silent_after": 15.0, "check_every": 30.0, "retry_after": (1.0, 300.0),
        "gate_address": "127.0.0.1", "facts": "",
    }  # fmt: skip


@pytest.mark.parametrize("number", [0, -1])
def test_a_host_has_a_vm(pool: VMPool, provider: Provider, number: int) -> None:
    with pytest.raises(ValueError, match=rf"^num_vms is {number}: a host has at least one VM$"):
        VMHost(pool, provider, num_vms=number)  # type: ignore[arg-type]
    host: Any = VMHost(pool, provider, num_vms=1)  # type: ignore[arg-type]
    assert list(host._machines) == [f"{socket.gethostname()}-0"]


def threads_of(name: str) -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(name)]


def descriptors() -> set[str]:
    """Sockets and what event loops have open."""
    found: set[str] = set()
    for one in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the one with which this looks
            found.add(str(one.readlink()))
    return {target for target in found if target.startswith(("socket:", "anon_inode:"))}


T = TypeVar("T")


def elsewhere(what: Callable[..., T], *arguments: Any) -> T:
    """What a function returns in a process of its own, where nothing is open or runs that other tests began."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(what, *arguments).result(60)


class Ending(NamedTuple):
    """What a host that ends leaves, and what it says."""

    opened: int
    left: set[str]
    gates: list[Any]
    threads: list[str]
    calls: list[tuple[str, str]]
    said: list[tuple[Any, ...]]
    logged: str


def ended_host(redis_url: str, superseded: bool) -> Ending:
    logged = io.StringIO()
    logging.basicConfig(stream=logged)
    pool, provider = VMPool(redis.Redis.from_url(redis_url), "test"), Provider()
    pool.status()
    before = descriptors()
    host: Any = VMHost(pool, provider, num_vms=2, host_id="ending")  # type: ignore[arg-type]
    host._side, host._speaks = Side(), True
    for machine in host._machines.values():
        machine.boot(7)
    opened, begun = len(descriptors() - before), len(provider.calls)

    host._shut_down(superseded)

    gates = [machine._gate for machine in host._machines.values()]
    left, calls = descriptors() ^ before, sorted(provider.calls[begun:])
    return Ending(opened, left, gates, threads_of("gates"), calls, host._side.said, logged.getvalue())


@pytest.mark.parametrize("superseded", [False, True])
def test_whatever_is_open_is_closed_when_a_host_ends(redis_url: str, superseded: bool) -> None:
    ending = elsewhere(ended_host, redis_url, superseded)
    assert ending.opened > 0
    stops = [] if superseded else [("stop", "ending-0"), ("stop", "ending-1")]
    said = [] if superseded else [("retire",)]
    assert ending[1:] == (set(), [None, None], [], stops, said, "")


def superseded_host(redis_url: str) -> tuple[list[bool], Any, list[str]]:
    """Whether the first VM's gate was closed while the jobs were waited for, the second's gate at the end, and threads."""
    host: Any = VMHost(VMPool(redis.Redis.from_url(redis_url), "test"), Provider(), num_vms=2)  # type: ignore[arg-type]
    host._side = Side()
    first, last = host._machines.values()
    first.boot(7)
    gate = first._gate
    closed_while_waiting: list[bool] = []
    wait = host._jobs.wait

    def boot_ends() -> None:
        closed_while_waiting.append(gate._tasks.ended)
        last.boot(8)
        wait()

    host._jobs.wait = boot_ends
    host._shut_down(True)
    return closed_while_waiting, last._gate, threads_of("gates")


def test_a_superseded_hosts_gates_are_closed_before_its_jobs_end_and_those_of_a_last_boot_after(redis_url: str) -> None:
    assert elsewhere(superseded_host, redis_url) == ([True], None, [])


def limit_of_a_host(redis_url: str) -> tuple[int, int]:
    """The soft limit of descriptors that a host has run with, and the hard one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, most))
    host = VMHost(VMPool(redis.Redis.from_url(redis_url), "test"), Provider(), num_vms=1)  # type: ignore[arg-type]
    stop = threading.Event()
    stop.set()
    host.run(stop)
    return resource.getrlimit(resource.RLIMIT_NOFILE)


def test_a_host_may_open_as_many_files_as_its_vms_need(redis_url: str) -> None:
    limit, most = elsewhere(limit_of_a_host, redis_url)
    assert limit == min(most, DESCRIPTORS)


@pytest.mark.parametrize("error", [HostSuperseded("another"), PoolRefused("NOAUTH"), None])
def test_whatever_ends_a_host_its_jobs_are_told_to_stop(
    host: Any, monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    ended: list[tuple[bool, bool, bool]] = []
    stop = threading.Event()

    def serve() -> None:
        if error is not None:
            raise error

    monkeypatch.setattr(host, "_serve_until_stopped", serve)
    monkeypatch.setattr(
        host, "_shut_down", lambda superseded: ended.append((superseded, stop.is_set(), host._jobs.stop is stop))
    )
    with pytest.raises(type(error)) if error is not None else nullcontext():
        host.run(stop)

    assert ended == [(isinstance(error, HostSuperseded), True, True)]


def test_what_redis_does_not_take_at_the_end_is_left_in_the_pool(host: Any, caplog: pytest.LogCaptureFixture) -> None:
    def away() -> None:
        raise PoolUnreachable("gone")

    host._tell_at_the_end(away)
    assert caplog.messages == ["host box: left its entries in the pool: gone"]


# One VM


@pytest.fixture
def gates() -> Iterator[Gates]:
    gates = Gates()
    yield gates
    gates.close()


@pytest.fixture
def machine(provider: Provider, gates: Gates) -> Iterator[Any]:
    machine = Machine("box-0", provider, gates, CleanState())  # type: ignore[arg-type]
    yield machine
    machine.close_gate()


def test_a_boot_begins_with_a_closed_gate_and_a_stopped_vm(machine: Any, provider: Provider) -> None:
    first = machine.boot(7)
    assert (machine._gate_fence, machine.booted, set(first.ports)) == (7, True, {"control", "vnc"})
    seen: list[tuple[str, bool, bool]] = []
    provider.during = lambda call, _vm_id: seen.append((call, machine._gate is None, machine.booted))
    machine.boot(9)
    machine.reset(11)
    assert machine._gate_fence == 11
    machine.stop()
    assert seen == [
        ("stop", True, True), ("boot", True, False), ("check", True, True),
        ("reset", True, True), ("check", True, True), ("stop", True, False),
    ]  # fmt: skip
    assert (machine._gate, machine.booted) == (None, False)


def test_a_boot_that_fails_leaves_nothing_that_counts_as_booted(machine: Any, provider: Provider) -> None:
    machine.boot(7)

    def fail(call: str, _vm_id: str) -> None:
        if call == "boot":
            raise OSError("no disk")

    provider.during = fail
    with pytest.raises(OSError, match="no disk"):
        machine.boot(8)
    assert (machine._gate, machine.booted) == (None, False)


@pytest.mark.parametrize(("before", "closed"), [(None, True), (8, True), (7, False), (6, False)])
def test_a_gate_is_closed_once_and_only_for_what_came_after_it(machine: Any, before: int | None, closed: bool) -> None:
    machine.boot(7)
    gate = machine._gate
    machine.close_gate(before=before)
    assert gate._tasks.ended is closed
    assert (machine._gate is None) is closed
    machine.close_gate(before=before)


def test_what_may_still_run_is_known_until_it_has_been_stopped(machine: Any, provider: Provider) -> None:
    assert machine.may_run, "a predecessor may have left it"
    machine.stop()
    assert not machine.may_run
    provider.during = FirstFails("boot", OSError("no disk"))
    with pytest.raises(OSError, match="no disk"):
        machine.boot(7)
    assert (machine.booted, machine.may_run) == (False, True)
    provider.during = FirstFails("stop", OSError("no answer"))
    with pytest.raises(OSError, match="no answer"):
        machine.stop()
    assert (machine.booted, machine.may_run) == (False, True)
    machine.stop()
    assert (machine.booted, machine.may_run) == (False, False)


def test_a_vm_without_ports_has_no_gate(machine: Any, provider: Provider) -> None:
    provider.ports = {}
    assert machine.boot(7) == Endpoint("10.0.0.1", {})
    assert machine._gate is None
    assert machine.fence == 0
    assert (machine.job, machine.busy) == (None, False)


def test_what_a_reset_left_is_told_from_what_a_boot_showed(machine: Any, provider: Any, monkeypatch: Any) -> None:
    seen = [{"processes": ["a"]}]
    provider.fingerprint = lambda vm_id: seen[0] if vm_id == "box-0" else {}
    monkeypatch.setattr("vm_pool.canary._STEADY_SECONDS", 0.001)
    monkeypatch.setattr(machine._clean.expect.__func__, "__defaults__", (0.0,))
    machine.boot(7)
    machine.reset(8)
    seen[0] = {"processes": ["a", "miner"]}
    with pytest.raises(Drift, match="processes: miner"):
        machine.reset(9)
    assert machine._gate is None
