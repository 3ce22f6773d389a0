"""A worker that Redis cannot hear for longer than a lease lives: its VMs go to others, its results do not count twice."""

from __future__ import annotations

import os
import time

import pytest

from tests.chaos.proxy import Proxy
from tests.checks import check_broker, check_pool, check_run
from tests.cluster import LEASE_TTL, Cluster
from vm_pool.pool import VMPool

ROLLOUTS = 16


@pytest.mark.slow
def test_another_worker_takes_over(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.start_vm_host(num_vms=3)
    with Proxy(cluster.valkey.port) as proxy:
        cluster.start_worker("worker", concurrency=2)
        through_proxy = cluster.valkey.url.replace(f":{cluster.valkey.port}/", f":{proxy.port}/")
        monkeypatch.setattr(Cluster, "environment", property(_with_url(cluster.environment, through_proxy)))
        cluster.start_worker("far", concurrency=2)
        monkeypatch.undo()
        items = [{"id": f"item-{number}", "question": "work"} for number in range(ROLLOUTS)]
        run = cluster.submit({"env_mode": "simulated", "max_attempts": 4, "simulated": {"seconds": [1.0, 2.0]}}, items)
        run.wait_for(committed=4)
        _cut_while_it_holds_a_vm(cluster, proxy, "far")
        time.sleep(3 * LEASE_TTL)
        expired = [event for event in VMPool(cluster.client).latest_events(200) if event.event == "expired"]
        proxy.cut.clear()

        run.wait(seconds=90)
        assert any(event.holder.startswith("far@") for event in expired), "no lease of the cut-off worker expired"
        assert check_run(run, rollouts=ROLLOUTS) == {"completed": ROLLOUTS}
        check_pool(cluster)
        check_broker(cluster)
        cluster.kill("far")  # it may wait in vain for answers that the proxy has swallowed


def _with_url(environment: dict[str, str], url: str) -> object:
    return lambda _cluster: {**os.environ, **environment, "REDIS_URL": url, "ROLLOUT_REDIS_URL": url}


def _cut_while_it_holds_a_vm(cluster: Cluster, proxy: Proxy, worker: str) -> None:
    pool = VMPool(cluster.client)

    def holds() -> bool:
        return any(vm.holder.startswith(f"{worker}@") for vm in pool.status().vms)

    deadline = time.monotonic() + 30
    while True:
        while not holds():
            assert time.monotonic() < deadline, f"{worker} never held a VM"
            time.sleep(0.02)
        proxy.cut.set()
        time.sleep(0.1)  # what is on its way arrives
        if holds():
            return
        proxy.cut.clear()
