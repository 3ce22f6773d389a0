"""Flower's list of tasks: which item each was, and how it ended."""

from __future__ import annotations

import sys
import time

import httpx

from tests.cluster import Cluster
from tests.conftest import free_port

LOGIN = ("flower", "a password")


def answers(url: str) -> bool:
    try:
        httpx.get(url, timeout=5)
    except httpx.TransportError:
        return False
    return True


def test_a_task_says_which_item_it_was_and_how_it_ended(cluster: Cluster) -> None:
    port = free_port()
    cluster.environments["flower"] = {"FLOWER_BASIC_AUTH": ":".join(LOGIN)}
    command = [sys.executable, "-m", "celery", "-A", "rollout_tasks", "flower", "--address=127.0.0.1", f"--port={port}"]
    cluster.start("flower", command)
    deadline = time.monotonic() + 60
    while not answers(f"http://127.0.0.1:{port}/healthcheck"):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    cluster.start_worker(concurrency=1)
    lost = {"fail": "vm_lost", "fail_times": 1}
    items = [{"id": "good", "question": "work"}, {"id": "bad", "question": "work", "env_config": lost}]
    simulated = {"seconds": [0.05, 0.1], "needs_vm": False}
    run = cluster.submit({"env_mode": "simulated", "max_attempts": 1, "simulated": simulated}, items)
    run.wait(seconds=60)

    shown: dict[str, str] = {}
    while len(shown) < len(items):
        assert time.monotonic() < deadline + 60, shown
        tasks = httpx.get(f"http://127.0.0.1:{port}/api/tasks", auth=LOGIN, timeout=20).json().values()
        shown = {task["args"]: task["result"] for task in tasks if task["name"] == "rollout" and task["result"]}
        time.sleep(0.2)

    assert shown == {
        str((run.run_id, "good#0")): "'completed'",
        str((run.run_id, "bad#0")): "'failed: vm_lost'",
    }
