"""Ctrl-C sent to a process that submits a large run: what it says is what there is then."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import redis

from tests.conftest import REPOSITORY

ITEMS = 4_000
RUN = "{run:large}"


def until(condition: Callable[[], object], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)


def submit(folder: Path, url: str) -> subprocess.Popen[str]:
    lines = [json.dumps({"id": f"item-{number}", "question": "?"}) for number in range(ITEMS)]
    (folder / "items.jsonl").write_text("\n".join(lines))
    (folder / "run.yaml").write_text("{env_mode: simulated, simulated: {needs_vm: false}}")
    command = [sys.executable, "-m", "rollout_tasks.cli.main", "submit", "--config", "run.yaml"]
    return subprocess.Popen(
        [*command, "--data-path", "items.jsonl", "--run-id", "large"],
        cwd=folder,
        env={**os.environ, "REDIS_URL": url, "PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_while_it_is_sent(tmp_path: Path, redis_url: str) -> None:
    client = redis.Redis.from_url(redis_url, decode_responses=True)
    process = submit(tmp_path, redis_url)
    until(lambda: client.llen("rollout.simulated"), process)

    process.send_signal(signal.SIGINT)

    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, ""), err
    assert err.splitlines()[-1].startswith("Stopped sending, but run large is stored with all its rollouts, ")
    assert client.hget(RUN, "state") == "running"
    assert client.scard(f"{RUN}:pending") == ITEMS
    assert 0 < client.llen("rollout.simulated") < ITEMS
    assert (tmp_path / "results" / "large" / "run.json").exists()


def test_while_it_is_stored(tmp_path: Path, redis_url: str) -> None:
    client = redis.Redis.from_url(redis_url, decode_responses=True)
    process = submit(tmp_path, redis_url)
    until(lambda: client.exists(RUN), process)
    client.client_pause(60_000, all=False)  # what the submitter writes next waits
    try:
        assert client.hget(RUN, "state") == "submitting"
        assert client.llen("rollout.simulated") == 0

        process.send_signal(signal.SIGINT)
    finally:
        client.client_unpause()

    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, ""), err
    assert err.splitlines()[-1] == "Stopped before anything was begun."
    assert client.keys() == []
    assert not (tmp_path / "results" / "large").exists()
