"""Workers of two versions on one broker: the oldest that this one promises to work with, and this one."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from rollout_tasks.runs.store_format import MIN_VERSION
from tests.checks import check_broker, check_pool, check_run
from tests.cluster import Cluster
from tests.conftest import REPOSITORY
from tests.virtual_machines import wait_until

OLDEST = {1: "08110a0266093dc9e5d46c1580a32ce6b7f5bfd6"}
"""The first commit that wrote stored runs and messages of a version."""
ITEMS = 24


@pytest.fixture
def before(tmp_path: Path) -> Path:
    """A copy of the oldest code that can work on what this code writes."""
    commit = OLDEST[MIN_VERSION]
    known = subprocess.run(
        ["git", "cat-file", "-e", commit], cwd=REPOSITORY, check=False, capture_output=True, timeout=30
    )
    if known.returncode:
        pytest.skip(f"this copy of the repository has no commit {commit}: git fetch --unshallow")
    folder = tmp_path / "before"
    folder.mkdir()
    packed = subprocess.run(["git", "archive", commit], cwd=REPOSITORY, check=True, capture_output=True, timeout=60)
    subprocess.run(["tar", "--extract", "--directory", str(folder)], input=packed.stdout, check=True, timeout=60)
    return folder


@pytest.mark.parametrize("submitted_by", ["before", pytest.param("now", marks=pytest.mark.slow)])
def test_a_run_is_right_while_its_workers_are_upgraded(cluster: Cluster, before: Path, submitted_by: str) -> None:
    cluster.start_vm_host(num_vms=3)
    cluster.start_worker("before", concurrency=2, folder=before)
    cluster.start_worker("now", concurrency=2)
    for name in ("before", "now"):
        cluster.wait_for_worker(name)
    items = [{"id": f"item-{number}", "question": "work"} for number in range(ITEMS)]
    config = {"env_mode": "simulated", "max_attempts": 4, "simulated": {"seconds": [0.2, 0.6]}}

    run = cluster.submit(config, items, folder=before if submitted_by == "before" else REPOSITORY)
    run.wait_for(committed=ITEMS // 3, seconds=120)
    wait_until(lambda: any(verdict.worker.startswith("before@") for verdict in cluster.store.verdicts(run.run_id)))
    cluster.kill("before")
    cluster.start_worker("upgraded", concurrency=2)

    run.wait(seconds=180)
    assert check_run(run, rollouts=ITEMS) == {"completed": ITEMS}
    workers = {verdict.worker.partition("@")[0] for verdict in cluster.store.verdicts(run.run_id)}
    assert {"before", "now"} <= workers, "one of the versions did nothing"
    check_pool(cluster)
    check_broker(cluster)


@pytest.mark.slow
def test_a_run_is_right_while_its_vm_host_is_upgraded(cluster: Cluster, before: Path) -> None:
    """In the order that is documented: workers first, so newer workers use the VMs of an older host."""
    cluster.start_vm_host("old", num_vms=2, folder=before)
    cluster.start_worker("now", concurrency=2)
    cluster.wait_for_worker("now")
    items = [{"id": f"item-{number}", "question": "work"} for number in range(ITEMS)]

    run = cluster.submit({"env_mode": "simulated", "max_attempts": 4, "simulated": {"seconds": [0.2, 0.6]}}, items)
    run.wait_for(committed=ITEMS // 3, seconds=120)
    assert {
        verdict.lease.vm_id.rpartition("-")[0] for verdict in cluster.store.verdicts(run.run_id) if verdict.lease
    } == {"old"}
    cluster.stop("old")
    cluster.start_vm_host("upgraded", num_vms=2)

    run.wait(seconds=180)
    assert check_run(run, rollouts=ITEMS) == {"completed": ITEMS}
    check_pool(cluster)
    check_broker(cluster)
