"""The same sixty rollouts on desktops of one's own, on lent ones, and while the service that lends them is killed: same scores."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmark.items import load_items
from rollout_tasks.runs.folder import find_run
from rollout_tasks.runs.verdict import Verdict
from tests.acceptance.lender import OPERATOR, Lender
from tests.conftest import REPOSITORY
from tests.desktops import needs_local_desktops, traces
from tests.virtual_machines import processes_naming
from vm_pool.providers.remote.options import TOKEN_VARIABLE
from vm_pool.providers.remote.records import state_folder

pytest.importorskip("websockets")
pytestmark = [pytest.mark.slow, needs_local_desktops, pytest.mark.timeout(5400)]

ROLLOUTS = 60
PER_ITEM = 5
VMS = 2
SECONDS = 1700
"""The longest that one run may take."""
AWAY_SECONDS = 5
TREE = REPOSITORY / "examples" / "desktop"
Scores = dict[str, float | None]


@pytest.fixture(name="tasks", scope="module")
def _tasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Example tasks whose rollouts with even indexes are played right, and the others missed narrowly."""
    tree = tmp_path_factory.mktemp("tasks")
    chosen: dict[str, list[str]] = {}
    left = ROLLOUTS // PER_ITEM
    for domain, names in json.loads((TREE / "test_all.json").read_text(encoding="utf-8")).items():
        for name in names[:left]:
            task = json.loads((TREE / "examples" / domain / f"{name}.json").read_text(encoding="utf-8"))
            task["script"] = {str(index): task["script"][str(index % 2)] for index in range(PER_ITEM)}
            path = tree / "examples" / domain / f"{name}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(task), encoding="utf-8")
            chosen.setdefault(domain, []).append(name)
            left -= 1
    (tree / "test_all.json").write_text(json.dumps(chosen), encoding="utf-8")
    return tree


@pytest.fixture(name="wanted", scope="module")
def _wanted(tasks: Path) -> Scores:
    items = load_items(tasks).items
    wanted: Scores = {f"{item.id}#{index}": float(index % 2 == 0) for item in items for index in range(PER_ITEM)}
    assert len(wanted) == ROLLOUTS
    return wanted


@pytest.fixture(name="lender")
def _lender(tmp_path: Path) -> Iterator[Lender]:
    made = Lender(tmp_path / "lender", VMS)
    yield made
    try:
        assert made.lent() == 0
    finally:
        made.stop()
    assert traces(made.host_id) == []


def test_desktops_of_ones_own(tasks: Path, wanted: Scores, tmp_path: Path) -> None:
    assert scores(played(tmp_path, tasks, wanted, "--provider", "local")) == wanted


def test_lent_desktops(tasks: Path, wanted: Scores, tmp_path: Path, lender: Lender) -> None:
    verdicts = played(tmp_path, tasks, wanted, *remote(lender))
    assert scores(verdicts) == wanted
    assert {one.attempt for one in verdicts.values()} == {1}


def test_lent_desktops_whose_service_is_killed(tasks: Path, wanted: Scores, tmp_path: Path, lender: Lender) -> None:
    def kill_and_start() -> None:
        lender.kill()
        time.sleep(AWAY_SECONDS)
        lender.start()

    assert scores(played(tmp_path, tasks, wanted, *remote(lender), at_a_third=kill_and_start)) == wanted


def remote(lender: Lender) -> list[str]:
    return [
        "--provider",
        "remote",
        "--provider-option",
        f"url={lender.url}",
        "--provider-option",
        "through_service=true",
    ]


def played(
    folder: Path, tasks: Path, rollouts: Scores, *options: str, at_a_third: Callable[[], None] | None = None
) -> dict[str, Verdict]:
    """Runs all of it as a user does; returns how each rollout ended."""
    words = ["run", "--data-path", str(tasks), "--rollouts-per-item", str(PER_ITEM), *options]
    words += ["--num-vms", str(VMS), "--num-rollouts", str(VMS), "--sleep-after-execution", "0.5", "--no-recording"]
    names = ("OPENAI_", "REDIS_", "ROLLOUT_", "CELERY_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(names)}
    environment |= {"PYTHONPATH": str(REPOSITORY), TOKEN_VARIABLE: OPERATOR, "TMPDIR": str(folder / "tmp")}
    (folder / "tmp").mkdir()
    log = folder / "log"
    began = time.monotonic()
    with log.open("wb") as said:
        command = [
            sys.executable,
            "-m",
            "rollout_tasks.cli.main",
            *words,
            "--output-dir",
            "results",
            "--run-id",
            "sixty",
        ]
        run = subprocess.Popen(command, cwd=folder, env=environment, stdout=said, stderr=said)
    try:
        while run.poll() is None:
            assert time.monotonic() < began + SECONDS, log.read_text(encoding="utf-8")[-4000:]
            if (
                at_a_third is not None
                and len(list(folder.glob("results/sixty/*/*/*/result.json"))) >= len(rollouts) // 3
            ):
                at_a_third()
                at_a_third = None
            time.sleep(0.2)
    finally:
        run.terminate()
        run.wait(120)
    assert run.returncode == 0, log.read_text(encoding="utf-8")[-4000:]
    assert at_a_third is None
    assert left_of(run.pid, folder) == []
    of_run = find_run("sixty", folder / "results")
    verdicts = {one: verdict for one in rollouts if (verdict := of_run.verdict(one)) is not None}
    attempts = sum(one.attempt for one in verdicts.values())
    print(f"{time.monotonic() - began:.0f} s, {attempts} attempts")
    return verdicts


def scores(verdicts: dict[str, Verdict]) -> Scores:
    return {rollout_id: one.score for rollout_id, one in verdicts.items()}


def left_of(pid: int, folder: Path) -> list[str]:
    """What is left of a run: desktops, processes, temporary files, and records of what was lent to it."""
    mark = f"embedded-{pid}."
    records = [str(path) for path in state_folder().glob(f"{mark}*")]
    return [*traces(mark), *processes_naming(str(folder)), *map(str, (folder / "tmp").iterdir()), *records]
