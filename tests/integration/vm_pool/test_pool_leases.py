"""One lease from grant to end: who may renew and release it, how long it lives, what its holder notices."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
import redis

from vm_pool import Endpoint, LeaseLost, PoolRefused, PoolUnreachable, VMPool, VMState
from vm_pool.waiting import Request


def test_a_lease_carries_the_vm_and_ends_in_a_reset(pool: VMPool, hand_host: Callable) -> None:
    host = hand_host(1)

    with pool.acquire("rollout 7#0", timeout=1) as lease:
        assert (lease.vm_id, lease.address, lease.ports) == ("hand-0", "127.0.0.1", {"control": 5000})
        lease.check()
        vm = pool.status().vms[0]
        assert (vm.state, vm.holder, vm.fence) == (VMState.LEASED, "rollout 7#0", lease.fence)

    assert pool.status().vms[0].state is VMState.RESETTING
    assert host.finish_resets() == ["hand-0"]
    assert pool.status().vms[0].state is VMState.FREE


def test_each_grant_has_a_higher_fence(pool: VMPool, hand_host: Callable) -> None:
    host = hand_host(1)
    fences = []
    for _ in range(5):
        with pool.acquire("me", timeout=1) as lease:
            fences.append(lease.fence)
        host.finish_resets()
    assert fences == sorted(set(fences))


def test_fences_grow_across_a_loss_of_all_data(pool: VMPool, client: redis.Redis, hand_host: Callable) -> None:
    hand_host(1)
    before = pool.acquire("me", timeout=1).fence
    client.flushall()
    hand_host(1)
    assert pool.acquire("me", timeout=1).fence > before


def test_a_fence_the_host_remembers_is_exceeded_even_if_the_servers_clock_went_back(
    pool: VMPool, client: redis.Redis, hand_host: Callable
) -> None:
    host = hand_host(1)
    remembered = pool.acquire("me", timeout=1).fence + 10**15
    client.flushall()
    host.side.beat()
    fence = host.side.register("hand-0", VMState.RESETTING, needs_reset=True, known_fence=remembered)
    host.side.ready("hand-0", fence, Endpoint("127.0.0.1"))
    assert pool.acquire("me", timeout=1).fence > remembered


def test_release_is_harmless_when_repeated_or_stale(pool: VMPool, hand_host: Callable) -> None:
    host = hand_host(1)
    first = pool.acquire("first", timeout=1)
    assert first.release() is True
    assert first.release() is False
    host.finish_resets()
    second = pool.acquire("second", timeout=1)

    assert pool.release(second.vm_id, first.fence) is False
    assert pool.release("no-such-vm", first.fence) is False
    second.renew()
    assert pool.status().vms[0].holder == "second"


def test_a_stale_fence_is_not_renewed(pool: VMPool, hand_host: Callable) -> None:
    host = hand_host(1)
    stale = pool.acquire("first", timeout=1, heartbeat=False)
    pool.release(stale.vm_id, stale.fence)
    host.finish_resets()
    current = pool.acquire("second", timeout=1, heartbeat=False)

    with pytest.raises(LeaseLost, match="hand-0 in pool 'test' by first is over: its renewal was refused"):
        stale.renew()

    assert stale.lost.is_set()
    current.renew()


def test_an_expired_lease_is_reset_and_its_holder_notices(pool: VMPool, hand_host: Callable) -> None:
    host = hand_host(1)
    lease = pool.acquire("slow", timeout=1, ttl=0.05, heartbeat=False)
    time.sleep(0.06)

    with pytest.raises(LeaseLost, match="not renewed before its deadline"):
        lease.check()
    assert pool.reap() == 1
    assert pool.status().vms[0].state is VMState.RESETTING
    assert lease.release() is False
    host.finish_resets()
    assert pool.status().vms[0].state is VMState.FREE
    assert [event.event for event in pool.events()][-3:] == ["granted", "expired", "reset_done"]


def test_the_local_deadline_is_never_later_than_the_servers(pool: VMPool, hand_host: Callable) -> None:
    hand_host(1)
    lease = pool.acquire("me", timeout=1, ttl=30)
    status = pool.status()
    left_on_server = status.vms[0].deadline - status.at
    assert lease.deadline - time.monotonic() <= left_on_server


def test_the_deadline_after_a_renewal_is_never_later_than_the_servers(pool: VMPool, hand_host: Callable) -> None:
    hand_host(1)
    lease = pool.acquire("me", timeout=1, ttl=30, heartbeat=False)
    first = lease.deadline
    time.sleep(0.05)

    lease.renew()

    status = pool.status()
    assert first < lease.deadline
    assert lease.deadline - time.monotonic() <= status.vms[0].deadline - status.at
    assert lease.deadline > time.monotonic() + 25


def test_a_ctrl_c_as_the_lease_is_made_gives_the_vm_back(
    pool: VMPool, hand_host: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand_host(1)
    start = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            pool.acquire("me", timeout=20)

    assert pool.status().vms[0].state is VMState.RESETTING


def test_the_heartbeat_keeps_a_lease_far_beyond_its_ttl(pool: VMPool, hand_host: Callable) -> None:
    hand_host(2)
    with pool.acquire("a", timeout=1, ttl=1.5) as one, pool.acquire("b", timeout=1, ttl=1.5) as two:
        assert not one.lost.wait(3.5)
        one.check()
        two.check()
        assert pool.reap() == 0
    assert pool.status().counters["released"] == 2


def test_one_heartbeat_thread_serves_all_leases_and_restarts_after_it_was_idle(
    client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vm_pool.heartbeat.IDLE_SECONDS", 0.05)
    pool = VMPool(client, "threads")
    for number in range(2):
        pool.register(f"vm-{number}", Endpoint("127.0.0.1"))
    name = "leases of threads"

    def threads() -> int:
        return sum(thread.name == name for thread in threading.enumerate())

    leases = [pool.acquire(f"holder {n}", timeout=1, ttl=1.5) for n in range(2)]
    assert threads() == 1
    for lease in leases:
        lease.release()
    deadline = time.monotonic() + 60
    while threads() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threads() == 0
    last = pool.acquire("late", timeout=1, ttl=1.5)
    assert not last.lost.wait(2)


def test_the_heartbeat_reports_a_lease_taken_away(pool: VMPool, hand_host: Callable) -> None:
    hand_host(1)
    lease = pool.acquire("me", timeout=1, ttl=0.3)
    pool.force_release(lease.vm_id)
    assert lease.lost.wait(10)
    with pytest.raises(LeaseLost):
        lease.check()


def test_maximum_age_ends_a_lease_that_is_renewed_for_ever(pool: VMPool, hand_host: Callable) -> None:
    hand_host(1)
    lease = pool.acquire("for ever", timeout=1, ttl=0.3, max_age=0.8)
    assert lease.lost.wait(10)
    pool.reap()
    assert pool.status().vms[0].state is VMState.RESETTING


def test_the_same_token_finds_its_own_grant(pool: VMPool, hand_host: Callable) -> None:
    hand_host(2)
    first = pool.acquire("me", timeout=1, token="request-1")
    again = pool.acquire("me", timeout=1, token="request-1")
    assert (again.vm_id, again.fence) == (first.vm_id, first.fence)
    assert pool.status().counts() == {VMState.LEASED: 1, VMState.FREE: 1}


def test_a_vm_that_needs_no_reset_goes_straight_to_the_next(pool: VMPool) -> None:
    pool.register("licence-1", Endpoint("127.0.0.1"))
    with pool.acquire("a", timeout=1) as first:
        pass
    with pool.acquire("b", timeout=1) as second:
        assert second.fence > first.fence
    assert pool.status().vms[0].state is VMState.FREE


def test_counters_add_up(pool: VMPool, hand_host: Callable) -> None:
    host = hand_host(1)
    pool.acquire("released", timeout=1).release()
    host.finish_resets()
    pool.acquire("expired", timeout=1, ttl=0.01, heartbeat=False)
    time.sleep(0.02)
    pool.reap()
    host.finish_resets()
    pool.acquire("revoked", timeout=1, heartbeat=False)
    pool.force_release("hand-0")
    host.finish_resets()
    pool.acquire("held", timeout=1, heartbeat=False)
    counters = pool.status().counters
    pool.remove(["hand-0"])

    assert {name: counters[name] for name in ("granted", "released", "expired", "revoked", "reset_done")} == {
        "granted": 4,
        "released": 1,
        "expired": 1,
        "revoked": 1,
        "reset_done": 3,
    }
    after = pool.status().counters
    assert (after["granted"], after["released"], after["revoked"]) == (4, 1, 2)


def test_the_event_stream_can_be_followed(pool: VMPool, hand_host: Callable) -> None:
    hand_host(1)
    seen = pool.events()
    with pool.acquire("a holder with spaces", timeout=1) as lease:
        pass
    news = pool.events(seen[-1].id)
    assert [(event.event, event.vm_id, event.fence, event.holder) for event in news] == [
        ("granted", "hand-0", lease.fence, "a holder with spaces"),
        ("released", "hand-0", lease.fence, "a holder with spaces"),
    ]
    assert pool.latest_events(1) == news[-1:]


def test_the_event_stream_is_bounded(client: redis.Redis) -> None:
    pool = VMPool(client, "short", events_kept=100)
    pool.register("vm", Endpoint("127.0.0.1"))
    for _ in range(500):
        pool.acquire("me", timeout=1, heartbeat=False).release()
    assert 100 <= client.xlen("{pool:short}:events") < 400


def test_pools_do_not_touch_each_other_and_leave_nothing(client: redis.Redis) -> None:
    one, other = VMPool(client, "one"), VMPool(client, "other")
    one.register("vm", Endpoint("127.0.0.1"))
    other.register("vm", Endpoint("127.0.0.1"))
    held = one.acquire("me", timeout=1, heartbeat=False)
    other.delete()
    held.renew()
    assert all(key.startswith("{pool:one}:") for key in client.keys("*"))
    one.delete()
    assert client.keys("*") == []


def test_a_wrong_password_is_refused_at_once_without_being_shown(redis_url: str) -> None:
    port = redis.Redis.from_url(redis_url).connection_pool.connection_kwargs["port"]
    pool = VMPool(redis.Redis(port=port, password="hunter2"), "test")
    with pytest.raises(
        PoolRefused, match="refuses the login: check the user and the password in its URL, REDIS_URL by default"
    ) as caught:
        pool.acquire("me", timeout=30)
    assert "hunter2" not in str(caught.value)


def test_an_unreachable_server_is_named(unused_port: int) -> None:
    pool = VMPool(redis.Redis(port=unused_port), "test")
    with pytest.raises(PoolUnreachable, match=f"localhost:{unused_port} does not answer"):
        pool.status()


@pytest.fixture
def unused_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize(
    "wrong", [{"ttl": 0}, {"ttl": -1}, {"max_age": 0}, {"timeout": -1}, {"priority": 101}, {"priority": -101}]
)
def test_impossible_terms_are_refused(pool: VMPool, wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        pool.acquire("me", **wrong)


@pytest.mark.parametrize("holder", ["", "x" * 257])
def test_a_holder_must_say_who_it_is(holder: str) -> None:
    with pytest.raises(ValueError, match="holder"):
        Request(holder, 0, 1, 1, 1)


@pytest.mark.parametrize("name", ["", "a b", "a{b}", "x" * 65, "a:b", "a\n"])
def test_a_pools_name_cannot_leave_its_keys(client: redis.Redis, name: str) -> None:
    with pytest.raises(ValueError, match="is not a pool's name"):
        VMPool(client, name)


@pytest.mark.parametrize("vm_id", ["", "a b", "a{b}", "../x", "x" * 129, "a\n"])
def test_a_vms_id_cannot_leave_its_keys(pool: VMPool, vm_id: str) -> None:
    with pytest.raises(ValueError, match="is not a VM's id"):
        pool.register(vm_id, Endpoint("127.0.0.1"))
