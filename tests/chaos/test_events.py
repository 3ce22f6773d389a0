"""events.jsonl tells of every attempt, also of one whose worker was killed."""

from __future__ import annotations

import json
import time

import pytest

from tests.checks import check_run
from tests.cluster import Cluster


@pytest.mark.slow
def test_a_killed_workers_attempt_is_in_the_events(cluster: Cluster) -> None:
    cluster.start_vm_host(num_vms=2)
    cluster.environments["worker"] = {"ROLLOUT_LEASE_TTL": "60", "ROLLOUT_VISIBILITY_TIMEOUT": "60"}
    cluster.start_worker(concurrency=1)
    cluster.wait_for_worker()
    children = cluster.children()  # looking for them takes its time on a busy machine
    run = cluster.submit({"env_mode": "simulated", "simulated": {"seconds": [5, 5]}}, [{"id": "a", "question": "work"}])
    record = run.folder.attempt("a#0", 1) / "trajectory.jsonl"
    deadline = time.monotonic() + 60
    while not (record.exists() and "header" in record.read_text()):
        assert time.monotonic() < deadline, "the rollout has not begun"
        time.sleep(0.02)

    for child in children:
        child.kill()
    run.wait(seconds=90)

    assert check_run(run, rollouts=1) == {"completed": 1}
    events = [json.loads(line) for line in run.folder.events.read_text().splitlines()]
    assert [event["action"] for event in events] == ["allocate", "worker_exit", "allocate", "release"]
    header = json.loads(record.read_text().splitlines()[0])["header"]
    assert {event["instance_id"] for event in events[:2]} == {header["vm_id"]}
    assert events[2]["instance_id"] == events[3]["instance_id"]
    assert {event["task_id"] for event in events} == {"a#0"}
