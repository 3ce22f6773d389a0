"""A run on workers, followed, left, cancelled and resumed through the commands that people type."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from tests.checks import check_broker, check_pool, check_run
from tests.cluster import RECONCILE_EVERY, Cluster, Run
from tests.conftest import REPOSITORY

ROLLOUTS = 8
SLOW = {"env_mode": "simulated", "simulated": {"seconds": [0.8, 1.2], "needs_vm": False}}


def popen(cluster: Cluster, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "scripts/submit.py", *options],
        cwd=REPOSITORY,
        env=cluster.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def command(cluster: Cluster, *options: str, code: int = 0) -> dict[str, Any]:
    process = popen(cluster, *options, "--json")
    output, problems = process.communicate(timeout=60)
    assert process.returncode == code, problems
    return json.loads(output)  # type: ignore[no-any-return]


def submit(cluster: Cluster, config: dict[str, object] | None = None) -> Run:
    return cluster.submit(config or SLOW, [{"id": f"item-{n}", "question": "work"} for n in range(ROLLOUTS)])


def submit_mixed(cluster: Cluster, *, quick: int, long_seconds: float) -> Run:
    """A run of which a few rollouts are over at once; the others take long enough to do something before they are."""
    items: list[dict[str, Any]] = [{"id": f"a-quick-{n}", "question": "work"} for n in range(quick)]
    long = {"question": "work", "env_config": {"seconds": [long_seconds, long_seconds]}}
    items += [{"id": f"long-{n}", **long} for n in range(ROLLOUTS - quick)]
    return cluster.submit({"env_mode": "simulated", "simulated": {"seconds": [0, 0.1], "needs_vm": False}}, items)


def test_status_before_during_and_after(cluster: Cluster) -> None:
    items = [{"id": f"short-{n}", "question": "work"} for n in range(2)]
    items += [{"id": "long", "question": "work", "env_config": {"seconds": [120, 120]}}]
    run = cluster.submit({"env_mode": "simulated", "simulated": {"seconds": [0, 0.1], "needs_vm": False}}, items)
    before = command(cluster, "--status", run.run_id)
    cluster.start_worker(concurrency=2)
    run.wait_for(committed=2)
    during = command(cluster, "--status", run.run_id)
    command(cluster, "--cancel", run.run_id)
    run.wait(seconds=60)
    after = command(cluster, "--status", run.run_id, code=1)

    assert (before["state"], before["committed"], before["running"]) == ("running", 0, 0)
    assert (during["state"], during["committed"], during["running"]) == ("running", 2, 1)
    assert (after["state"], after["completed"], after["cancelled"]) == ("cancelled", 2, 1)
    assert after["summary"]["average_score"] == pytest.approx(2 / 3)


def test_ctrl_c_while_watching_leaves_the_run_going_and_says_how_to_come_back(cluster: Cluster) -> None:
    run = submit(cluster)
    watcher = popen(cluster, "--status", run.run_id, "--watch")
    assert watcher.stdout is not None
    assert f"/{ROLLOUTS} rollouts" in watcher.stdout.readline()

    watcher.send_signal(signal.SIGINT)
    output, _ = watcher.communicate(timeout=60)

    assert watcher.returncode == 130
    assert f"--status {run.run_id} --watch" in output
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


def test_resume_repeats_only_what_the_infrastructure_lost(cluster: Cluster) -> None:
    items = [
        {"id": "good", "question": "work"},
        {"id": "agent", "question": "work", "env_config": {"fail": "max_turns", "fail_times": 9}},
        {"id": "infrastructure", "question": "work", "env_config": {"fail": "env_step", "fail_times": 2}},
    ]
    quick = {"env_mode": "simulated", "max_attempts": 1, "simulated": {"seconds": [0, 0.1], "needs_vm": False}}
    run = cluster.submit(quick, items)
    cluster.start_worker(concurrency=2)
    first = run.wait(seconds=60)

    again = command(cluster, "--resume", str(run.folder.path))
    run.wait(seconds=60)

    assert first.failures == {"env_step": 1, "max_turns": 1}
    assert again["rollouts"] == 1
    assert (run.folder.path / "infrastructure/0/earlier-1/attempt-1/result.json").exists()


def test_a_worker_serves_only_the_queues_it_is_given(cluster: Cluster) -> None:
    run = submit(cluster)
    cluster.start_worker("light", concurrency=2, queues="rollout.light,finalize")
    cluster.wait_for_worker("light")
    time.sleep(2 * RECONCILE_EVERY)
    assert run.progress().pending == ROLLOUTS  # type: ignore[union-attr]

    cluster.start_worker("other", concurrency=4, queues="rollout.simulated")
    run.wait(seconds=60)

    names = [f"item-{n}#0" for n in range(ROLLOUTS)]
    workers = {verdict.worker.split("@")[0] for verdict in run.folder.verdicts(names)}
    assert workers == {"other"}


def test_infrastructure_failures_are_tried_again_with_a_clean_slate(cluster: Cluster) -> None:
    failures = ["env_setup", "env_step", "env_evaluate", "model_overload"]
    items = [{"id": name, "question": "work", "env_config": {"fail": name, "fail_times": 2}} for name in failures]
    cluster.start_worker(concurrency=1)
    run = cluster.submit({"env_mode": "simulated", "simulated": {"seconds": [0, 0.1], "needs_vm": False}}, items)

    run.wait(seconds=60)

    verdicts = {verdict.rollout_id: verdict for verdict in run.folder.verdicts(f"{name}#0" for name in failures)}
    assert {name: (verdict.status, verdict.attempt) for name, verdict in verdicts.items()} == {
        f"{name}#0": ("completed", 3) for name in failures
    }


def test_a_rollout_that_kills_its_workers_is_given_up(cluster: Cluster) -> None:
    items = [{"id": "deadly", "question": "work", "env_config": {"fail": "worker_lost", "fail_times": 99}}]
    cluster.start_worker(concurrency=1)
    run = cluster.submit({"env_mode": "simulated", "simulated": {"seconds": [0, 0.1], "needs_vm": False}}, items)

    run.wait(seconds=90)

    assert check_run(run, rollouts=1) == {"worker_lost": 1}


def test_a_deadline_breaks_into_a_call_that_never_returns(cluster: Cluster) -> None:
    items = [{"id": "endless", "question": "work", "env_config": {"seconds": [300, 300], "steps": 1}}]
    cluster.start_worker(concurrency=1)
    run = cluster.submit(
        {"env_mode": "simulated", "limits": {"max_seconds": 1}, "simulated": {"needs_vm": False}},
        items,
    )

    run.wait(seconds=30)

    assert check_run(run, rollouts=1) == {"timeout": 1}


def test_a_run_whose_report_cannot_be_written_is_over_and_says_so(cluster: Cluster) -> None:
    cluster.start_worker(concurrency=1)
    run = cluster.submit(
        {"env_mode": "simulated", "simulated": {"needs_vm": False}}, [{"id": "one", "question": "work"}]
    )
    run.folder.report.mkdir()

    progress = run.wait(seconds=60)

    assert progress.completed == 1
    process = popen(cluster, "--status", run.run_id)
    _, problems = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "report.md" in problems
    assert "Is a directory" in problems
    assert "rescore.py" in problems


def test_a_run_that_no_worker_serves_says_so(cluster: Cluster) -> None:
    cluster.start_worker("elsewhere", concurrency=1, queues="rollout.light")
    run = submit(cluster)
    status = popen(cluster, "--status", run.run_id)
    output, _ = status.communicate(timeout=30)
    assert "no worker serves rollout.simulated" in output

    cluster.start_worker("here", concurrency=4)
    run.wait(seconds=60)
