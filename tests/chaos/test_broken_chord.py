"""A chord whose header breaks never calls its callback; the run is repaired and finalised all the same, once."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.checks import check_broker, check_run
from tests.cluster import Cluster, Run


def test_a_revoked_rollout_is_sent_again(cluster: Cluster) -> None:
    run = _submit(cluster)
    message = json.loads(cluster.client.lrange("rollout.simulated", 0, 0)[0])
    cluster.start_worker(concurrency=2, queues="finalize")
    cluster.wait_for_worker()
    _tell_workers(cluster, f"revoke('{message['headers']['id']}'")
    _tell_workers(cluster, "add_consumer('rollout.simulated'")

    run.wait(seconds=60)

    _check_repaired(run)
    assert "Discarding revoked task" in (cluster.folder / "worker.log").read_text()


@pytest.mark.slow
def test_a_message_lost_by_the_broker_is_sent_again(cluster: Cluster) -> None:
    run = _submit(cluster)
    cluster.client.lpop("rollout.simulated")
    cluster.start_worker(concurrency=2)

    run.wait(seconds=60)

    _check_repaired(run)


def _submit(cluster: Cluster) -> Run:
    items = [{"id": f"item-{number}", "question": "work"} for number in range(5)]
    return cluster.submit({"env_mode": "simulated", "simulated": {"seconds": [0.05, 0.1], "needs_vm": False}}, items)


def _check_repaired(run: Run) -> None:
    assert "sending them again" in (run.cluster.folder / "worker.log").read_text(), (
        "nothing was missed: nothing was tested"
    )
    assert check_run(run, rollouts=5) == {"completed": 5}
    check_broker(run.cluster)


def _tell_workers(cluster: Cluster, call: str) -> None:
    """A remote control command, as `celery control` gives it, once a worker is there to hear it."""
    program = f"from rollout_tasks.app import app; print(app.control.{call}, reply=True, timeout=2, limit=1))"
    for _ in range(60):
        done = subprocess.run(
            [sys.executable, "-c", program], env=cluster.environment, capture_output=True, text=True, check=False
        )
        if "ok" in done.stdout:
            return
    raise AssertionError(f"no worker answered {call}): {done.stdout} {done.stderr}")
