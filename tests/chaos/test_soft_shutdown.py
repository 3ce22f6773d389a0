"""A worker that is told to stop hands its running rollouts back: another goes on with them at once, and no attempt is used up."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from socket import gethostname

import psutil
import pytest
from celery import Celery

from tests.checks import check_broker, check_pool, check_run
from tests.cluster import QUEUES, Cluster, Run
from tests.paths import paths_below

ROLLOUTS = 2
SOFT_SECONDS = 1
LONG = {"ROLLOUT_VISIBILITY_TIMEOUT": "600", "ROLLOUT_RECONCILE_EVERY": "600", "ROLLOUT_LEASE_TTL": "60"}
"""Nothing but the worker's own doing may bring its rollouts to another."""
ON_A_TERMINAL = [
    sys.executable,
    "-c",
    "import pty, signal, sys; signal.signal(signal.SIGHUP, signal.SIG_DFL); pty.spawn(sys.argv[1:])",
]
"""Runs a command on a terminal of its own, and in a session of its own; when it is killed, that terminal is closed. SIGHUP is
not ignored there, as it is where the tests run under nohup.
"""


def start_worker(
    cluster: Cluster, name: str, *, queues: str = QUEUES, on: Sequence[str] = (), **environment: str
) -> None:
    cluster.environments[name] = {**LONG, **environment}
    soft = ["--", f"worker.soft_shutdown_timeout={SOFT_SECONDS}"]
    cluster.start_worker(name, concurrency=ROLLOUTS, queues=queues, extra=soft, on=on)
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
    records = paths_below(run.folder.path, "trajectory.jsonl")
    return [record for record in records if f'"worker":"{worker}@' in record.read_text().replace('": "', '":"')]


@pytest.mark.parametrize(
    ("remapped", "signals", "needs_vm"),
    [
        pytest.param("SIGQUIT", [signal.SIGTERM], True, marks=pytest.mark.slow),
        ("", [signal.SIGQUIT], False),
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

    check_handed_back(cluster, run, psutil.Process(cluster.processes["stopped"].pid))
    if needs_vm:
        check_pool(cluster)


@pytest.mark.slow
@pytest.mark.parametrize(
    "by_its_shell",
    [False, True],
    ids=["closed", "closed, and its shell tells the children, too"],
)
def test_a_closed_terminal_hands_running_rollouts_back(cluster: Cluster, *, by_its_shell: bool) -> None:
    start_worker(cluster, "next", queues="finalize")
    start_worker(cluster, "stopped", on=ON_A_TERMINAL)
    (worker,) = cluster.children("stopped")
    cluster.sessions.append(worker.pid)
    run = submit(cluster, needs_vm=False)
    wait_until_at_work(run, "stopped")
    have_rollouts_taken_up(cluster, "next")

    if by_its_shell:
        os.killpg(worker.pid, signal.SIGHUP)
    cluster.kill_main("stopped")

    check_handed_back(cluster, run, worker)


def check_handed_back(cluster: Cluster, run: Run, stopped: psutil.Process) -> None:
    """Checks that the next worker goes on with what a stopped one had, and that this one ends."""
    wait_until_at_work(run, "next")
    for name in ("item-0#0", "item-1#0"):
        assert cluster.client.hget(f"{{run:{run.run_id}}}:attempts", name) == "1", "an attempt was used up"
    stopped.wait(60)
    run.wait(seconds=60)
    assert check_run(run, rollouts=ROLLOUTS) == {"completed": ROLLOUTS}
    assert {verdict.worker.split("@")[0] for verdict in cluster.store.verdicts(run.run_id)} == {"next"}
    check_broker(cluster)
