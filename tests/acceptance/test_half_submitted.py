"""A run whose submission was killed before everything was stored, as its user meets it."""

from __future__ import annotations

import json
import subprocess
import sys
import time

from benchmark.items import Item
from rollout_tasks.config import RunConfig
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.runs.submission_store import reserve
from tests.checks import check_broker, check_run
from tests.cluster import Cluster, Run
from tests.conftest import REPOSITORY

RUN = "interrupted"
ITEMS = [Item(f"item-{number}", "work") for number in range(6)]
ROLLOUTS = [f"{item.id}#0" for item in ITEMS]


def submit_by_half(cluster: Cluster) -> Run:
    """What a submission leaves that is killed while it stores its rollouts."""
    simulated = {"seconds": [0.05, 0.1], "needs_vm": False}
    values = {"env_mode": "simulated", "simulated": simulated, "output_dir": str(cluster.results), "run_id": RUN}
    config = RunConfig.model_validate(values)
    folder = RunFolder(cluster.results / RUN)
    folder.description.create(config, ITEMS, data_path="items.jsonl", data_name="items")
    stored = reserve(cluster.store.client, RUN, config, str(folder.path), len(ITEMS), ["rollout.simulated"])
    stored.add_items(ITEMS, ROLLOUTS[:2])
    return Run(cluster, RUN, config)


def submit_py(cluster: Cluster, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "scripts/submit.py", *options]
    return subprocess.run(
        command, env=cluster.environment, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=120
    )


def test_it_is_said_never_scored_and_completed_by_a_resume(cluster: Cluster) -> None:
    run = submit_by_half(cluster)
    cluster.start_worker(concurrency=2)
    cluster.wait_for_worker()
    deadline = time.monotonic() + 60
    while run.progress().state != "half_submitted":  # a worker's look for lost work finds it
        assert time.monotonic() < deadline, run.progress()
        time.sleep(0.1)

    said = submit_py(cluster, "--status", RUN)
    taken = submit_py(
        cluster, f"--run-id={RUN}", f"--data-path={run.folder.path / 'items.jsonl'}", "--env-mode=simulated"
    )

    assert said.returncode == 1
    assert f"run {RUN} is half-submitted: its submission ended when 2 of 6 rollouts were stored" in said.stderr
    assert f"rollouts resume {run.folder.path}" in said.stderr
    assert taken.returncode == 2
    assert "rollouts resume" in taken.stderr
    assert not run.folder.evaluation.exists()
    assert not run.folder.rollout(ROLLOUTS[0]).exists(), "a rollout of a half-submitted run ran"

    resumed = submit_py(cluster, "--resume", str(run.folder.path), "--json")
    assert resumed.returncode == 0, resumed.stderr
    assert json.loads(resumed.stdout)["rollouts"] == 6
    run.wait(seconds=60)
    assert check_run(run, rollouts=6) == {"completed": 6}
    check_broker(cluster)
