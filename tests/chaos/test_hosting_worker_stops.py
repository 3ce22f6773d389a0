"""A worker that hosts VMs is told to stop while its rollouts use them: they keep their VMs to their end."""

from __future__ import annotations

import signal
import time

import pytest

from tests.checks import check_run
from tests.cluster import Cluster
from vm_pool.pool import VMPool


@pytest.mark.slow
@pytest.mark.parametrize("stop", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_running_rollouts_finish_with_their_vms(cluster: Cluster, stop: signal.Signals) -> None:
    quick = ["--provider-option=boot_seconds=0.1", "--provider-option=reset_seconds=0.1"]
    cluster.environments["worker"] = {"ROLLOUT_LEASE_TTL": "60", "ROLLOUT_VISIBILITY_TIMEOUT": "60"}
    cluster.start_worker(concurrency=2, extra=["--num-vms=2", "--provider=simulated", *quick])
    pool = VMPool(cluster.client, "default")
    deadline = time.monotonic() + 60
    while pool.status().counts().get("free", 0) < 2:
        assert time.monotonic() < deadline, "the worker's VMs do not come"
        time.sleep(0.05)
    items = [{"id": f"item-{number}", "question": "work"} for number in range(2)]
    run = cluster.submit({"env_mode": "simulated", "max_attempts": 1, "simulated": {"seconds": [6.0, 6.0]}}, items)
    while sum(event.event == "granted" for event in pool.events()) < 2:
        assert time.monotonic() < deadline, "the rollouts do not begin"
        time.sleep(0.05)

    cluster.processes["worker"].send_signal(stop)
    cluster.processes["worker"].wait(60)

    held = [event.event for event in pool.events() if event.event in {"granted", "released", "revoked", "removed"}]
    assert held == ["granted", "granted", "released", "released", "removed", "removed"]
    pool.close()
    cluster.start_worker("another", concurrency=1)  # who writes the report
    run.wait(seconds=60)
    assert check_run(run, rollouts=2) == {"completed": 2}
