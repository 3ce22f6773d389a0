"""Finalising that takes longer than a finaliser may be silent, killed and frozen finalisers: no answer is paid for twice."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from benchmark.report import read_report
from rollout_tasks.models.scripted.process import ScriptedModelProcess
from tests.cluster import LEASE_TTL, Cluster, Run
from tests.conftest import REPOSITORY

ANSWERS = 40
AT_A_TIME = 8
"""Requests that a judge makes at a time."""
SECONDS = 1.0
"""How long each of the judge's replies takes: five rounds of them are longer than a finaliser may be silent."""


@pytest.fixture
def judge(cluster: Cluster, tmp_path: Path) -> Iterator[Judge]:
    cluster.write_items([_item(number) for number in range(ANSWERS)])
    faults = tmp_path / "faults.json"
    faults.write_text(json.dumps([{"kind": "slow", "role": "judge", "seconds": SECONDS}]))
    with ScriptedModelProcess(cluster.items_file, faults=faults) as model:
        yield Judge(model.url)


class Judge:
    """A model server that takes its time to judge, and counts."""

    def __init__(self, url: str) -> None:
        self.url = url

    @property
    def requests(self) -> int:
        """How many answers it was sent."""
        metrics = httpx.get(f"{self.url.removesuffix('/v1')}/metrics", timeout=10).text
        found = re.search(r'scripted_model_faults_total\{kind="slow"\} (\d+)', metrics)
        return int(found[1]) if found else 0


def _item(number: int) -> dict[str, Any]:
    text = str(number if number % 4 else number + 1)
    return {"id": f"item-{number}", "question": f"Say {number}.", "answer": str(number), "script": [{"text": text}]}


def _submit(cluster: Cluster, judge: Judge) -> Run:
    config = {
        "env_mode": "math",
        "metric": "llm_judgement",
        "model": {"name": "scripted", "base_url": judge.url},
    }
    return cluster.submit(config, [_item(number) for number in range(ANSWERS)])


def _start(cluster: Cluster, name: str, queue: str = "finalize") -> None:
    cluster.start_worker(name, concurrency=1, queues=queue)


def _log(cluster: Cluster, name: str) -> str:
    return (cluster.folder / f"{name}.log").read_text()


def _wait_until(reached: Callable[[], Any], what: str, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < deadline, f"{what}: not after {seconds} s"
        time.sleep(0.02)


def _kept(run: Run) -> list[str]:
    """The keys of the answers that are kept."""
    try:
        lines = run.folder.judged.read_text().splitlines()
    except FileNotFoundError:
        return []
    return [json.loads(line)["key"] for line in lines]


def _check_end(run: Run) -> None:
    progress = run.progress()
    assert progress is not None
    assert (progress.state, progress.problem, progress.completed) == ("done", "", ANSWERS)
    summary = read_report(run.folder.evaluation)["summary"]
    assert (summary["average_score"], summary["coverage"]) == (0.75, 1.0)
    assert run.cluster.client.hget(f"{{run:{run.run_id}}}", "times_finalised") == "1"
    assert len(set(_kept(run))) == ANSWERS


@pytest.mark.slow
def test_finalising_takes_as_long_as_it_takes_and_nobody_interferes(cluster: Cluster, judge: Judge) -> None:
    _start(cluster, "worker", "rollout.light")
    for name in ("one", "two"):
        _start(cluster, name)
    run = _submit(cluster, judge)

    began: list[float] = []
    run.wait(
        seconds=120,
        meanwhile=lambda progress: began.append(time.monotonic()) if progress.state == "finalizing" else None,
    )

    assert began[-1] - began[0] > LEASE_TTL, "over before anybody could have taken it for dead: nothing was tested"
    _check_end(run)
    assert judge.requests == len(_kept(run)) == ANSWERS
    assert "taken it over" not in _log(cluster, "one") + _log(cluster, "two")


@pytest.mark.slow
def test_scoring_again_pays_for_nothing_twice(cluster: Cluster, judge: Judge) -> None:
    _start(cluster, "worker", "rollout.light,finalize")
    run = _submit(cluster, judge)
    run.wait(seconds=120)
    lines = run.folder.judged.read_text().splitlines(keepends=True)
    run.folder.judged.write_text("".join(lines[3:]) + lines[0][:20])

    command = [sys.executable, "scripts/rescore.py", str(run.folder.path), "--metric", "llm_judgement", "--json"]
    done = subprocess.run(
        command, env=cluster.environment, cwd=REPOSITORY, capture_output=True, text=True, check=True, timeout=120
    )

    assert json.loads(done.stdout)["average_score"] == 0.75
    assert judge.requests == ANSWERS + 3


@pytest.mark.slow
def test_killed_finalisers_are_replaced_and_their_answers_are_not_paid_again(cluster: Cluster, judge: Judge) -> None:
    _start(cluster, "worker", "rollout.light")
    _start(cluster, "child-killed")
    run = _submit(cluster, judge)
    paid: list[int] = []

    _wait_until(lambda: len(_kept(run)) > AT_A_TIME, "answers of the first finaliser")
    for child in cluster.children("child-killed"):
        child.kill()
    paid.append(judge.requests - len(_kept(run)))
    kept = len(_kept(run))

    _wait_until(lambda: len(_kept(run)) > kept, "answers of the second finaliser")
    cluster.kill("child-killed")
    paid.append(judge.requests - len(_kept(run)))
    _start(cluster, "last")
    run.wait(seconds=120)

    _check_end(run)
    assert len(_kept(run)) == ANSWERS
    assert 0 <= paid[0] <= AT_A_TIME
    assert paid[0] <= paid[1] <= 2 * AT_A_TIME
    assert judge.requests == ANSWERS + paid[1], "paid again: more than what was on its way when they were killed"


@pytest.mark.slow
def test_a_finaliser_that_was_frozen_stops_judging_and_writes_nothing_more(cluster: Cluster, judge: Judge) -> None:
    _start(cluster, "worker", "rollout.light")
    _start(cluster, "frozen")
    run = _submit(cluster, judge)
    _wait_until(lambda: len(_kept(run)) > AT_A_TIME, "answers of the first finaliser")

    frozen = psutil.Process(cluster.processes["frozen"].pid)
    family = [frozen, *frozen.children(recursive=True)]
    for process in family:
        process.suspend()
    _start(cluster, "next")
    run.wait(seconds=120)
    written = {path.name: path.stat().st_ino for path in run.folder.path.glob("*.*")}
    for process in family:
        process.resume()
    _wait_until(lambda: "taken it over" in _log(cluster, "frozen"), "the frozen finaliser's insight")

    _check_end(run)
    assert judge.requests <= ANSWERS + AT_A_TIME
    assert {path.name: path.stat().st_ino for path in run.folder.path.glob("*.*")} == written
