"""Ctrl-C sent to a process that submits a large run: what it says is what there is then."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
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


CONFIG = {
    "env_mode": "simulated",
    "simulated": {"needs_vm": False},
    "data": {"path": "items.jsonl"},
    "run_id": "large",
}
PROGRAM = "-c", f"import rollout_tasks as r; r.submit(r.RunConfig.model_validate({CONFIG}))"
COMMAND = "-m", "rollout_tasks.cli.main", "submit", "--config", "run.yaml"


def submit(folder: Path, url: str, program: Sequence[str] = COMMAND) -> subprocess.Popen[str]:
    lines = [json.dumps({"id": f"item-{number}", "question": "?"}) for number in range(ITEMS)]
    (folder / "items.jsonl").write_text("\n".join(lines))
    (folder / "run.yaml").write_text(json.dumps(CONFIG))
    return subprocess.Popen(
        [sys.executable, *program],
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


@pytest.mark.parametrize("program", [COMMAND, PROGRAM], ids=["command", "program"])
def test_while_it_is_stored(tmp_path: Path, redis_url: str, program: Sequence[str]) -> None:
    client = redis.Redis.from_url(redis_url, decode_responses=True)
    process = submit(tmp_path, redis_url, program)
    until(lambda: client.exists(RUN), process)
    client.client_pause(60_000, all=False)  # what the submitter writes next waits
    try:
        assert client.hget(RUN, "state") == "submitting"
        assert client.llen("rollout.simulated") == 0

        process.send_signal(signal.SIGINT)
    finally:
        client.client_unpause()

    out, err = process.communicate(timeout=60)
    assert (process.returncode in {130, -signal.SIGINT}, out) == (True, ""), err
    assert err.splitlines()[-1] == "Stopped before anything was begun."
    assert client.keys() == []
    assert not (tmp_path / "results" / "large").exists()
