"""Two real runs, of which one had fewer turns: compared, summed up and drawn by the commands that people type."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.acceptance.commands import MATH, rollouts
from tests.cluster import Cluster


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_run_with_fewer_turns_does_worse(tmp_path: Path) -> None:
    for name, options in (("short", ("--max-turns", "2")), ("long", ())):
        ran = rollouts(tmp_path, "run", *MATH, *options, "--run-id", name)
        assert ran.returncode == 0, ran.stderr

    compared = rollouts(tmp_path, "compare", "short", "long", "--json")
    assert compared.returncode == 0, compared.stderr
    [pair] = json.loads(compared.stdout)["comparisons"]
    assert pair["second_mean"] == 1.0
    assert pair["mcnemar"]["first_only"] == 0
    assert pair["interval"]["low"] > 0.0
    assert pair["p_value"] < 0.05
    parts = {row["item_id"]: row["divergence"] for row in pair["differing"]}
    assert (parts["tea-blend"]["step"], parts["tea-blend"]["steps"]) == (None, [2, 2])
    assert parts["tea-blend"]["endings"][0] == "max_turns"
    assert "scripted model" in compared.stderr

    summed = rollouts(tmp_path, "stats", "short", "long", "--csv", "items.csv")
    assert (summed.returncode, "all together" in summed.stdout) == (0, True), summed.stderr
    assert len((tmp_path / "items.csv").read_text("utf-8").splitlines()) == 26

    timed = rollouts(tmp_path, "latency", "long", "--json", "--plots", "results/long/plots")
    assert timed.returncode == 0, timed.stderr
    found = json.loads(timed.stdout)
    assert (found["rollouts"], found["vms"], found["unreadable"]) == (25, None, 0)
    assert {"model", "environment", "waiting"} <= found["turns"][1].keys()
    report = (tmp_path / "results/long/report.md").read_text("utf-8")
    assert "![latency by turn](plots/latency-by-turn.svg)" in report

    refused = rollouts(tmp_path, "compare", "short", "short")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == "error: RUN: run short is given twice\n"


@pytest.mark.slow
def test_a_run_on_vms_says_how_it_used_them(tmp_path: Path, cluster: Cluster) -> None:
    cluster.start_vm_host(num_vms=2)
    cluster.start_worker(concurrency=4)
    run = cluster.submit(
        {"env_mode": "simulated", "simulated": {"seconds": [0.2, 0.5]}},
        [{"id": f"item-{n}", "question": "work"} for n in range(12)],
    )
    run.wait(seconds=120)

    found = json.loads(rollouts(tmp_path, "latency", str(run.folder.path), "--json", "--plots", "plots").stdout)

    assert found["vms"]["used"] == 2
    assert 0.1 < found["vms"]["share_of_time"] <= 1.0
    assert found["stages"]["vm"]["count"] == 12
    assert {path.name for path in (tmp_path / "plots").iterdir()} == {
        f"{name}.{kind}" for name in ("vms-in-use", "vm-waits", "latency-by-turn") for kind in ("png", "svg")
    }
