"""The model's endpoint goes away in the middle of a run and comes back: the run waits, says so, and loses nothing."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from celery import Celery

from benchmark.stored_report import read_report
from tests.acceptance.commands import command
from tests.cluster import Cluster, Run
from tests.conftest import REPOSITORY, free_port

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


@pytest.mark.slow
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


def run_that_waits(cluster: Cluster, port: int, **environment: str) -> Run:
    """A run whose endpoint has gone, and whose three rollouts in flight wait for it."""
    cluster.environments["worker"] = environment
    cluster.write_items(items())
    endpoint = {"base_url": f"http://127.0.0.1:{port}/v1", "max_retries": 1}
    with model(cluster, port):
        run = cluster.submit({"env_mode": "math", "max_attempts": 1, "model": endpoint}, items())
        cluster.start_worker(concurrency=3, queues=LIGHT)
        run.wait_for(committed=1)
    deadline = time.monotonic() + 30
    while not command(cluster, "--status", run.run_id)["waits_for"]:
        assert time.monotonic() < deadline
        time.sleep(0.5)
    return run


@pytest.mark.slow
def test_a_run_that_waits_for_an_endpoint_can_be_cancelled(cluster: Cluster) -> None:
    run = run_that_waits(cluster, free_port())

    command(cluster, "--cancel", run.run_id)
    progress = run.wait(seconds=60)

    assert progress.state == "cancelled"
    assert progress.completed + progress.cancelled == ITEMS


@pytest.mark.slow
@pytest.mark.parametrize(
    ("signals", "environment"),
    [
        pytest.param([signal.SIGTERM], {}, id="SIGTERM"),
        pytest.param([signal.SIGTERM], {"REMAP_SIGTERM": "SIGQUIT"}, id="by a service manager"),
        pytest.param([], {}, id="remote control"),
    ],
)
def test_a_worker_that_stops_hands_back_what_waits_for_an_endpoint(
    cluster: Cluster, signals: list[signal.Signals], environment: dict[str, str]
) -> None:
    """At once, and not when the time for running rollouts is over, which is 30 s."""
    port = free_port()
    run = run_that_waits(cluster, port, **environment)
    worker = cluster.processes["worker"]

    for number in signals:
        worker.send_signal(number)
    if not signals:
        Celery(broker=cluster.valkey.url).control.shutdown()
    deadline = time.monotonic() + 15
    while cluster.client.llen("rollout.light") + cluster.store.progress(run.run_id).committed < ITEMS:
        assert time.monotonic() < deadline, "it keeps rollouts that wait"
        time.sleep(0.2)
    assert worker.wait(60) == 0
    assert cluster.client.hlen("unacked") == 0
    with model(cluster, port):
        cluster.start_worker("another", concurrency=3, queues=LIGHT)
        run.wait(seconds=120)
    assert right(run) == ITEMS
