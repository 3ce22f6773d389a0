"""Workers whose clock is wrong: what they held is taken up as soon as what any other worker held."""

from __future__ import annotations

import time

import pytest

from rollout_tasks.execution.heartbeat import UNACKED_INDEX
from tests.checks import check_broker, check_run
from tests.cluster import VISIBILITY_TIMEOUT, Cluster
from tests.wrong_clock import HOUR, WrongClock

ROLLOUTS = 2


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [HOUR, -HOUR], ids=["ahead", "behind"])
def test_what_a_killed_worker_with_a_wrong_clock_held_is_taken_up(cluster: Cluster, seconds: int) -> None:
    cluster.environments["wrong"] = WrongClock(cluster.folder / "clock", seconds).environment
    cluster.start_worker("wrong", concurrency=ROLLOUTS)
    items = [{"id": f"item-{number}", "question": "work"} for number in range(ROLLOUTS)]
    run = cluster.submit({"env_mode": "simulated", "simulated": {"seconds": [9.0, 10.0], "needs_vm": False}}, items)
    _wait_until_running(cluster, run.run_id)
    time.sleep(VISIBILITY_TIMEOUT / 2)  # a few heartbeats
    stamps = [score for _, score in cluster.client.zrange(UNACKED_INDEX, 0, -1, withscores=True)]
    now = cluster.client.time()[0]

    cluster.kill("wrong")
    cluster.start_worker("right", concurrency=ROLLOUTS)

    run.wait(seconds=90)
    assert len(stamps) >= ROLLOUTS
    assert all(abs(stamp - now) < HOUR / 2 for stamp in stamps)
    assert check_run(run, rollouts=ROLLOUTS) == {"completed": ROLLOUTS}
    check_broker(cluster)


@pytest.mark.slow
def test_what_an_earlier_versions_worker_with_a_clock_ahead_held_is_taken_up(cluster: Cluster) -> None:
    cluster.start_worker("killed", concurrency=ROLLOUTS)
    items = [{"id": f"item-{number}", "question": "work"} for number in range(ROLLOUTS)]
    run = cluster.submit({"env_mode": "simulated", "simulated": {"seconds": [9.0, 10.0], "needs_vm": False}}, items)
    _wait_until_running(cluster, run.run_id)
    cluster.kill("killed")
    for tag in cluster.client.zrange(UNACKED_INDEX, 0, -1):  # as it would have stamped them
        cluster.client.zadd(UNACKED_INDEX, {tag: time.time() + HOUR})

    cluster.start_worker("right", concurrency=ROLLOUTS)

    run.wait(seconds=90)
    assert check_run(run, rollouts=ROLLOUTS) == {"completed": ROLLOUTS}
    check_broker(cluster)


def _wait_until_running(cluster: Cluster, run_id: str) -> None:
    deadline = time.monotonic() + 60
    while cluster.store.running(run_id) < ROLLOUTS:
        assert time.monotonic() < deadline, "the rollouts never ran"
        time.sleep(0.05)
