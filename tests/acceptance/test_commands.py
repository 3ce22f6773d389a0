"""A run on workers, followed, left, cancelled and resumed through the commands that people type."""

from __future__ import annotations

import signal
import time

import pytest

from tests.acceptance.commands import ROLLOUTS, command, popen, submit, submit_mixed
from tests.checks import check_broker, check_pool, check_run
from tests.cluster import Cluster


@pytest.mark.slow
def test_status_before_during_and_after(cluster: Cluster) -> None:
    items = [{"id": f"short-{n}", "question": "work"} for n in range(2)]
    items += [{"id": "long", "question": "work", "env_config": {"seconds": [120, 120]}}]
    run = cluster.submit({"env_mode": "simulated", "simulated": {"seconds": [0, 0.1], "needs_vm": False}}, items)
    before = command(cluster, "--status", run.run_id)
    cluster.start_worker(concurrency=2)
    run.wait_for(committed=2)
    deadline = time.monotonic() + 60
    while (during := command(cluster, "--status", run.run_id))["running"] != 1:
        assert time.monotonic() < deadline, "the long one does not begin"
        time.sleep(0.5)
    command(cluster, "--cancel", run.run_id)
    run.wait(seconds=60)
    after = command(cluster, "--status", run.run_id, code=1)

    assert (before["state"], before["committed"], before["running"]) == ("running", 0, 0)
    assert (during["state"], during["committed"], during["running"]) == ("running", 2, 1)
    assert (after["state"], after["completed"], after["cancelled"]) == ("cancelled", 2, 1)
    assert after["summary"]["average_score"] == pytest.approx(2 / 3)


@pytest.mark.slow
def test_status_of_a_run_that_redis_does_not_know_tells_what_its_folder_has(cluster: Cluster) -> None:
    """An embedded run's Redis has ended with it, and any Redis can lose its data."""
    items = [{"id": f"short-{n}", "question": "work"} for n in range(2)]
    long = [{"id": "long", "question": "work", "env_config": {"seconds": [120, 120]}}]
    config: dict[str, object] = {"env_mode": "simulated", "simulated": {"seconds": [0, 0.1], "needs_vm": False}}
    over, broken_off = cluster.submit(config, items), cluster.submit(config, [*items, *long])
    cluster.start_worker(concurrency=2)
    over.wait(seconds=60)
    broken_off.wait_for(committed=2)
    cluster.kill("worker")
    cluster.client.flushall()

    told = command(cluster, "--status", str(over.folder.path))
    asked = popen(cluster, "--status", str(broken_off.folder.path))
    problems = asked.communicate(timeout=60)[1]

    assert (told["state"], told["total"], told["committed"], told["completed"], told["pending"]) == ("done", 2, 2, 2, 0)
    assert told["summary"]["average_score"] == 1
    assert asked.returncode == 2
    assert problems.startswith(f"error: Redis does not know run '{broken_off.run_id}'; "), problems
    assert problems.endswith(f"; in its folder {broken_off.folder.path} 2 of 3 rollouts have a verdict\n"), problems


@pytest.mark.slow
def test_ctrl_c_while_watching_leaves_the_run_going_and_says_how_to_come_back(cluster: Cluster) -> None:
    run = submit(cluster)
    watcher = popen(cluster, "--status", run.run_id, "--watch")
    assert watcher.stdout is not None
    assert f"/{ROLLOUTS} rollouts" in watcher.stdout.readline()

    watcher.send_signal(signal.SIGINT)
    output, _ = watcher.communicate(timeout=60)

    assert watcher.returncode == 130
    assert f"rollouts watch {run.run_id}" in output
    cluster.start_worker(concurrency=4)
    back = popen(cluster, "--status", run.run_id, "--watch")
    output, problems = back.communicate(timeout=60)
    assert back.returncode == 0, problems
    assert "overall" in output
    assert check_run(run, rollouts=ROLLOUTS) == {"completed": ROLLOUTS}


def test_cancel_stops_what_runs_and_resume_does_the_rest(cluster: Cluster) -> None:
    run = submit_mixed(cluster, quick=2, long_seconds=9)
    cluster.start_worker(concurrency=2)
    run.wait_for(committed=2)

    answer = command(cluster, "--cancel", run.run_id)
    progress = run.wait(seconds=60)

    assert progress.state == "cancelled"
    assert answer["cancelled"] + answer["being_stopped"] >= 1
    assert progress.completed + progress.cancelled == ROLLOUTS
    assert progress.cancelled >= 1
    assert command(cluster, "--status", run.run_id, code=1)["failures"] == {"cancelled": progress.cancelled}

    command(cluster, "--resume", str(run.folder.path))
    cluster.start_worker("more", concurrency=4)
    run.wait(seconds=90)

    assert check_run(run, rollouts=ROLLOUTS) == {"completed": ROLLOUTS}
    check_broker(cluster)


@pytest.mark.slow
def test_a_cancelled_run_gives_back_its_vms_and_its_place_in_the_queue(cluster: Cluster) -> None:
    cluster.start_vm_host(num_vms=1)
    cluster.start_worker(concurrency=3)
    run = submit(cluster, {"env_mode": "simulated", "simulated": {"seconds": [200, 200]}})
    deadline = time.monotonic() + 60
    while cluster.store.running(run.run_id) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.05)

    command(cluster, "--cancel", run.run_id)
    progress = run.wait(seconds=60)

    assert (progress.state, progress.cancelled) == ("cancelled", ROLLOUTS)
    check_pool(cluster)


@pytest.mark.slow
def test_resume_without_redis_and_without_the_data_file(cluster: Cluster) -> None:
    run = submit_mixed(cluster, quick=3, long_seconds=5)
    cluster.start_worker(concurrency=2)
    run.wait_for(committed=3)
    cluster.stop("worker")
    kept = len(list(run.folder.path.glob("*/0/attempt-*/result.json")))
    assert 3 <= kept < ROLLOUTS
    cluster.client.flushall()
    (cluster.folder / "items.jsonl").unlink()

    resumed = command(cluster, "--resume", str(run.folder.path))
    cluster.start_worker(concurrency=4)
    run.wait(seconds=60)

    assert resumed["rollouts"] == ROLLOUTS - kept
    assert check_run(run, rollouts=ROLLOUTS) == {"completed": ROLLOUTS}
