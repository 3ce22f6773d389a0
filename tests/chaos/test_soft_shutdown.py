"""A worker that is told to stop hands its running rollouts back: another goes on with them at once, and no attempt is used up."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from pathlib import Path
from socket import gethostname

import pytest
from celery import Celery

from tests.checks import check_broker, check_pool, check_run
from tests.cluster import QUEUES, Cluster, Run

ROLLOUTS = 2
SOFT_SECONDS = 1
LONG = {"ROLLOUT_VISIBILITY_TIMEOUT": "600", "ROLLOUT_RECONCILE_EVERY": "600", "ROLLOUT_LEASE_TTL": "60"}
"""Nothing but the worker's own doing may bring its rollouts to another."""


def start_worker(cluster: Cluster, name: str, *, queues: str = QUEUES, **environment: str) -> None:
    cluster.environments[name] = {**LONG, **environment}
    soft = ["--", f"worker.soft_shutdown_timeout={SOFT_SECONDS}"]
    cluster.start_worker(name, concurrency=ROLLOUTS, queues=queues, extra=soft)
    cluster.wait_for_worker(name)


def have_rollouts_taken_up(cluster: Cluster, worker: str) -> None:
    """Lets a worker take up rollouts from now on; it has long been started."""
    control = Celery(broker=cluster.valkey.url).control
    deadline = time.monotonic() + 60
    while not control.add_consumer("rollout.simulated", destination=[f"{worker}@{gethostname()}"], reply=True):
        assert time.monotonic() < deadline, f"{worker} does not answer"


def submit(cluster: Cluster, *, needs_vm: bool) -> Run:
    items = [{"id": f"item-{number}", "question": "work"} for number in range(ROLLOUTS)]
    config = {"env_mode": "simulated", "max_attempts": 1, "simulated": {"seconds": [15.0, 16.0], "needs_vm": needs_vm}}
    return cluster.submit(config, items)


def wait_until_at_work(run: Run, worker: str, *, seconds: float = 60) -> None:
    """Until a worker has begun an episode of every rollout."""
    deadline = time.monotonic() + seconds
    while len(begun_by(run, worker)) < ROLLOUTS:
        assert time.monotonic() < deadline, f"{worker} is not at work"
        time.sleep(0.05)


def begun_by(run: Run, worker: str) -> list[Path]:
    records = run.folder.path.rglob("attempt-*/trajectory.jsonl")
    return [record for record in records if f'"worker":"{worker}@' in record.read_text().replace('": "', '":"')]


@pytest.mark.parametrize(
    ("remapped", "signals", "needs_vm"),
    [
        ("SIGQUIT", [signal.SIGTERM], True),
        pytest.param("", [signal.SIGQUIT], False, marks=pytest.mark.slow),
        pytest.param("", [signal.SIGINT, signal.SIGINT], False, marks=pytest.mark.slow),
    ],
    ids=["stopped by a service manager", "quit", "Ctrl-C twice"],
)
def test_running_rollouts_are_handed_back(
    cluster: Cluster, remapped: str, signals: Sequence[signal.Signals], needs_vm: bool
) -> None:
    if needs_vm:
        cluster.start_vm_host(num_vms=ROLLOUTS)
    start_worker(cluster, "next", queues="finalize")
    start_worker(cluster, "stopped", **({"REMAP_SIGTERM": remapped} if remapped else {}))
    run = submit(cluster, needs_vm=needs_vm)
    wait_until_at_work(run, "stopped")
    have_rollouts_taken_up(cluster, "next")

    for number in signals:
        cluster.processes["stopped"].send_signal(number)
        time.sleep(0.5)

    wait_until_at_work(run, "next")
    for name in ("item-0#0", "item-1#0"):
        assert cluster.client.hget(f"{{run:{run.run_id}}}:attempts", name) == "1", "an attempt was used up"
    cluster.processes["stopped"].wait(60)
    run.wait(seconds=60)
    assert check_run(run, rollouts=ROLLOUTS) == {"completed": ROLLOUTS}
    assert {verdict.worker.split("@")[0] for verdict in cluster.store.verdicts(run.run_id)} == {"next"}
    check_broker(cluster)
    if needs_vm:
        check_pool(cluster)
