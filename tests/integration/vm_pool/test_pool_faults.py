"""Replies that are lost, processes that are killed or paused, Redis that goes away or forgets."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis

from tests.conftest import ValkeyServer
from vm_pool import AcquireTimeout, Endpoint, LeaseLost, PoolError, VMPool, VMState
from vm_pool import waiting as waiting_module
from vm_pool.lua_scripts import scripts

ACTORS = Path(__file__).with_name("actors.py")


def until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.01)


class Actor:
    """A process of `actors.py`."""

    def __init__(self, *args: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(ACTORS), *args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            start_new_session=True,
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def order(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("touch\n")
        self.process.stdin.flush()

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()

    def end_all(self) -> None:
        """With every process that it forked."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()


@pytest.fixture
def actor() -> Iterator[Callable[..., Actor]]:
    with ExitStack() as ends:

        def start(*args: str) -> Actor:
            actor = Actor(*args)
            ends.callback(actor.end)
            return actor

        yield start


def states(pool: VMPool) -> list[VMState]:
    """Of every VM; nothing while Redis is away."""
    try:
        return [vm.state for vm in pool.status().vms]
    except PoolError:
        return []


def all_free(pool: VMPool, number: int) -> Callable[[], bool]:
    return lambda: states(pool) == [VMState.FREE] * number


@pytest.mark.parametrize("warm", [True, False], ids=["on a connection in use", "on a new connection"])
def test_a_grant_whose_reply_was_lost_is_found_again(
    pool: VMPool, pool_through_proxy: VMPool, proxy: object, hand_host: Callable, warm: bool
) -> None:
    hand_host(2)
    if warm:
        pool_through_proxy.status()
    proxy.lose_reply_to = b"EVAL"

    lease = pool_through_proxy.acquire("unlucky", timeout=20)

    assert proxy.lost == 1
    assert pool.status().counts() == {VMState.LEASED: 1, VMState.FREE: 1}
    assert pool.status().counters["granted"] == 1
    lease.renew()


def test_a_hand_over_whose_message_was_lost_is_found_again(
    pool: VMPool, pool_through_proxy: VMPool, proxy: object, hand_host: Callable
) -> None:
    host = hand_host(1)
    held = pool.acquire("now", timeout=1)
    proxy.lose_reply_to = b"BLPOP"
    with ThreadPoolExecutor(1) as executor:
        waiter = executor.submit(pool_through_proxy.acquire, "unlucky", timeout=30)
        until(lambda: len(pool.status().waiters) == 1 and proxy.lose_reply_to is None)
        held.release()
        host.finish_resets()
        lease = waiter.result(30)
    assert proxy.lost == 1
    assert lease.holder == "unlucky"
    assert pool.status().counters["granted"] == 2
    lease.renew()


def test_a_release_whose_reply_was_lost_ends_the_lease_once(
    pool: VMPool, pool_through_proxy: VMPool, proxy: object, hand_host: Callable
) -> None:
    hand_host(1)
    lease = pool_through_proxy.acquire("unlucky", timeout=20)
    proxy.lose_reply_to = scripts()["release"].sha.encode()
    lease.release()
    assert [event.event for event in pool.latest_events(2)] == ["granted", "released"]


def test_a_lease_cut_off_from_redis_is_lost_at_its_deadline_and_not_before(
    pool: VMPool, pool_through_proxy: VMPool, proxy: object, hand_host: Callable
) -> None:
    host = hand_host(1)
    lease = pool_through_proxy.acquire("cut off", timeout=20, ttl=1.5)
    granted_at = time.monotonic()
    proxy.cut()

    assert lease.lost.wait(30)

    assert time.monotonic() >= granted_at + 1.0  # renewed never, lost not at the first failure
    with pytest.raises(LeaseLost, match=r"Redis could not be reached until its deadline|not renewed before"):
        lease.check()
    until(lambda: pool.reap() == 1 or states(pool) == [VMState.RESETTING])
    host.finish_resets()
    pool.acquire("next", timeout=5).check()
    proxy.mend()
    assert lease.release() is False


def test_a_lease_survives_a_cut_shorter_than_its_ttl(
    pool: VMPool, pool_through_proxy: VMPool, proxy: object, hand_host: Callable
) -> None:
    hand_host(1)
    lease = pool_through_proxy.acquire("cut off", timeout=20, ttl=6)
    first_deadline = lease.deadline
    proxy.cut()
    time.sleep(2.5)
    proxy.mend()
    until(lambda: lease.deadline > first_deadline)
    lease.check()
    assert lease.release() is True


def test_waiting_goes_on_through_a_cut(
    pool: VMPool, pool_through_proxy: VMPool, proxy: object, hand_host: Callable
) -> None:
    host = hand_host(1)
    held = pool.acquire("now", timeout=1)
    with ThreadPoolExecutor(1) as executor:
        waiter = executor.submit(pool_through_proxy.acquire, "patient", timeout=60)
        until(lambda: len(pool.status().waiters) == 1)
        proxy.cut()
        held.release()
        host.finish_resets()
        time.sleep(0.3)
        proxy.mend()
        assert waiter.result(30).holder == "patient"


def test_a_wait_ends_at_its_deadline_also_without_redis(pool_through_proxy: VMPool, proxy: object) -> None:
    proxy.cut()
    with pytest.raises(AcquireTimeout, match=r"me got no VM of pool 'test' within 0.5 s; Redis at .* does not answer"):
        pool_through_proxy.acquire("me", timeout=0.5)


def test_a_killed_waiter_is_passed_over(
    pool: VMPool, redis_url: str, hand_host: Callable, actor: Callable[..., Actor]
) -> None:
    host = hand_host(1)
    held = pool.acquire("now", timeout=1)
    doomed = actor("hold", redis_url, "60")
    until(lambda: len(pool.status().waiters) == 1)
    doomed.end()
    until(lambda: pool.reap() >= 1 or pool.status().waiters == (), waiting_module.PATIENCE_SECONDS + 20)
    held.release()
    host.finish_resets()
    assert pool.acquire("alive", timeout=5).holder == "alive"


def test_a_grant_to_a_waiter_killed_a_moment_ago_comes_back(
    pool: VMPool, client: redis.Redis, redis_url: str, hand_host: Callable, actor: Callable[..., Actor]
) -> None:
    host = hand_host(1)
    held = pool.acquire("now", timeout=1)
    doomed = actor("hold", redis_url, "0.5")
    until(lambda: len(pool.status().waiters) == 1)
    doomed.end()
    held.release()
    host.finish_resets()
    assert pool.status().vms[0].holder == "actor"

    until(lambda: pool.reap() == 1)

    assert states(pool) == [VMState.RESETTING]
    assert not [key for key in client.keys("*") if "inbox" in key]


def test_a_killed_holders_vm_is_reset_and_goes_on(
    pool: VMPool, redis_url: str, hand_host: Callable, actor: Callable[..., Actor]
) -> None:
    host = hand_host(1)
    doomed = actor("hold", redis_url, "1")
    assert doomed.line().startswith("holding hand-0")
    doomed.end()
    until(lambda: pool.reap() == 1)
    assert states(pool) == [VMState.RESETTING]
    assert host.finish_resets() == ["hand-0"]
    assert pool.acquire("next", timeout=5).vm_id == "hand-0"


def test_a_holder_paused_beyond_its_ttl_touches_nothing_afterwards(
    pool: VMPool, redis_url: str, hand_host: Callable, actor: Callable[..., Actor]
) -> None:
    host = hand_host(1)
    paused = actor("touch", redis_url, "3")
    assert paused.line().startswith("holding hand-0")
    paused.order()
    assert paused.line() == "touched"
    paused.send(signal.SIGSTOP)
    until(lambda: pool.reap() == 1)
    host.finish_resets()
    current = pool.acquire("next", timeout=5)

    paused.order()
    paused.send(signal.SIGCONT)

    assert paused.line() == "refused"
    current.renew()


def valkey_pool(valkey: ValkeyServer) -> VMPool:
    return VMPool(redis.Redis.from_url(valkey.url), "test")


def test_everything_goes_on_after_redis_was_killed_with_its_aof(
    valkey: ValkeyServer, actor: Callable[..., Actor]
) -> None:
    pool = valkey_pool(valkey)
    actor("host", valkey.url, "2", "box")
    until(all_free(pool, 2))
    lease = pool.acquire("me", timeout=5, ttl=20)
    fence = lease.fence

    valkey.kill()
    valkey.start()

    until(lambda: sorted(states(pool)) == [VMState.FREE, VMState.LEASED])
    until(lambda: renews(lease))
    assert lease.release() is True
    until(all_free(pool, 2))
    assert pool.acquire("next", timeout=5).fence > fence
    granted = [event for event in pool.events() if event.event in ("granted", "released", "expired")]
    assert [event.event for event in granted] == ["granted", "released", "granted"]


def test_what_redis_called_free_is_reset_after_redis_was_killed(
    valkey: ValkeyServer, actor: Callable[..., Actor]
) -> None:
    pool = valkey_pool(valkey)
    actor("host", valkey.url, "2", "box")
    until(all_free(pool, 2))
    valkey.kill()
    valkey.start()
    until(lambda: bool(states(pool)) and all(vm.resets == 1 for vm in pool.status().vms))
    until(all_free(pool, 2))


def test_hosts_register_again_after_redis_lost_its_data(valkey: ValkeyServer, actor: Callable[..., Actor]) -> None:
    valkey.kill()
    valkey.aof = False
    valkey.start()
    pool = valkey_pool(valkey)
    actor("host", valkey.url, "2", "box")
    until(all_free(pool, 2))
    lease = pool.acquire("me", timeout=5, ttl=20)

    valkey.kill()
    valkey.start()

    until(all_free(pool, 2))
    assert [vm.resets for vm in pool.status().vms] == [1, 1]
    until(lease.lost.is_set)
    later = [pool.acquire(f"later {n}", timeout=5) for n in range(2)]
    assert all(other.fence > lease.fence for other in later)
    assert lease.release() is False
    assert sorted(states(pool)) == [VMState.LEASED, VMState.LEASED]


def test_a_wait_outlives_a_restart_of_redis(valkey: ValkeyServer, actor: Callable[..., Actor]) -> None:
    pool = valkey_pool(valkey)
    actor("host", valkey.url, "1", "box")
    until(all_free(pool, 1))
    held = pool.acquire("now", timeout=5, ttl=30)
    with ThreadPoolExecutor(1) as executor:
        waiter = executor.submit(pool.acquire, "patient", timeout=60)
        until(lambda: len(pool.status().waiters) == 1)
        valkey.kill()
        time.sleep(0.5)
        valkey.start()
        until(lambda: states(pool) != [])
        held.release()
        assert waiter.result(60).holder == "patient"


def test_who_asks_and_who_gives_back_outlast_a_redis_without_memory(valkey: ValkeyServer) -> None:
    pool, client = valkey_pool(valkey), redis.Redis.from_url(valkey.url)
    pool.register("vm", Endpoint("127.0.0.1"))
    held = pool.acquire("now", timeout=20)
    client.config_set("maxmemory", 1)
    with ThreadPoolExecutor(2) as executor:
        asking, giving = executor.submit(pool.acquire, "patient", timeout=60), executor.submit(held.release)
        time.sleep(1)
        assert [asking.done(), giving.done()] == [False, False]
        client.config_set("maxmemory", 0)
        assert giving.result(30) is True
        assert asking.result(30).holder == "patient"


def renews(lease: object) -> bool:
    try:
        lease.renew()
    except PoolError:
        return False
    return True


def test_a_login_that_is_refused_for_a_while_ends_no_heartbeat(valkey: ValkeyServer) -> None:
    """The server, or a proxy before it, answers a command with which a connection begins with an error."""
    with redis.Redis.from_url(valkey.url) as admin:
        admin.execute_command("ACL", "SETUSER", "borrower", "on", ">secret", "~*", "&*", "+@all")
        pool = VMPool(redis.Redis.from_url(f"redis://borrower:secret@127.0.0.1:{valkey.port}/1"), "test")
        admin.execute_command("ACL", "SETUSER", "borrower", "-select")
        with pytest.raises(PoolError, match="select"):
            pool.status()

        assert pool.breaks() == 0

        admin.execute_command("ACL", "SETUSER", "borrower", "+select")
        assert pool.status().vms == ()
