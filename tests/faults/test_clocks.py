"""Wrong clocks, enumerated: each kind of process an hour ahead, an hour behind, and set by an hour in the middle of a run.

One cluster plays all of it: a clock here is a file that its processes read again whenever they look at it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import pytest

from tests.checks import check_broker, check_pool, check_run
from tests.cluster import Cluster, Run
from tests.conftest import ValkeyServer
from tests.wrong_clock import HOUR, WrongClock

ROLLOUTS = 6
VMS = 2
PROCESSES = {"submitter": "submitter", "worker": "worker-1", "VM host": "vm_host", "finalising worker": "finalizer"}
"""Whose clock is wrong, and the name of that process in the cluster."""


@dataclass(frozen=True)
class Wrong:
    """How a clock is wrong: in seconds, before a run and from the middle of it on."""

    before: int
    after: int


KINDS = {
    "ahead": Wrong(HOUR, HOUR),
    "behind": Wrong(-HOUR, -HOUR),
    "set forward": Wrong(0, HOUR),
    "set back": Wrong(0, -HOUR),
}
CASES = list(product(PROCESSES, KINDS))
SAMPLE = random.Random(7).sample(CASES, 1)


@dataclass
class Machines:
    """The cluster, and the clock of each of its processes."""

    cluster: Cluster
    clocks: dict[str, WrongClock]


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    folder = tmp_path_factory.mktemp("clocks")
    (folder / "valkey").mkdir()
    server = ValkeyServer(folder / "valkey")
    server.start()
    cluster = Cluster(server, folder)
    clocks = {name: WrongClock(folder / "clocks" / name) for name in (*PROCESSES.values(), "worker-2")}
    cluster.environments |= {name: clock.environment for name, clock in clocks.items()}
    try:
        cluster.start_worker("worker-1", concurrency=2, queues="rollout.simulated")
        cluster.start_worker("worker-2", concurrency=2, queues="rollout.simulated")
        cluster.start_worker("finalizer", concurrency=1, queues="finalize")
        cluster.start_vm_host(num_vms=VMS)
        for name in ("worker-1", "worker-2", "finalizer"):
            cluster.wait_for_worker(name)
        yield Machines(cluster, clocks)
    finally:
        cluster.stop_all()
        server.kill()


@pytest.mark.parametrize(
    ("process", "kind"),
    [
        pytest.param(
            *case, id=", ".join(case), marks=[] if case in SAMPLE else [pytest.mark.slow, pytest.mark.timeout(600)]
        )
        for case in CASES
    ],
)
def test_a_wrong_clock_changes_no_result(machines: Machines, process: str, kind: str) -> None:
    cluster, clock, wrong = machines.cluster, machines.clocks[PROCESSES[process]], KINDS[kind]
    clock.set(wrong.before)
    try:
        items = [{"id": f"item-{number}", "question": "work"} for number in range(ROLLOUTS)]
        items[-1]["env_config"] = {"seconds": [6.0, 6.0]}  # still runs when the clock is set
        run = cluster.submit({"env_mode": "simulated", "simulated": {"seconds": [1.0, 1.2]}}, items)
        run.wait_for(committed=1)
        clock.set(wrong.after)
        progress = run.progress()
        assert progress is not None
        assert progress.committed < ROLLOUTS, "the run was over before the clock was set: nothing was tested"
        run.wait(seconds=90)
    finally:
        clock.set(0)
    assert check_run(run, rollouts=ROLLOUTS) == {"completed": ROLLOUTS}
    check_durations(run)
    check_broker(cluster)
    check_pool(cluster)


@pytest.fixture
def server_clock(tmp_path: Path) -> WrongClock:
    return WrongClock(tmp_path / "clock")


@pytest.fixture
def clocked(tmp_path: Path, server_clock: WrongClock) -> Iterator[Cluster]:
    """A cluster whose Redis has a clock that can be set."""
    (tmp_path / "valkey").mkdir()
    server = ValkeyServer(tmp_path / "valkey", environment=server_clock.environment)
    server.start()
    cluster = Cluster(server, tmp_path)
    try:
        yield cluster
    finally:
        cluster.stop_all()
        server.kill()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seconds", [HOUR, -HOUR], ids=["forward", "back"])
def test_the_servers_clock_is_set_and_no_result_is_lost(
    clocked: Cluster, server_clock: WrongClock, seconds: int
) -> None:
    """All leases end at once, or an hour later: attempts may be lost, rollouts are not."""
    clocked.start_worker("worker", concurrency=2)
    clocked.start_vm_host(num_vms=VMS)
    clocked.wait_for_worker("worker")
    items = [{"id": f"item-{number}", "question": "work"} for number in range(ROLLOUTS)]
    config = {"env_mode": "simulated", "max_attempts": 4, "simulated": {"seconds": [2.0, 3.0]}}

    run = clocked.submit(config, items)
    run.wait_for(committed=1)
    before = clocked.client.time()[0]
    server_clock.set(seconds)
    assert abs(clocked.client.time()[0] - before - seconds) < HOUR / 2
    progress = run.progress()
    assert progress is not None
    assert progress.committed < ROLLOUTS, "the run was over before the clock was set: nothing was tested"

    run.wait(seconds=180)
    assert check_run(run, rollouts=ROLLOUTS) == {"completed": ROLLOUTS}
    check_pool(clocked)
    check_broker(clocked)


def check_durations(run: Run) -> None:
    """Nothing took less than no time, nor as long as a clock was wrong."""
    for verdict in run.cluster.store.verdicts(run.run_id):
        assert verdict.lease is not None
        took = {
            "attempt": verdict.finished - verdict.started,
            "waiting": verdict.lease.waited,
            "lease": verdict.lease.released - verdict.lease.allocated,
            **verdict.stages,
        }
        assert all(0 <= seconds < HOUR / 2 for seconds in took.values()), (verdict.rollout_id, took)
