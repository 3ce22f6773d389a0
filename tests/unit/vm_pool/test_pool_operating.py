"""What an operator's calls return and say, word for word."""

from __future__ import annotations

import os

import pytest
import redis

from vm_pool import AcquireTimeout, Endpoint, PoolEmpty, PoolUnreachable, TransitionRefused, UnknownVM, VMPool, VMState
from vm_pool.host_client import HostClient
from vm_pool.waiting import Request


@pytest.fixture
def vms(pool: VMPool) -> list[str]:
    for number in range(2):
        pool.register(f"vm-{number}", Endpoint("127.0.0.1", {"control": 5000 + number}))
    return ["vm-0", "vm-1"]


def test_a_vm_of_a_host_cannot_be_registered_by_hand(pool: VMPool) -> None:
    side = HostClient(pool, "h", silent_after=60)
    side.trust(side.beat(take_over=True).server)
    side.register("h-0", VMState.INITIALIZING, needs_reset=True, known_fence=0)
    with pytest.raises(TransitionRefused) as refused:
        pool.register("h-0", Endpoint("127.0.0.1"))
    assert str(refused.value) == "h-0 of pool 'test' belongs to host h"


def test_what_is_registered_by_hand_is_free_and_needs_no_reset(pool: VMPool, vms: list[str]) -> None:
    fence = pool.register("vm-2", Endpoint("10.0.0.1", {"control": 1}))
    vm = pool.status().vms[2]
    assert (vm.state, vm.host, vm.needs_reset, vm.fence) == (VMState.FREE, "", False, fence)
    assert vm.endpoint == Endpoint("10.0.0.1", {"control": 1})


@pytest.mark.parametrize("name", ["drain", "undrain", "force_release", "reset"])
def test_of_a_vm_that_is_not_there_nothing_can_be_asked(pool: VMPool, vms: list[str], name: str) -> None:
    with pytest.raises(UnknownVM) as unknown:
        getattr(pool, name)("vm-9")
    assert str(unknown.value) == "pool 'test' has no VM vm-9"


def test_a_lease_is_ended_once(pool: VMPool, vms: list[str]) -> None:
    lease = pool.acquire("me", timeout=5, heartbeat=False)
    assert lease.vm_id == "vm-0"
    pool.force_release("vm-0")
    assert pool.release("vm-0", lease.fence) is False
    pool.quarantine("vm-1", "smoke")
    for vm_id, state in (("vm-0", "free"), ("vm-1", "error")):
        with pytest.raises(TransitionRefused) as refused:
            pool.force_release(vm_id)
        assert str(refused.value) == f"{vm_id} of pool 'test' is {state}: there is no lease to end"


def test_a_quarantine_says_why_and_takes_the_vm_from_its_holder(pool: VMPool, vms: list[str]) -> None:
    lease = pool.acquire("me", timeout=5, heartbeat=False)
    pool.quarantine("vm-0", "smoke")
    assert pool.status().vms[0].error == "quarantined by an operator: smoke"
    assert lease.release() is False
    assert pool.reset("vm-0") is VMState.INITIALIZING
    assert pool.drain("vm-1") is VMState.STOPPED
    with pytest.raises(TransitionRefused) as refused:
        pool.quarantine("vm-1", "smoke")
    assert str(refused.value) == "vm-1 of pool 'test' is stopped: it cannot become error now"


def test_a_vm_moves_under_its_fence_only(pool: VMPool, vms: list[str]) -> None:
    fence = pool.status().vms[1].fence
    with pytest.raises(TransitionRefused) as refused:
        pool.move("vm-1", {VMState.FREE}, VMState.RESETTING, fence=fence + 1)
    assert str(refused.value) == "vm-1 of pool 'test' is free: it cannot become resetting now"
    moved = pool.move("vm-1", {VMState.FREE, VMState.ERROR}, VMState.RESETTING, fence=fence, why="a word")
    assert moved > fence
    assert pool.status().vms[1].fence == moved
    assert pool.reset("vm-0") is VMState.RESETTING


def test_drained_vms_come_back(pool: VMPool, vms: list[str]) -> None:
    lease = pool.acquire("me", timeout=5, heartbeat=False)
    assert [pool.drain(vm_id) for vm_id in vms] == [VMState.LEASED, VMState.STOPPED]
    assert [vm.drained for vm in pool.status().vms] == [True, True]
    assert [pool.undrain(vm_id) for vm_id in vms] == [VMState.LEASED, VMState.FREE]
    assert [vm.drained for vm in pool.status().vms] == [False, False]
    lease.renew()


def test_how_many_there_were_is_told(pool: VMPool, vms: list[str], redis_url: str) -> None:
    assert pool.remove([*vms, "vm-9"]) == 2
    with redis.Redis.from_url(redis_url) as client:
        keys = len(client.keys("*"))
    assert pool.delete() == keys > 0
    assert (pool.delete(), pool.remove(["vm-0"]), pool.reap()) == (0, 0, 0)


def test_events_are_read_from_both_ends(pool: VMPool, vms: list[str]) -> None:
    for holder in ("a", "b"):
        pool.acquire(holder, timeout=5, heartbeat=False).release()
    every = pool.events()
    assert [(event.event, event.holder) for event in every[-4:]] == [
        ("granted", "a"), ("released", "a"), ("granted", "b"), ("released", "b")
    ]  # fmt: skip
    assert pool.events(limit=2) == every[:2]
    assert pool.events(every[1].id, limit=2) == every[2:4]
    assert pool.latest_events(3) == every[-3:]
    assert pool.events(every[-1].id) == []


def test_a_timeout_says_what_the_pool_has_and_the_place_in_the_queue(pool: VMPool, vms: list[str]) -> None:
    for number in range(2):
        pool.acquire(f"holder {number}", timeout=5, heartbeat=False)
    for number in range(2):
        pool._run("acquire", *Request(f"waiter {number}", 0, 60, 60, 60).words(0, False))
    with pytest.raises(AcquireTimeout) as timeout:
        pool.acquire("me", timeout=0)
    assert str(timeout.value) == (
        "me got no VM of pool 'test' within 0 s; place 3 in the queue of 3; the pool has 2 leased"
    )
    assert timeout.value.place == 3
    assert timeout.value.__cause__ is None


def test_an_empty_pool_is_called_that(pool: VMPool) -> None:
    with pytest.raises(PoolEmpty, match=r"; the pool has no VMs$"):
        pool.acquire("me", timeout=0)


def test_where_the_state_is_unknown_the_timeout_says_what_it_knows(
    pool: VMPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away() -> None:
        raise PoolUnreachable("gone")

    monkeypatch.setattr(pool, "status", away)
    error = AcquireTimeout("no VM came")
    assert pool._with_state(error) is error


def test_a_process_has_one_heartbeat_and_a_child_its_own(pool: VMPool, monkeypatch: pytest.MonkeyPatch) -> None:
    own = pool._heartbeat()
    assert pool._heartbeat() is own
    assert (own._renew, own._pool, own._breaks) == (pool.renew, "test", pool.breaks)
    number = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: number + 1)
    assert pool._heartbeat() is not own
