"""Runs whose process was killed: they are cancelled, and no others are."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rollout_tasks import find
from tests.conftest import REPOSITORY

PROGRAM = """
import os, signal
from pathlib import Path
from benchmark import Benchmark
from rollout_tasks import RunConfig, submit
from rollout_tasks.integrations.verl.orphaned_runs import UnfinishedRuns

unfinished = UnfinishedRuns()
for name in ("over", "left"):
    unfinished.begun(Path("results", name).resolve())
    simulated = {"seconds": [30, 30], "needs_vm": False}
    config = RunConfig.model_validate({"env_mode": "simulated", "simulated": simulated, "run_id": name})
    submit(config, Benchmark("work.jsonl"))
unfinished.begun(Path("results", "never begun").resolve())
unfinished.over(Path("results", "over").resolve())
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_has_left_is_cancelled(
    redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDIS_URL", redis_url)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "work.jsonl").write_text('{"question": "work"}\n')
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}

    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, timeout=100, check=False
    )

    assert done.returncode == -signal.SIGKILL, done.stderr
    # Whoever reads all of the program's output waits until the process has ended that cancels runs.
    assert [find(name).progress().cancelled for name in ("left", "over")] == [1, 0]
