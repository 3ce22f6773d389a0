"""The two ways in which Celery loses a chord's callback; the run is finalised all the same, once."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.checks import check_broker, check_run
from tests.cluster import QUEUES, Cluster


@pytest.mark.parametrize("moment", [pytest.param("before_chord_part", marks=pytest.mark.slow), "before_callback"])
def test_a_lost_chord_does_not_lose_the_run(
    cluster: Cluster, tmp_path: Path, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    once = tmp_path / "died"
    monkeypatch.setenv("SABOTAGE", moment)
    monkeypatch.setenv("SABOTAGE_ONCE", str(once))
    command = [
        sys.executable,
        "-m",
        "celery",
        "-A",
        "tests.chaos.sabotage",
        "worker",
        "--concurrency=2",
        "--loglevel=INFO",
    ]
    cluster.start("worker", [*command, "--without-gossip", "--without-mingle", f"--queues={QUEUES}"])
    items = [{"id": f"item-{number}", "question": "work"} for number in range(6)]
    run = cluster.submit({"env_mode": "simulated", "simulated": {"seconds": [0.05, 0.1], "needs_vm": False}}, items)

    run.wait(seconds=60)

    assert once.exists(), "nobody died: the test sabotaged nothing"
    assert check_run(run, rollouts=6) == {"completed": 6}
    check_broker(cluster)
