"""The commands `rollouts` and `submit.py`, and runs submitted to workers, for tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.cluster import Cluster, Run
from tests.conftest import REPOSITORY

ITEMS = str(REPOSITORY / "examples" / "items.jsonl")
MATH = ("--data-path", ITEMS, "--env-mode", "math", "--metric", "final_number")
"""Of a run that the scripted model answers, all of it right."""
ROLLOUTS = 8
SLOW = {"env_mode": "simulated", "simulated": {"seconds": [0.8, 1.2], "needs_vm": False}}


def rollouts(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """The command `rollouts` in a folder, with no variables of ours but those given."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("OPENAI_", "REDIS_", "ROLLOUT_", "CELERY_"))
    }
    environment |= {"PYTHONPATH": str(REPOSITORY), "COLUMNS": "100", "TERM": "dumb", **variables}
    return subprocess.run(
        [sys.executable, "-m", "rollout_tasks.cli.main", *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


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
