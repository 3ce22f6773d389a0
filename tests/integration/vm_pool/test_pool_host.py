"""A machine's VMs from boot to stop: resets, quarantine, health, drains, take-over, silence."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis

from tests.conftest import ValkeyServer
from vm_pool import VM, AcquireTimeout, Endpoint, Lease, PoolError, TransitionRefused, VMPool, VMState
from vm_pool.errors import HostSuperseded
from vm_pool.host import VMHost
from vm_pool.host_client import Beat, HostClient
from vm_pool.providers.simulated import SimulatedProvider
from vm_pool.unpooled import unpooled_vm

ACTORS = Path(__file__).with_name("actors.py")
QUICK = {"boot_seconds": 0.02, "reset_seconds": 0.02}


def until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.005)


class RecordingProvider(SimulatedProvider):
    """The simulated provider, telling what was asked of it; single VMs can be broken."""

    def __init__(self, options: dict[str, object]) -> None:
        super().__init__(options)
        self.calls: list[tuple[str, str]] = []
        self.broken: set[str] = set()
        self.leftovers: tuple[str, ...] = ()

    def boot(self, vm_id: str) -> Endpoint:
        self.calls.append(("boot", vm_id))
        return super().boot(vm_id)

    def check(self, vm_id: str) -> None:
        self.calls.append(("check", vm_id))
        if vm_id in self.broken:
            raise RuntimeError(f"no screenshot from {vm_id}")
        super().check(vm_id)

    def reset(self, vm_id: str) -> Endpoint:
        self.calls.append(("reset", vm_id))
        return super().reset(vm_id)

    def stop(self, vm_id: str) -> None:
        self.calls.append(("stop", vm_id))
        super().stop(vm_id)

    def reap_leftovers(self, host_id: str) -> tuple[str, ...]:
        self.calls.append(("reap_leftovers", host_id))
        return self.leftovers


class RunningHost:
    def __init__(self, host: VMHost) -> None:
        self.host = host
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.host.run()
        except PoolError as error:
            self.error = error

    def end(self) -> None:
        self.host.stop()
        self.thread.join(30)
        assert not self.thread.is_alive()


@pytest.fixture
def start(redis_url: str) -> Iterator[Callable[..., RunningHost]]:
    with ExitStack() as ends:

        def start(provider: SimulatedProvider, num_vms: int, host_id: str = "box", **options: object) -> RunningHost:
            settings = {"retry_after": (0.05, 0.2), **options}
            pool = VMPool(redis.Redis.from_url(redis_url), "test")
            running = RunningHost(VMHost(pool, provider, num_vms=num_vms, host_id=host_id, **settings))
            ends.callback(running.end)
            return running

        yield start


def states(pool: VMPool) -> list[VMState]:
    return [vm.state for vm in pool.status().vms]


def all_free(pool: VMPool, number: int) -> Callable[[], bool]:
    return lambda: states(pool) == [VMState.FREE] * number


def test_vms_are_booted_in_parallel_checked_and_offered(pool: VMPool, start: Callable[..., RunningHost]) -> None:
    both_boot = threading.Barrier(2, timeout=20)

    class MeetingProvider(RecordingProvider):
        def boot(self, vm_id: str) -> Endpoint:
            both_boot.wait()
            return super().boot(vm_id)

    provider = MeetingProvider(QUICK)
    start(provider, 2)
    until(all_free(pool, 2))
    assert provider.calls[0] == ("reap_leftovers", "box")
    for vm_id in ("box-0", "box-1"):
        own = [call for call, target in provider.calls if target == vm_id]
        assert own == ["stop", "boot", "check"]
    assert [vm.endpoint.address for vm in pool.status().vms] == ["127.0.0.1"] * 2


def test_a_released_vm_is_reset_and_checked_before_the_next_grant(
    pool: VMPool, start: Callable[..., RunningHost]
) -> None:
    provider = RecordingProvider(QUICK)
    start(provider, 1)
    for _ in range(20):
        with pool.acquire("me", timeout=30):
            provider.calls.append(("use", "box-0"))
    calls = [call for call, target in provider.calls if target == "box-0"]
    assert calls[:4] == ["stop", "boot", "check", "use"]
    assert calls[4:61] == ["reset", "check", "use"] * 19
    assert pool.status().counters["granted"] == 20


def test_old_news_of_a_vm_do_not_have_it_booted_again(
    pool: VMPool, start: Callable[..., RunningHost], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host hears that its VM is booting; when it comes to act on that, the boot is done and the VM is lent out."""
    may_boot = threading.Event()
    leases: list[Lease] = []
    beats_since: list[float] = []

    class WaitingProvider(RecordingProvider):
        def boot(self, vm_id: str) -> Endpoint:
            endpoint = super().boot(vm_id)
            assert may_boot.wait(60)
            return endpoint

    def late(side: HostClient, **options: bool) -> Beat:
        news = beat(side, **options)
        if leases:
            beats_since.append(time.monotonic())
        elif ("boot", "box-0") in provider.calls:
            may_boot.set()
            leases.append(pool.acquire("me", timeout=60))
            until(lambda: bool(running) and not running[0].host._machines["box-0"].busy)
        return news

    beat = HostClient.beat
    monkeypatch.setattr(HostClient, "beat", late)
    provider = WaitingProvider(QUICK)
    running: list[RunningHost] = []
    running.append(start(provider, 1))

    until(lambda: len(beats_since) > 0 and not running[0].host._machines["box-0"].busy)

    assert [call for call, _ in provider.calls].count("boot") == 1
    leases[0].check()


def test_failing_resets_quarantine_until_they_succeed_again(
    pool: VMPool, start: Callable[..., RunningHost], tmp_path: Path
) -> None:
    trouble = tmp_path / "resets-fail"
    provider = RecordingProvider({**QUICK, "fail_resets_while": str(trouble)})
    start(provider, 1)
    until(all_free(pool, 1))
    trouble.touch()
    pool.acquire("me", timeout=5).release()

    until(lambda: any(event.event == "quarantined" for event in pool.events()))
    until(all_free(pool, 1))  # from quarantine a VM is booted anew

    events = [event.event for event in pool.events()]
    assert events[events.index("quarantined") :] == ["quarantined", "boot_begun", "booted"]
    trouble.unlink()
    pool.acquire("me", timeout=5).release()
    until(lambda: pool.status().counters.get("reset_done") == 1)
    assert pool.status().vms[0].failures == 0


def test_a_vm_that_does_not_boot_is_tried_ever_more_rarely(pool: VMPool, start: Callable[..., RunningHost]) -> None:
    provider = RecordingProvider({**QUICK, "boot_failure": 1.0})
    start(provider, 1, retry_after=(0.02, 60.0))
    seen: list[VM] = []
    until(
        lambda: [seen.append(vm) for vm in pool.status().vms if vm.failures >= 4 and vm.state is VMState.ERROR] and seen
    )
    vm = seen[0]
    assert "boot of box-0 failed by chance" in vm.error
    assert vm.retry_at is not None
    quarantined = [event for event in pool.events() if event.event == "quarantined"]
    begun = [event for event in pool.events() if event.event == "boot_begun"]
    delays = [after.at - before.at for before, after in zip(quarantined, begun, strict=False)]
    assert all(delay >= 0.019 * 2**number for number, delay in enumerate(delays))
    with pytest.raises(AcquireTimeout, match=r"the pool has 1 (error|initializing)"):
        pool.acquire("me", timeout=0)


def test_a_vm_that_is_not_well_after_its_reset_is_stopped_at_once(
    pool: VMPool, start: Callable[..., RunningHost]
) -> None:
    provider = RecordingProvider(QUICK)
    start(provider, 1, retry_after=(60.0, 60.0))
    until(all_free(pool, 1))
    provider.broken.add("box-0")
    pool.acquire("me", timeout=5).release()
    until(lambda: states(pool) == [VMState.ERROR])
    assert provider.calls[-3:] == [("reset", "box-0"), ("check", "box-0"), ("stop", "box-0")]


def test_a_free_vm_that_stops_answering_is_reset(pool: VMPool, start: Callable[..., RunningHost]) -> None:
    provider = RecordingProvider(QUICK)
    start(provider, 2, check_every=0.1)
    until(all_free(pool, 2))
    provider.broken.add("box-1")
    until(lambda: pool.status().vms[1].state is VMState.ERROR)
    assert "no screenshot from box-1" in pool.status().vms[1].error
    provider.broken.clear()
    until(all_free(pool, 2))
    assert pool.acquire("me", timeout=5).vm_id in ("box-0", "box-1")


def test_a_host_outlives_a_redis_without_memory(
    pool: VMPool, client: redis.Redis, start: Callable[..., RunningHost], caplog: pytest.LogCaptureFixture
) -> None:
    provider = RecordingProvider(QUICK)
    running = start(provider, 1, silent_after=0.3)
    until(all_free(pool, 1))
    lease = pool.acquire("me", timeout=5)
    client.config_set("maxmemory", 1)
    try:
        until(lambda: "waiting for Redis" in caplog.text)
        time.sleep(1.5)  # for more tries, of which nothing is said
    finally:
        client.config_set("maxmemory", 0)
    lease.release()
    until(all_free(pool, 1))
    assert running.thread.is_alive()
    until(lambda: "Redis answers again" in caplog.text)
    time.sleep(0.5)
    said = [
        one.message.partition(": ")[2]
        for one in caplog.records
        if one.name == "vm_pool.host" and "Redis" in one.message
    ]
    assert [sentence.partition(" at ")[0] for sentence in said] == ["waiting for Redis: Redis", "Redis answers again"]


def test_stopping_ends_every_vm_and_leaves_no_entry(
    pool: VMPool, client: redis.Redis, start: Callable[..., RunningHost]
) -> None:
    provider = RecordingProvider(QUICK)
    running = start(provider, 3)
    until(all_free(pool, 3))
    held = pool.acquire("me", timeout=5, ttl=0.3)
    running.end()
    assert {target for call, target in provider.calls[-3:] if call == "stop"} == {"box-0", "box-1", "box-2"}
    assert held.lost.wait(10)
    assert sorted(client.keys("*")) == ["{pool:test}:counters", "{pool:test}:events"]


def test_stopping_in_the_middle_of_a_boot_does_not_wait_for_it(pool: VMPool, start: Callable[..., RunningHost]) -> None:
    running = start(RecordingProvider({"boot_seconds": 3600}), 2)
    until(lambda: states(pool) == [VMState.INITIALIZING] * 2)
    running.end()
    assert pool.status().vms == ()


def test_a_drained_vm_is_stopped_after_its_use_and_comes_back(pool: VMPool, start: Callable[..., RunningHost]) -> None:
    provider = RecordingProvider(QUICK)
    start(provider, 2)
    until(all_free(pool, 2))
    lease = pool.acquire("me", timeout=5)
    assert pool.drain(lease.vm_id) is VMState.LEASED
    other = ({"box-0", "box-1"} - {lease.vm_id}).pop()
    assert pool.drain(other) is VMState.STOPPED
    lease.check()
    with pytest.raises(AcquireTimeout):
        pool.acquire("you", timeout=0)

    lease.release()

    until(lambda: states(pool) == [VMState.STOPPED] * 2)
    for vm_id in ("box-0", "box-1"):
        until(lambda vm_id=vm_id: provider.calls.count(("stop", vm_id)) == 2)
    for vm_id in ("box-0", "box-1"):
        pool.undrain(vm_id)
    until(all_free(pool, 2))


def test_an_operators_quarantine_lasts_until_a_reset(pool: VMPool, start: Callable[..., RunningHost]) -> None:
    provider = RecordingProvider(QUICK)
    start(provider, 1, silent_after=0.3)
    until(all_free(pool, 1))
    lease = pool.acquire("me", timeout=5, heartbeat=False)
    pool.quarantine("box-0", "smells of smoke")
    until(lambda: provider.calls[-1] == ("stop", "box-0"))
    time.sleep(0.5)  # several beats of the host
    vm = pool.status().vms[0]
    assert (vm.state, vm.retry_at) == (VMState.ERROR, None)
    assert "smells of smoke" in vm.error
    assert lease.release() is False
    assert (pool.drain("box-0"), pool.undrain("box-0")) == (VMState.ERROR, VMState.ERROR)
    time.sleep(0.5)
    assert pool.status().vms[0] == vm, "draining does not end it"
    pool.drain("box-0")
    assert pool.reset("box-0") is VMState.INITIALIZING
    until(lambda: pool.status().vms[0].state is VMState.STOPPED)
    pool.undrain("box-0")
    until(all_free(pool, 1))
    pool.quarantine("box-0", "smells again")
    assert pool.reset("box-0") is VMState.INITIALIZING
    until(all_free(pool, 1))
    assert pool.status().vms[0].error == ""
    with pytest.raises(TransitionRefused, match="box-0 of pool 'test' is free"):
        pool.force_release("box-0")


def test_a_successor_takes_over_from_a_silent_host_which_gives_up(
    pool: VMPool, start: Callable[..., RunningHost], monkeypatch: pytest.MonkeyPatch
) -> None:
    old = start(RecordingProvider(QUICK), 3, silent_after=0.6)
    until(all_free(pool, 3))
    lease = pool.acquire("me", timeout=5, ttl=0.5)
    fences = {vm.vm_id: vm.fence for vm in pool.status().vms}
    paused, go_on = threading.Event(), threading.Event()
    serve_once = old.host._serve_once

    def pause() -> float:
        paused.set()
        assert go_on.wait(60)
        return serve_once()

    monkeypatch.setattr(old.host, "_serve_once", pause)
    assert paused.wait(30)

    start(RecordingProvider(QUICK), 2)
    until(all_free(pool, 2))
    go_on.set()

    old.thread.join(20)
    assert isinstance(old.error, HostSuperseded)
    taken_over = {"box-0", "box-1"}
    assert not [event for event in pool.events() if event.event == "removed" and event.vm_id in taken_over]
    assert lease.lost.wait(10)
    until(all_free(pool, 2))
    assert all(vm.fence > fences[vm.vm_id] for vm in pool.status().vms)


def test_a_killed_hosts_vms_are_not_granted_and_its_successor_brings_them_back(
    pool: VMPool, redis_url: str, start: Callable[..., RunningHost]
) -> None:
    process = subprocess.Popen(
        [sys.executable, str(ACTORS), "host", redis_url, "2", "box"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stderr=subprocess.DEVNULL,
    )
    try:
        until(all_free(pool, 2))
        lease = pool.acquire("me", timeout=5, ttl=20)
        process.send_signal(signal.SIGKILL)
        process.wait()
        until(lambda: not any(vm.host_heard for vm in pool.status().vms))
        with pytest.raises(AcquireTimeout, match=r"1 leased, 1 silent \(no sign of life from box\)"):
            pool.acquire("you", timeout=0)
        lease.check()

        start(RecordingProvider(QUICK), 2)

        until(all_free(pool, 2))
        with pytest.raises(PoolError):
            lease.renew()
    finally:
        process.kill()
        process.wait()


def be_silent(pool: VMPool, host: str) -> None:
    """Makes the host's last sign of life so old that it counts as silent."""
    pool.redis.call("ZADD", f"{{pool:{pool.name}}}:timers", "XX", 1, f"host:{host}")


def test_a_silent_hosts_vms_are_granted_again_once_it_is_heard(pool: VMPool, client: redis.Redis) -> None:
    side = HostClient(pool, "slow", silent_after=30)
    side.trust(side.beat(take_over=True).server)
    fence = side.register("slow-0", VMState.INITIALIZING, needs_reset=True, known_fence=0)
    side.ready("slow-0", fence, Endpoint("127.0.0.1"))
    be_silent(pool, "slow")
    with pytest.raises(AcquireTimeout):
        pool.acquire("me", timeout=0)
    assert pool.status().vms[0].state is VMState.FREE
    side.beat()
    assert pool.acquire("me", timeout=0).vm_id == "slow-0"


def test_a_vm_reported_in_a_silence_that_nobody_noticed_is_granted_once_its_host_is_heard(pool: VMPool) -> None:
    side = HostClient(pool, "slow", silent_after=30)
    side.trust(side.beat(take_over=True).server)
    fence = side.register("slow-0", VMState.INITIALIZING, needs_reset=True, known_fence=0)
    be_silent(pool, "slow")
    side.ready("slow-0", fence, Endpoint("127.0.0.1"))
    side.beat()
    assert pool.acquire("me", timeout=0).vm_id == "slow-0"


def test_nothing_is_left_of_a_lost_host_whose_vms_were_removed(pool: VMPool, client: redis.Redis) -> None:
    side = HostClient(pool, "lost", silent_after=0.05)
    side.beat(take_over=True)
    side.register("lost-0", VMState.INITIALIZING, needs_reset=True, known_fence=0)
    time.sleep(0.06)
    pool.reap()
    assert pool.remove(["lost-0"]) == 1
    assert sorted(client.keys("*")) == ["{pool:test}:counters", "{pool:test}:events"]


def test_a_predecessors_free_vms_are_not_granted_until_registered_anew(pool: VMPool, hand_host: Callable) -> None:
    hand_host(1, silent_after=0.1)
    time.sleep(0.12)
    successor = HostClient(pool, "hand", silent_after=60)
    beat = successor.beat(take_over=True)
    assert [vm.state for vm in beat.vms] == [VMState.FREE]
    successor.beat()
    with pytest.raises(AcquireTimeout):
        pool.acquire("me", timeout=0)
    successor.trust(beat.server)
    fence = successor.register("hand-0", VMState.INITIALIZING, needs_reset=True, known_fence=0)
    successor.beat()
    successor.ready("hand-0", fence, Endpoint("127.0.0.1"))
    assert pool.acquire("me", timeout=0).vm_id == "hand-0"


def test_two_hosts_serve_one_pool_and_cannot_have_the_same_vm(pool: VMPool, start: Callable[..., RunningHost]) -> None:
    start(RecordingProvider(QUICK), 1, host_id="east")
    start(RecordingProvider(QUICK), 1, host_id="west")
    until(all_free(pool, 2))
    intruder = HostClient(pool, "north", silent_after=60)
    intruder.beat(take_over=True)
    with pytest.raises(TransitionRefused, match="east-0 of pool 'test' belongs to host east"):
        intruder.register("east-0", VMState.INITIALIZING, needs_reset=True, known_fence=0)


def test_a_vm_of_ones_own_is_stopped_whatever_happened() -> None:
    provider = RecordingProvider(QUICK)
    with unpooled_vm(provider, "mine-0") as vm:
        vm.check()
        assert (vm.vm_id, vm.address) == ("mine-0", "127.0.0.1")
    with pytest.raises(ZeroDivisionError), unpooled_vm(provider, "mine-1"):
        _ = 1 / 0
    assert [call for call, _target in provider.calls] == ["reap_leftovers", "boot", "check", "stop"] * 2


def test_a_vm_of_ones_own_that_does_not_come_up_is_stopped_too() -> None:
    provider = RecordingProvider({**QUICK, "boot_failure": 1.0})
    with pytest.raises(RuntimeError, match="boot of mine-0 failed"), unpooled_vm(provider, "mine-0"):
        pytest.fail("was handed out")
    assert provider.calls[-1] == ("stop", "mine-0")


def test_a_host_that_starts_while_redis_refuses_waits_until_it_does_not(valkey: ValkeyServer) -> None:
    with redis.Redis.from_url(valkey.url) as client:
        pool = VMPool(client, "test")
        client.config_set("maxmemory", 1)
        running = RunningHost(VMHost(pool, RecordingProvider(QUICK), num_vms=1, host_id="box"))
        try:
            time.sleep(0.5)
            assert running.thread.is_alive(), running.error
            client.config_set("maxmemory", 0)
            until(all_free(pool, 1))
        finally:
            running.end()
