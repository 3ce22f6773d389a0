"""Nothing of a killed host's desktops stays: they end by themselves, and what cannot is ended by the next start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import redis

from tests.conftest import REPOSITORY
from tests.desktops import cgroups, needs_local_desktops, processes, traces
from vm_pool import VMPool
from vm_pool.errors import VMsInUse
from vm_pool.host import VMHost
from vm_pool.providers import folder_lock
from vm_pool.providers.local import LocalProvider
from vm_pool.providers.local.folders import STATE_FOLDER, leftovers

pytestmark = needs_local_desktops

HOST = f"test-leftovers-{os.getpid()}"
KILLED, ALIVE = f"{HOST}-0", f"{HOST}-other-0"
STEPS = ["the folder is made", "the keeper is launched", "the first process runs", "it is up", "it is being reset"]


@pytest.fixture(scope="module")
def bystander() -> Iterator[LocalProvider]:
    """A desktop of another host whose name begins like the killed one's."""
    provider = LocalProvider({"screen_width": 800, "screen_height": 600})
    provider.boot(ALIVE)
    yield provider
    provider.stop(ALIVE)
    assert traces(HOST) == []


def killed_host(step: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, str(Path(__file__).with_name("dying_host.py")), step, KILLED]
    done = subprocess.run(command, env=environment, timeout=60)
    assert done.returncode == -signal.SIGKILL


def keepers(vm_id: str) -> list[int]:
    """The launcher and the keeper itself."""
    return [int(trace.split()[1]) for trace in traces(vm_id) if trace.startswith("process ")]


def send(number: signal.Signals, pids: list[int]) -> None:
    """To those that are still there: a desktop's programs come and go."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def until_gone(vm_id: str, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while left := traces(vm_id):
        assert time.monotonic() < deadline, left
        time.sleep(0.02)


@pytest.mark.parametrize("step", STEPS)
def test_the_next_start_ends_what_a_killed_host_left(bystander: LocalProvider, step: str) -> None:
    killed_host(step)
    LocalProvider({}).reap_leftovers(HOST)
    assert leftovers(HOST) == []
    until_gone(KILLED, seconds=5)  # a desktop that has ended by itself was faster, and its keeper is just ending
    bystander.check(ALIVE)


@pytest.mark.parametrize("step", ["the folder is made", "it is being reset"])
def test_so_does_the_next_start_of_any_other_host(bystander: LocalProvider, step: str) -> None:
    killed_host(step)
    LocalProvider({}).reap_leftovers("test-leftovers-next")
    until_gone(KILLED)  # the start of another test's host may have been faster
    bystander.check(ALIVE)


@pytest.mark.parametrize("step", [step for step in STEPS if "folder" not in step and "reset" not in step])
def test_a_killed_hosts_desktop_ends_by_itself(step: str) -> None:
    killed_host(step)
    until_gone(KILLED)


def test_also_what_a_killed_keeper_left_is_ended(bystander: LocalProvider) -> None:
    host = LocalProvider({"screen_width": 800, "screen_height": 600})
    host.boot(KILLED)
    send(signal.SIGKILL, keepers(KILLED))
    with pytest.raises(RuntimeError):
        host.check(KILLED)
    assert (STATE_FOLDER / KILLED).exists()

    assert KILLED not in LocalProvider({}).reap_leftovers("test-leftovers-next"), "its host may still use it"
    assert KILLED in LocalProvider({}).reap_leftovers(HOST)

    assert traces(KILLED) == []
    bystander.check(ALIVE)
    host.stop(KILLED)


@pytest.mark.parametrize(
    "whole", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["the desktop", "its keeper too"]
)
def test_a_frozen_desktop_can_be_ended(bystander: LocalProvider, whole: bool) -> None:
    host = LocalProvider({"screen_width": 800, "screen_height": 600})
    host.boot(KILLED)
    send(signal.SIGSTOP, [*processes(KILLED), *(keepers(KILLED) if whole else [])])
    with pytest.raises(RuntimeError, match=r"GET /health: no whole answer within"):
        host.check(KILLED)
    host.reset(KILLED)
    host.check(KILLED)
    host.stop(KILLED)
    assert traces(KILLED) == []
    bystander.check(ALIVE)


@contextmanager
def frozen(vm_id: str) -> Iterator[None]:
    """Freezes a desktop's cgroup, in either version of cgroups, as an administrator may."""
    words = {"freezer.state": ("FROZEN", "THAWED"), "cgroup.freeze": ("1", "0")}
    files = [folder / name for folder in cgroups(vm_id) for name in words if (folder / name).exists()]
    assert files
    try:
        for file in files:
            file.write_text(words[file.name][0])
            deadline = time.monotonic() + 20
            while file.read_text().strip() != words[file.name][0]:
                assert time.monotonic() < deadline
                time.sleep(0.01)
        yield
    finally:
        for file in files:
            with suppress(FileNotFoundError):
                file.write_text(words[file.name][1])


def test_a_desktop_whose_cgroup_is_frozen_can_be_ended() -> None:
    host = LocalProvider({"screen_width": 800, "screen_height": 600})
    host.boot(KILLED)
    with frozen(KILLED):
        host.stop(KILLED)
        assert traces(KILLED) == []


LIVING = "import sys, time; from vm_pool.providers.local import LocalProvider; provider = LocalProvider({});"
LIVING += "provider.boot(sys.argv[1]); print('up', flush=True); time.sleep(600)"


@pytest.fixture
def living() -> Iterator[subprocess.Popen[str]]:
    """Another process of this machine that uses a desktop of the name that ours is going to have."""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-c", LIVING, KILLED]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        yield process
        process.kill()
    until_gone(KILLED)
    LocalProvider({}).reap_leftovers(HOST)


def test_a_desktop_that_a_living_process_uses_is_not_ended(
    living: subprocess.Popen[str], redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two users, each with a pool, start a host of the machine's name."""
    monkeypatch.setattr(folder_lock, "LET_GO_SECONDS", 1.0)
    pool = VMPool(redis.Redis.from_url(redis_url), "mine")
    host = VMHost(pool, LocalProvider({}), num_vms=1, host_id=HOST)

    with pytest.raises(VMsInUse, match=rf"process {living.pid} of this machine uses {KILLED}: .* \(--host-id\)"):
        host.run()

    assert not pool.status().vms
    assert not pool.redis.call("HGETALL", "{pool:mine}:hosts")
    assert processes(KILLED)
    assert living.poll() is None


@pytest.mark.parametrize("act", [pytest.param("boot", marks=pytest.mark.slow), "stop"])
def test_nor_by_a_host_that_began_before_it_was_there(living: subprocess.Popen[str], act: str) -> None:
    """When that host looked for leftovers, there were none."""
    with pytest.raises(VMsInUse, match=rf"process {living.pid} of this machine uses {KILLED}"):
        getattr(LocalProvider({}), act)(KILLED)

    assert processes(KILLED)
    assert living.poll() is None


def test_a_killed_hosts_desktop_whose_cgroup_is_frozen_ends_by_itself(living: subprocess.Popen[str]) -> None:
    with frozen(KILLED):
        living.kill()
        until_gone(KILLED, seconds=20)


def test_a_stopped_hosts_desktop_whose_cgroup_is_frozen_is_ended(living: subprocess.Popen[str]) -> None:
    living.send_signal(signal.SIGSTOP)
    with frozen(KILLED):
        assert KILLED in LocalProvider({}).reap_leftovers(HOST)
        assert processes(KILLED) == []


def test_one_that_a_stopped_process_uses_is_ended(living: subprocess.Popen[str]) -> None:
    living.send_signal(signal.SIGSTOP)

    assert KILLED in LocalProvider({}).reap_leftovers(HOST)

    assert processes(KILLED) == []
