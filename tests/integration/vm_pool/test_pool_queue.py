"""Waiting for a VM: order, hand-over, giving up, and what waiters leave behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from vm_pool import AcquireStopped, AcquireTimeout, Lease, PoolEmpty, VMPool, VMState
from vm_pool import waiting as waiting_module


def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.005)


def queue_up(pool: VMPool, executor: ThreadPoolExecutor, holder: str, **terms: object) -> object:
    """A waiter on a thread of its own, in the queue when this returns."""
    before = len(pool.status().waiters)
    waiter = executor.submit(pool.acquire, holder, timeout=30, **terms)
    until(lambda: len(pool.status().waiters) > before)
    return waiter


def test_first_come_first_served_and_higher_priorities_first(pool: VMPool, hand_host: Callable) -> None:
    host = hand_host(1)
    order = []
    with ThreadPoolExecutor(6) as executor:
        held = pool.acquire("now", timeout=1)
        waiters = {
            holder: queue_up(pool, executor, holder, **({} if priority is None else {"priority": priority}))
            for holder, priority in [("a", None), ("b", 5), ("c", 0), ("d", 5), ("e", -5)]
        }
        assert [(waiter.holder, waiter.place) for waiter in pool.status().waiters] == [
            ("b", 1),
            ("d", 2),
            ("a", 3),
            ("c", 4),
            ("e", 5),
        ]
        while waiters:
            held.release()
            host.finish_resets()
            until(lambda: any(waiter.done() for waiter in waiters.values()))
            holder = next(holder for holder, waiter in waiters.items() if waiter.done())
            held = waiters.pop(holder).result()
            order.append(holder)
    assert order == ["b", "d", "a", "c", "e"]


def test_a_freed_vm_goes_to_the_waiter_even_if_somebody_asks_before_it_wakes(pool: VMPool, hand_host: Callable) -> None:
    host = hand_host(1)
    with ThreadPoolExecutor(1) as executor:
        held = pool.acquire("now", timeout=1)
        waiter = queue_up(pool, executor, "first")
        held.release()
        host.finish_resets()
        with pytest.raises(AcquireTimeout):
            pool.acquire("late", timeout=0)
        assert waiter.result(20).holder == "first"


def test_a_timeout_says_who_waited_for_what_and_leaves_the_queue(
    pool: VMPool, client: redis.Redis, hand_host: Callable
) -> None:
    hand_host(2)
    leases = [pool.acquire(f"holder {n}", timeout=1) for n in range(2)]
    leases[1].release()
    with pytest.raises(AcquireTimeout) as caught:
        pool.acquire("rollout 7#0", timeout=0.1)
    assert not isinstance(caught.value, PoolEmpty)
    assert caught.value.place == 1
    sentence = str(caught.value)
    assert "rollout 7#0 got no VM of pool 'test' within 0.1 s" in sentence
    assert "place 1 in the queue of 1; the pool has 1 leased, 1 resetting" in sentence
    assert pool.status().waiters == ()
    assert not [key for key in client.keys("*") if "inbox" in key or key.endswith((":queue", ":waiters"))]
    assert pool.status().counters["gave_up"] == 1


def test_waiting_can_be_stopped(pool: VMPool, hand_host: Callable) -> None:
    hand_host(1)
    held = pool.acquire("now", timeout=1)
    stop = threading.Event()
    with ThreadPoolExecutor(1) as executor:
        waiter = queue_up(pool, executor, "cancelled", should_stop=stop.is_set)
        stop.set()
        with pytest.raises(AcquireStopped, match="cancelled stopped waiting for a VM of pool 'test'"):
            waiter.result(20)
    assert pool.status().waiters == ()
    held.check()


def test_an_interrupt_in_the_wait_leaves_the_queue(pool: VMPool, hand_host: Callable) -> None:
    class Interrupt(BaseException):
        pass

    def interrupt() -> bool:
        raise Interrupt

    hand_host(1)
    pool.acquire("now", timeout=1)
    with pytest.raises(Interrupt):
        pool.acquire("interrupted", timeout=30, should_stop=interrupt)
    assert pool.status().waiters == ()


def test_a_pool_without_vms_is_reported_as_empty(pool: VMPool) -> None:
    with pytest.raises(PoolEmpty, match=r"got no VM of pool 'test' within 0 s; .*the pool has no VMs"):
        pool.acquire("me", timeout=0)


def test_a_pool_that_stays_empty_is_not_waited_for(pool: VMPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting_module, "EMPTY_SECONDS", 0.2)
    monkeypatch.setattr(waiting_module, "REFRESH_SECONDS", 0.1)
    with pytest.raises(PoolEmpty, match="has had no VM for"):
        pool.acquire("me", timeout=600)
    assert pool.status().waiters == ()


def test_vms_that_come_later_reach_those_who_wait(pool: VMPool, hand_host: Callable) -> None:
    with ThreadPoolExecutor(1) as executor:
        waiter = queue_up(pool, executor, "early")
        hand_host(1)
        assert waiter.result(20).vm_id == "hand-0"


def test_a_waiter_that_stopped_asking_is_passed_over(
    pool: VMPool, hand_host: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = hand_host(1)
    held = pool.acquire("now", timeout=1)
    monkeypatch.setattr(waiting_module, "PATIENCE_SECONDS", 0.05)
    gone = waiting_module.Request("gone", 0, 30, 60, 3600)
    pool._run("acquire", *gone.words(0, False))
    monkeypatch.undo()
    time.sleep(0.06)
    with ThreadPoolExecutor(1) as executor:
        waiter = executor.submit(pool.acquire, "alive", timeout=30)
        until(lambda: any(waiter.holder == "alive" for waiter in pool.status().waiters))
        held.release()
        host.finish_resets()
        assert waiter.result(20).holder == "alive"
    assert pool.status().counters["waiters_lost"] == 1


def test_a_vm_is_not_handed_to_a_waiter_whose_time_is_over_but_not_yet_noticed(
    pool: VMPool, hand_host: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = hand_host(1)
    pool.acquire("now", timeout=1).release()
    resetting = pool.status().vms[0]
    monkeypatch.setattr(waiting_module, "PATIENCE_SECONDS", 0.02)
    gone = waiting_module.Request("gone", 0, 30, 60, 3600)
    pool._run("acquire", *gone.words(0, False))
    time.sleep(0.03)
    host.side.ready(resetting.vm_id, resetting.fence, host.endpoint(resetting.vm_id))
    assert pool.status().vms[0].state is VMState.FREE
    assert pool.status().waiters == ()


def test_a_waiter_redis_forgot_comes_back_to_its_place(
    pool: VMPool, client: redis.Redis, hand_host: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting_module, "REFRESH_SECONDS", 0.3)
    hand_host(1)
    pool.acquire("now", timeout=1)
    with ThreadPoolExecutor(3) as executor:
        waiters = [queue_up(pool, executor, holder) for holder in ("first", "second")]
        client.flushall()
        hand_host(0, host_id="other")
        waiters.append(executor.submit(pool.acquire, "third", timeout=30))
        until(lambda: len(pool.status().waiters) == 3)
        assert [waiter.holder for waiter in pool.status().waiters] == ["first", "second", "third"]
        host = hand_host(1)
        for waiter in waiters:
            waiter.result(20).release()
            host.finish_resets()


def test_a_grant_that_meets_the_timeout_is_taken(pool: VMPool, hand_host: Callable) -> None:
    host = hand_host(1)
    held = pool.acquire("now", timeout=1)
    request = waiting_module.Request("late", 0, 0.0, 60, 3600)
    steps = waiting_module.acquisition(request, "test")
    queued = pool._perform(next(steps))
    held.release()
    host.finish_resets()

    leave = steps.send(queued)

    assert isinstance(leave, waiting_module.Leave)
    with pytest.raises(StopIteration) as done:
        steps.send(pool._perform(leave))
    assert done.value.value.vm_id == "hand-0"
    assert pool.status().vms[0].holder == "late"


def test_a_grant_that_meets_a_cancellation_is_given_back(
    pool: VMPool, client: redis.Redis, hand_host: Callable
) -> None:
    host = hand_host(1)
    held = pool.acquire("now", timeout=1)

    def stop_after_the_grant() -> bool:
        held.release()
        host.finish_resets()
        return True

    with pytest.raises(AcquireStopped):
        pool.acquire("cancelled", timeout=30, should_stop=stop_after_the_grant)
    assert pool.status().vms[0].state is VMState.RESETTING
    assert [event.event for event in pool.latest_events(3)] == ["reset_done", "granted", "returned"]
    assert not [key for key in client.keys("*") if "inbox" in key]


def test_nobody_starves_and_nobody_shares_while_vms_turn_over(pool: VMPool, hand_host: Callable) -> None:
    host = hand_host(2)
    using: set[str] = set()
    lock = threading.Lock()
    rounds: dict[str, int] = {}

    def work(holder: str) -> None:
        for _ in range(8):
            with pool.acquire(holder, timeout=60) as lease:
                with lock:
                    assert lease.vm_id not in using
                    using.add(lease.vm_id)
                    rounds[holder] = rounds.get(holder, 0) + 1
                with lock:
                    using.discard(lease.vm_id)

    stop = threading.Event()

    def keep_resetting() -> None:
        while not stop.is_set():
            host.side.wait_for_work(0.2)
            host.finish_resets()

    resetter = threading.Thread(target=keep_resetting)
    resetter.start()
    with ThreadPoolExecutor(6) as executor:
        for future in [executor.submit(work, f"holder {n}") for n in range(6)]:
            future.result(60)
    stop.set()
    resetter.join()
    assert rounds == {f"holder {n}": 8 for n in range(6)}


def test_a_forked_child_goes_on_with_the_pool_of_its_parent(pool: VMPool, hand_host: Callable) -> None:
    import multiprocessing

    hand_host(2)
    mine: Lease = pool.acquire("parent", timeout=1)

    def child() -> None:
        with pool.acquire("child", timeout=10, ttl=1.5) as lease:
            if lease.lost.wait(2):
                raise SystemExit(3)

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join(20)
    assert process.exitcode == 0
    mine.renew()
    assert pool.status().counters["released"] == 1
