"""What workers make of runs: which queues they serve, what they try again, and what they give up."""

from __future__ import annotations

import re
import time

import pytest

from tests.acceptance.commands import ROLLOUTS, command, popen, submit
from tests.checks import check_run
from tests.cluster import RECONCILE_EVERY, Cluster


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


@pytest.mark.slow
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


def test_what_a_killed_worker_holds_is_told_until_another_one_has_it(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.cluster.VISIBILITY_TIMEOUT", 20.0)
    items = [{"id": name, "question": "work", "env_config": {"seconds": [300, 300], "steps": 1}} for name in ("a", "b")]
    cluster.start_worker("first", concurrency=2)
    run = cluster.submit({"env_mode": "simulated", "simulated": {"needs_vm": False}}, items)

    def wait_for(running: int) -> None:
        deadline = time.monotonic() + 60
        while (progress := run.progress()) is None or progress.running != running:
            assert time.monotonic() < deadline, progress
            time.sleep(0.1)

    wait_for(2)
    cluster.start_worker("second", concurrency=2)
    cluster.wait_for_worker("second")
    cluster.kill("first")
    wait_for(0)

    told = time.monotonic()
    said = command(cluster, "--status", run.run_id)["waits_for"]

    held = re.search(r"2 rollouts are held by a worker that has gone silent; another worker gets them in (\d+) s", said)
    assert held, said
    wait_for(2)
    assert time.monotonic() - told < int(held[1]) + 10  # a busy machine is late
    cluster.kill("second")


def test_a_deadline_breaks_into_a_call_that_never_returns(cluster: Cluster) -> None:
    items = [{"id": "endless", "question": "work", "env_config": {"seconds": [300, 300], "steps": 1}}]
    cluster.start_worker(concurrency=1)
    cluster.wait_for_worker()
    run = cluster.submit(
        {"env_mode": "simulated", "limits": {"max_seconds": 1}, "simulated": {"needs_vm": False}},
        items,
    )

    run.wait(seconds=60)

    assert check_run(run, rollouts=1) == {"timeout": 1}


@pytest.mark.slow
def test_a_run_whose_report_cannot_be_written_is_over_and_says_so(cluster: Cluster) -> None:
    run = cluster.submit(
        {"env_mode": "simulated", "simulated": {"needs_vm": False}}, [{"id": "one", "question": "work"}]
    )
    run.folder.report.mkdir()
    cluster.start_worker(concurrency=1)

    progress = run.wait(seconds=60)

    assert progress.completed == 1
    process = popen(cluster, "--status", run.run_id)
    _, problems = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "report.md" in problems
    assert "Is a directory" in problems
    assert "rollouts rescore" in problems


@pytest.mark.slow
def test_a_run_that_no_worker_serves_says_so(cluster: Cluster) -> None:
    cluster.start_worker("elsewhere", concurrency=1, queues="rollout.light")
    run = submit(cluster)
    status = popen(cluster, "--status", run.run_id)
    output, _ = status.communicate(timeout=30)
    assert "no worker serves rollout.simulated" in output

    cluster.start_worker("here", concurrency=4)
    run.wait(seconds=60)
