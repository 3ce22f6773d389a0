"""42 rollouts on 3 simulated VMs, six at a time, while a seeded monkey does one kind of damage again and again."""

from __future__ import annotations

import math
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from rollout_tasks.runs.states import Progress
from tests.checks import check_broker, check_pool, check_run
from tests.cluster import LEASE_TTL, Cluster

ROLLOUTS = 48
TIMES = 3
SECONDS = 200.0


class Monkey:
    """Does its damage a few times, at random moments of the run: a worker that loses a child while it starts ends, on purpose."""

    def __init__(
        self, cluster: Cluster, damage: Callable[[Cluster, random.Random], None], *, seed: int, times: int
    ) -> None:
        self.cluster = cluster
        self.damage = damage
        self.random = random.Random(seed)
        self.left = times
        self.done = 0
        self.next_at = math.inf

    def __call__(self, progress: Progress) -> None:
        if self.next_at == math.inf and progress.committed:
            # Not while the worker starts: one whose first children die gives up, and a supervisor starts another.
            self.next_at = time.monotonic() + self.random.uniform(0, 1)
        if self.left and progress.pending > 3 and time.monotonic() > self.next_at:
            self.damage(self.cluster, self.random)
            self.left -= 1
            self.done += 1
            self.next_at = time.monotonic() + self.random.uniform(2, 4)


def _busy_child(cluster: Cluster, chance: random.Random) -> psutil.Process | None:
    children = cluster.children()
    return chance.choice(children) if children else None


def kill_child(cluster: Cluster, chance: random.Random) -> None:
    child = _busy_child(cluster, chance)
    if child is not None:
        child.kill()


def kill_worker(cluster: Cluster, _chance: random.Random) -> None:
    cluster.kill_main("worker")
    cluster.restart("worker")


def pause_child(cluster: Cluster, chance: random.Random) -> None:
    child = _busy_child(cluster, chance)
    if child is not None:
        child.send_signal(signal.SIGSTOP)
        time.sleep(2.5 * LEASE_TTL)
        child.send_signal(signal.SIGCONT)


def kill_valkey(cluster: Cluster, _chance: random.Random) -> None:
    time.sleep(1.1)  # the append-only file is synced every second; what was not is allowed to be lost
    cluster.valkey.kill_at_once()
    time.sleep(0.5)
    cluster.valkey.start()


def kill_vm_host(cluster: Cluster, _chance: random.Random) -> None:
    cluster.kill_main("vm_host")
    time.sleep(0.5)
    cluster.restart("vm_host")


def fail_resets(cluster: Cluster, chance: random.Random) -> None:
    failing = cluster.folder / "resets_fail"
    failing.touch()
    time.sleep(chance.uniform(0.5, 2))
    failing.unlink()


DAMAGES = [kill_worker, kill_child, pause_child, kill_valkey, kill_vm_host, fail_resets]


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_the_run_finishes_by_itself(
    cluster: Cluster, damage: Callable[[Cluster, random.Random], None], tmp_path: Path
) -> None:
    cluster.start_vm_host(num_vms=3, options={"fail_resets_while": str(tmp_path / "resets_fail")})
    cluster.start_worker(concurrency=6)
    items = [{"id": f"item-{number}", "question": "work"} for number in range(ROLLOUTS)]
    run = cluster.submit(
        {"env_mode": "simulated", "max_attempts": 5, "simulated": {"seconds": [0.5, 3.0], "seed": 7}}, items
    )
    monkey = Monkey(cluster, damage, seed=11, times=TIMES)

    run.wait(seconds=SECONDS, meanwhile=monkey)

    assert monkey.done == TIMES
    ended = check_run(run, rollouts=ROLLOUTS)
    assert ended["completed"] >= ROLLOUTS - 3, ended
    check_pool(cluster)
    check_broker(cluster)
