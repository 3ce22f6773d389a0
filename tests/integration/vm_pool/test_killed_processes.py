"""Killed borrowers and hosts: what they held or waited for goes on at once where the kill can be seen, soon where it cannot."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from tests.integration.vm_pool.test_pool_faults import Actor, actor, until  # noqa: F401 (a fixture)
from tests.integration.vm_pool.test_pool_host import (  # noqa: F401
    ACTORS,
    QUICK,
    RecordingProvider,
    RunningHost,
    all_free,
    be_silent,
    start,
)
from vm_pool import VMPool, VMState
from vm_pool.errors import HostTaken
from vm_pool.host_client import HostClient
from vm_pool.processes import has_ended, this_process

NEVER = "3600"
"""A TTL that no test waits for, in seconds."""


@pytest.fixture
def ended_process() -> str:
    """What a process that has ended said of itself."""
    command = [sys.executable, "-c", "from vm_pool.processes import this_process; print(this_process())"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()


def test_a_killed_holders_vm_is_taken_back_at_once_on_the_same_machine(
    pool: VMPool,
    redis_url: str,
    start: Callable[..., RunningHost],  # noqa: F811
    actor: Callable[..., Actor],  # noqa: F811
) -> None:
    start(RecordingProvider(QUICK), 1)
    until(all_free(pool, 1))
    doomed = actor("hold", redis_url, NEVER)
    assert doomed.line().startswith("holding box-0")
    doomed.end()

    assert pool.acquire("next", timeout=60).vm_id == "box-0"

    assert [event.event for event in pool.events()][-4:] == ["granted", "expired", "reset_done", "granted"]
    assert pool.status().counters["holders_lost"] == 1


def test_killed_waiters_get_nothing_on_the_same_machine(
    pool: VMPool,
    redis_url: str,
    start: Callable[..., RunningHost],  # noqa: F811
    actor: Callable[..., Actor],  # noqa: F811
) -> None:
    start(RecordingProvider(QUICK), 2)
    until(all_free(pool, 2))
    held = [pool.acquire(f"now {number}", timeout=20) for number in range(2)]
    doomed = actor("crowd", redis_url, NEVER, "24")
    until(lambda: len(pool.status().waiters) == 24)
    doomed.end_all()
    for lease in held:
        lease.release()

    assert {pool.acquire(f"next {number}", timeout=60).vm_id for number in range(2)} == {"box-0", "box-1"}

    assert pool.status().waiters == ()


def test_a_grant_that_a_killed_waiter_does_not_take_goes_on_without_anybody_seeing_the_kill(
    pool: VMPool,
    redis_url: str,
    hand_host: Callable,
    actor: Callable[..., Actor],  # noqa: F811
) -> None:
    host = hand_host(1)
    held = pool.acquire("now", timeout=20)
    doomed = actor("hold", redis_url, NEVER)
    until(lambda: len(pool.status().waiters) == 1)
    doomed.end()
    held.release()
    host.finish_resets()
    assert pool.status().vms[0].holder == "actor"

    until(lambda: pool.reap() == 1)

    assert pool.latest_events(1)[0].event == "expired"
    host.finish_resets()
    assert pool.acquire("next", timeout=20).vm_id == "hand-0"


def test_a_grant_that_a_slow_waiter_finds_too_late_leaves_it_its_place(pool: VMPool, hand_host: Callable) -> None:
    from vm_pool.waiting import Request, acquisition

    host = hand_host(1)
    held = pool.acquire("now", timeout=20)
    slow = Request("slow", 0, 60, 3600, 3600)
    now = 0.0
    steps = acquisition(slow, "test", lambda: now)
    queued = pool._perform(next(steps))
    held.release()
    host.finish_resets()
    until(lambda: pool.reap() == 1)

    now = 3.0  # its own clock: however long this took, it is before it asks again
    pop = steps.send(queued)
    assert pool._perform(pop) is None
    later = Request("later", 0, 60, 3600, 3600)
    pool._run("acquire", *later.words(0, False))
    pool._run("acquire", *slow.words(queued[1], True))

    assert [waiter.holder for waiter in pool.status().waiters] == ["slow", "later"]


def test_a_grant_that_was_taken_is_not_asked_about_again(pool: VMPool, hand_host: Callable) -> None:
    from concurrent.futures import ThreadPoolExecutor

    host = hand_host(1)
    held = pool.acquire("now", timeout=20)
    with ThreadPoolExecutor(1) as executor:
        waiter = executor.submit(pool.acquire, "me", timeout=60, ttl=3600, heartbeat=False)
        until(lambda: len(pool.status().waiters) == 1)
        held.release()
        host.finish_resets()
        lease = waiter.result(60)
    time.sleep(3.2)
    assert pool.reap() == 0
    lease.renew()


def test_a_process_is_told_from_another_of_its_number(ended_process: str) -> None:
    mine = this_process()
    machine, pid, began = mine.split(":")
    assert (machine, int(pid)) == (ended_process.split(":")[0], os.getpid())
    assert not has_ended(mine)
    assert has_ended(ended_process)
    assert has_ended(f"{machine}:{pid}:{int(began) - 1}")
    assert not has_ended(f"another-machine:{ended_process.split(':', 1)[1]}")
    assert not has_ended("")


def test_a_zombie_has_ended() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", "from vm_pool.processes import this_process; print(this_process())"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    said = process.stdout.read().strip()
    until(lambda: has_ended(said))  # nobody has waited for it yet
    process.communicate()


# Hosts


def run_host(redis_url: str, host_id: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(ACTORS), "host", redis_url, "2", host_id],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_second_host_of_the_same_id_is_refused_and_the_first_is_left_alone(
    pool: VMPool,
    start: Callable[..., RunningHost],  # noqa: F811
) -> None:
    first = RecordingProvider(QUICK)
    start(first, 2, silent_after=3)
    until(all_free(pool, 2))
    lease = pool.acquire("me", timeout=20)
    second = RecordingProvider(QUICK)
    for _ in range(3):
        intruder = start(second, 2, silent_after=3)
        intruder.thread.join(30)
        assert isinstance(intruder.error, HostTaken)
        said = str(intruder.error)
        assert said.startswith("host box of pool 'test' is run by another process")
        assert f"process {os.getpid()} of this machine" in said
        assert "--host-id" in said

    assert second.calls == []
    assert [event.event for event in pool.events()].count("registered") == 2
    assert [call for call, _ in first.calls].count("stop") == 2  # before each boot
    lease.renew()


def test_a_killed_host_is_replaced_at_once_on_the_same_machine(
    pool: VMPool,
    redis_url: str,
    start: Callable[..., RunningHost],  # noqa: F811
) -> None:
    from vm_pool.host_client import HostClient

    process = run_host(redis_url, "box")
    try:
        until(all_free(pool, 2))
    finally:
        process.kill()
        process.communicate()
    successor = HostClient(pool, "box", silent_after=3600)
    assert {vm.state for vm in successor.beat(take_over=True).vms} == {VMState.FREE}


def test_a_host_goes_on_where_redis_has_forgotten_that_it_replaced_a_killed_one(
    pool: VMPool, ended_process: str
) -> None:
    hosts = f"{{pool:{pool.name}}}:hosts"
    side = HostClient(pool, "box", silent_after=60)
    side.beat(take_over=True)
    speaks = pool.redis.call("HGET", hosts, "box")
    pool.redis.call("HSET", hosts, "box", f"0123 {ended_process}")

    side.beat()

    assert pool.redis.call("HGET", hosts, "box") == speaks


def test_a_host_elsewhere_is_replaced_after_its_silence(pool: VMPool, monkeypatch: pytest.MonkeyPatch) -> None:
    from vm_pool.host_client import HostClient

    with monkeypatch.context() as elsewhere:
        elsewhere.setattr("vm_pool.host_client.this_process", lambda: "another-machine:12:34")
        remote = HostClient(pool, "box", silent_after=30)
    remote.beat(take_over=True)
    successor = HostClient(pool, "box", silent_after=60)
    with pytest.raises(HostTaken, match="a process of another machine"):
        successor.beat(take_over=True)
    be_silent(pool, "box")
    successor.beat(take_over=True)
