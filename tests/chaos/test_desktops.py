"""Real desktops and their host, killed and frozen at bad moments: all comes back, nothing is left or touched by two."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.cluster import Cluster
from tests.desktops import needs_local_desktops, processes, said_by, traces
from tests.integration.vm_pool.test_pool_faults import all_free, states, until
from tests.integration.vm_pool.test_pool_host import RunningHost
from vm_pool import Endpoint, Lease, PoolError, VMPool, VMState
from vm_pool.gate_client import connect
from vm_pool.host import VMHost
from vm_pool.providers import guest_server
from vm_pool.providers.local import LocalProvider

HOST = f"test-chaos-{os.getpid()}"
VM = f"{HOST}-0"
pytestmark = needs_local_desktops
SMALL = {"screen_width": 800, "screen_height": 600, "memory_mib": 1024}


def knock(lease: Lease) -> socket.socket:
    return connect(lease.endpoint, "control")


def act(lease: Lease, command: str) -> str:
    return said_by(knock(lease), command, seconds=20)


@pytest.fixture
def pool(redis_url: str) -> Iterator[VMPool]:
    pool = VMPool(redis.Redis.from_url(redis_url), "test")
    yield pool
    pool.close()


@pytest.fixture
def start(redis_url: str) -> Iterator[Callable[..., RunningHost]]:
    with ExitStack() as ends:

        def start(num_vms: int = 1, provider: LocalProvider | None = None, **options: Any) -> RunningHost:
            pool = VMPool(redis.Redis.from_url(redis_url), "test")
            settings = {"retry_after": (0.1, 0.5), "check_every": 0.5, "silent_after": 3.0, **options}
            provider = provider or LocalProvider(SMALL)
            running = RunningHost(VMHost(pool, provider, num_vms=num_vms, host_id=HOST, **settings))
            ends.callback(running.end)
            return running

        yield start
    assert traces(HOST) == []


def freeze(vm_id: str) -> None:
    for pid in processes(vm_id):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)


def events_of(pool: VMPool) -> list[str]:
    return [event.event for event in pool.events()]


def works(pool: VMPool, holder: str) -> Lease:
    """A lease of a desktop on which nothing was ever done."""
    lease = pool.acquire(holder, timeout=60)
    assert act(lease, "cat /home/user/actions 2>/dev/null; echo done >> /home/user/actions") == ""
    return lease


@pytest.mark.slow
def test_a_desktop_that_freezes_while_free_is_reset(pool: VMPool, start: Callable) -> None:
    start()
    until(all_free(pool, 1))
    freeze(VM)
    until(lambda: "reset_done" in events_of(pool), 60)
    works(pool, "next")
    assert "quarantined" not in events_of(pool)


def test_a_desktop_whose_display_dies_while_free_is_reset(pool: VMPool, start: Callable) -> None:
    start()
    until(all_free(pool, 1))
    for pid in processes(VM):
        with suppress(OSError):  # some are gone again by now
            if Path(f"/proc/{pid}/comm").read_text().strip() == "Xvfb":
                os.kill(pid, signal.SIGKILL)
    until(lambda: "reset_done" in events_of(pool), 60)
    works(pool, "next")


def test_a_server_that_dies_is_started_again_in_its_desktop(pool: VMPool, start: Callable) -> None:
    start(check_every=60.0)
    until(all_free(pool, 1))
    lease = works(pool, "me")
    with suppress(OSError, HTTPException):
        act(lease, "kill -9 $PPID")

    def answers() -> bool:
        with suppress(OSError, HTTPException):
            return act(lease, "cat /home/user/actions") == "done\n"
        return False

    until(answers, 30)


def test_a_desktop_that_freezes_while_leased_goes_to_the_next_one_reset(pool: VMPool, start: Callable) -> None:
    start()
    until(all_free(pool, 1))
    lease = works(pool, "unlucky")
    freeze(VM)
    with knock(lease) as connection:
        connection.settimeout(1)
        connection.sendall(b"GET /health HTTP/1.0\r\n\r\n")
        with pytest.raises(TimeoutError):
            connection.recv(1)
    lease.release()
    works(pool, "next")


@pytest.mark.slow
def test_a_desktop_that_freezes_during_its_reset_is_quarantined_and_booted(pool: VMPool, start: Callable) -> None:
    start(provider=LocalProvider({**SMALL, "start_seconds": 8}))
    until(all_free(pool, 1))
    works(pool, "first").release()
    stop = threading.Event()

    def freezer() -> None:
        """Freezes whatever comes up, from the release on, until the VM is given up."""
        while not stop.is_set():
            with suppress(OSError):
                freeze(VM)

    thread = threading.Thread(target=freezer)
    thread.start()
    try:
        until(lambda: "quarantined" in events_of(pool), 90)
    finally:
        stop.set()
        thread.join()
    works(pool, "next")


class LeakyProvider(LocalProvider):
    """Its resets forget to kill and to drop, as long as it is told so."""

    leaks = False

    def reset(self, vm_id: str) -> Endpoint:
        return Endpoint("", guest_server.PORTS) if self.leaks else super().reset(vm_id)


@pytest.mark.parametrize(
    ("deed", "found"),
    [
        ("echo secret > /home/user/secret", "files: /home/user/secret"),
        pytest.param("rm /home/user/.bashrc", "files: /home/user/.bashrc", marks=pytest.mark.slow),
        pytest.param("setsid sleep 1000 >/dev/null 2>&1 &", "processes: sleep", marks=pytest.mark.slow),
        pytest.param(
            "DISPLAY=:0 setsid python3 -c 'import tkinter as t; w=t.Tk(); w.title(\"Bank\"); w.mainloop()' >/dev/null 2>&1 &",
            "windows:",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "DISPLAY=:0 python3 -c 'import pyautogui; pyautogui.moveTo(5, 5)'", "screenshot:", marks=pytest.mark.slow
        ),
    ],
    ids=["a file", "a file removed", "a process", "a window", "the pointer"],
)
def test_a_reset_that_did_not_clean_quarantines(pool: VMPool, start: Callable, deed: str, found: str) -> None:
    provider = LeakyProvider(SMALL)
    start(provider=provider)
    until(all_free(pool, 1))
    with works(pool, "careful"):
        pass
    until(all_free(pool, 1))
    provider.leaks = True
    with pool.acquire("careless", timeout=60) as lease:
        act(lease, deed)
        if found == "windows:":
            until(lambda: "Bank" in str(guest_server.health(lambda: knock(lease), 5).windows))

    until(lambda: "quarantined" in events_of(pool), 60)

    assert found in pool.status().vms[0].error, pool.status().vms[0].error
    provider.leaks = False
    works(pool, "next")


@pytest.mark.slow
def test_a_killed_host_takes_its_desktops_with_it_and_its_successor_brings_new_ones(cluster: Cluster) -> None:
    cluster.start_vm_host(HOST, num_vms=2, provider="local", options=SMALL)
    pool = VMPool(cluster.client)
    until(all_free(pool, 2), 60)
    lease = works(pool, "unlucky")
    connection = knock(lease)

    cluster.kill_main(HOST)

    with suppress(ConnectionError):
        assert connection.recv(1) == b""
    until(lambda: traces(HOST) == [])
    with pytest.raises(ConnectionRefusedError):
        knock(lease)

    cluster.restart(HOST)

    until(all_free(pool, 2), 60)
    assert _is_lost(lease)
    works(pool, "next").release()
    cluster.stop(HOST)
    assert traces(HOST) == []


def test_a_host_that_is_told_to_stop_leaves_nothing(cluster: Cluster) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        cluster.start_vm_host(HOST, num_vms=2, provider="local", options=SMALL)
        pool = VMPool(cluster.client)
        until(all_free(pool, 2), 60)
        process = cluster.processes[HOST]
        process.send_signal(number)
        assert process.wait(30) == 0
        assert traces(HOST) == []
        assert states(pool) == []


@pytest.mark.slow
def test_a_killed_worker_takes_its_desktops_with_it_and_the_next_one_brings_new_ones(cluster: Cluster) -> None:
    words = ["--num-vms=2", "--provider=local", *(f"--provider-option={key}={value}" for key, value in SMALL.items())]
    cluster.start_worker(HOST, concurrency=1, extra=words)
    pool = VMPool(cluster.client)
    until(all_free(pool, 2), 60)
    assert all(vm.vm_id.startswith(f"{HOST}.") for vm in pool.status().vms)
    until(lambda: "all 2 VMs are up" in (cluster.folder / f"{HOST}.log").read_text())
    works(pool, "unlucky")

    cluster.kill_main(HOST)

    until(lambda: traces(HOST) == [])
    cluster.restart(HOST)
    until(all_free(pool, 2), 60)
    works(pool, "next").release()
    cluster.stop(HOST)
    assert traces(HOST) == []


@pytest.mark.slow
def test_a_client_that_goes_on_after_its_lease_touches_no_later_holders_desktop(pool: VMPool, start: Callable) -> None:
    """Through three resets, one hammers away at an address and a connection that are not its any more."""
    start(check_every=60.0)
    until(all_free(pool, 1))
    stale = works(pool, "stale")
    hits, stop = [0], threading.Event()

    def hammer() -> None:
        connection: socket.socket | None = None
        while not stop.is_set():
            try:
                connection = connection or knock(stale)
                said_by(connection, "echo stale >> /home/user/actions", seconds=20)
                hits[0] += 1
            except (OSError, HTTPException, AssertionError):
                pass
            connection = None

    hammers = [threading.Thread(target=hammer) for _ in range(3)]
    for one in hammers:
        one.start()
    try:
        until(lambda: hits[0] > 5)
        stale.release()
        for holder in ("second", "third", "fourth"):
            lease = pool.acquire(holder, timeout=60)
            for _ in range(10):
                act(lease, f"echo {holder} >> /home/user/actions")
            assert act(lease, "sort /home/user/actions | uniq -c").split() == ["10", holder]
            lease.release()
    finally:
        stop.set()
        for one in hammers:
            one.join()
    assert states(pool) in ([VMState.FREE], [VMState.RESETTING])


def _is_lost(lease: Lease) -> bool:
    try:
        lease.renew()
    except PoolError:
        return True
    return False
