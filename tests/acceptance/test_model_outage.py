"""The model's endpoint goes away in the middle of a run and comes back: the run waits, says so, and loses nothing."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from benchmark.stored_report import read_report
from tests.acceptance.commands import command
from tests.cluster import Cluster, Run
from tests.conftest import REPOSITORY

ITEMS = 12
LIGHT = "rollout.light,finalize"


def items() -> list[dict[str, Any]]:
    call = {"name": "calculator", "arguments": {"expressions": ["2 + 3"]}}
    turns = [*[{"tool_calls": [call]}] * 3, {"text": "5"}]
    return [{"id": f"sum-{n}", "question": "What is 2 + 3?", "answer": "5", "script": turns} for n in range(ITEMS)]


@contextmanager
def model(cluster: Cluster, port: int) -> Iterator[None]:
    """The scripted model at a port; killed at the end, as by a lack of memory."""
    words = ["--data-path", str(cluster.items_file), "--port", str(port), "--latency", "0.15"]
    process = subprocess.Popen([sys.executable, "-m", "rollout_tasks.models.scripted", *words], cwd=REPOSITORY)
    try:
        deadline = time.monotonic() + 30
        while True:
            try:
                httpx.get(f"http://127.0.0.1:{port}/v1/models", timeout=5).raise_for_status()
                break
            except httpx.HTTPError:
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.05)
        yield
    finally:
        process.kill()
        process.wait()


def right(run: Run) -> int:
    """How many rollouts the report calls right."""
    rows = read_report(run.folder.evaluation)["evaluation_results"]
    return sum(rollout["score"] == 1.0 for row in rows for rollout in row["rollouts"])


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_a_run_outlasts_an_outage_of_its_endpoint(cluster: Cluster) -> None:
    """With one attempt, and one try a call: whatever was counted would lose a rollout."""
    cluster.write_items(items())
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}/v1"
    config = {"env_mode": "math", "max_attempts": 1, "model": {"base_url": endpoint, "max_retries": 1, "timeout": 10}}
    with model(cluster, port):
        run = cluster.submit(config, items())
        cluster.start_worker(concurrency=3, queues=LIGHT)
        run.wait_for(committed=2)
    deadline = time.monotonic() + 30
    while not (said := command(cluster, "--status", run.run_id)["waits_for"]):
        assert time.monotonic() < deadline, "nothing says that the endpoint is away"
        time.sleep(0.5)
    time.sleep(6)  # an outage that outlasts every retry
    before = command(cluster, "--status", run.run_id)
    with model(cluster, port):
        progress = run.wait(seconds=120)

    assert said.startswith(f"the model endpoint {endpoint} cannot be reached (ConnectError) (for ")
    assert before["state"] == "running"
    assert before["failures"] == {}
    assert before["pending"] > 0
    assert progress.failures == {}
    assert right(run) == ITEMS


@pytest.mark.parametrize("how", [pytest.param("cancelled", marks=pytest.mark.slow), "worker stopped"])
def test_who_waits_for_an_endpoint_can_be_stopped(cluster: Cluster, how: str) -> None:
    cluster.write_items(items())
    port = free_port()
    config = {
        "env_mode": "math",
        "max_attempts": 1,
        "model": {"base_url": f"http://127.0.0.1:{port}/v1", "max_retries": 1},
    }
    with model(cluster, port):
        run = cluster.submit(config, items())
        cluster.start_worker(concurrency=3, queues=LIGHT)
        run.wait_for(committed=1)
    deadline = time.monotonic() + 30
    while not command(cluster, "--status", run.run_id)["waits_for"]:
        assert time.monotonic() < deadline
        time.sleep(0.5)

    if how == "cancelled":
        command(cluster, "--cancel", run.run_id)
        progress = run.wait(seconds=60)
        assert progress.state == "cancelled"
        assert progress.completed + progress.cancelled == ITEMS
    else:
        worker = cluster.processes["worker"]
        worker.terminate()
        assert worker.wait(30) == 0, "it waits for rollouts that wait"
        with model(cluster, port):
            cluster.start_worker("another", concurrency=3, queues=LIGHT)
            run.wait(seconds=120)
        assert right(run) == ITEMS
