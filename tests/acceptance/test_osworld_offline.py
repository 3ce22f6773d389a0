"""OSWorld's own tasks that need no internet, unchanged, through the whole pipeline on real desktops.

Solved by scripts that act on the screen, or given up where they are infeasible; right after that, on the same VM, an agent does
nothing. Two runs at the same time, each on a VM of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import REPOSITORY
from tests.desktops import needs_local_desktops

DOMAINS = (["chrome", "libreoffice_impress", "os"], ["gimp", "multi_apps", "vlc", "vs_code"])
"""Two halves that take about as long."""
NO_VS_CODE = (
    "VS Code, which Debian does not have: OSWorldEnvironment: reset: RuntimeError: the guest refused a setup step: "
)
SECONDS = 1500

pytestmark = [needs_local_desktops, pytest.mark.slow, pytest.mark.timeout(SECONDS + 60)]


def roll_out(task_list: Path, domains: Sequence[str], results: Path) -> list[dict[str, Any]]:
    """What came of each task of some domains, in the list's order."""
    command = [sys.executable, "scripts/bench/osworld_tasks.py", "run", "--data-path", str(task_list), "--json"]
    command += ["--output-dir", str(results), "--run-id", domains[0]]
    command += [word for domain in domains for word in ("--domain", domain)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "REDIS_"))}
    run = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=SECONDS)
    assert run.returncode == 0, run.stderr[-4000:]
    return list(json.loads(run.stdout))


@pytest.fixture(scope="module")
def rows(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What came of each task."""
    task_list = shared_data / "osworld" / "test_offline.json"
    results = tmp_path_factory.mktemp("results")
    with ThreadPoolExecutor() as threads:
        halves = threads.map(lambda domains: roll_out(task_list, domains, results), DOMAINS)
        return [row for half in halves for row in half]


def test_every_task_was_rolled_out(rows: list[dict[str, Any]], shared_data: Path) -> None:
    listed = json.loads((shared_data / "osworld" / "test_offline.json").read_text())

    assert {(row["domain"], row["task"]) for row in rows} == {
        (domain, task) for domain, tasks in listed.items() for task in tasks
    }


def test_scripts_solve_tasks_and_doing_nothing_on_the_same_vm_does_not(rows: list[dict[str, Any]]) -> None:
    solved = [row for row in rows if row["tried"] == "script"]

    assert _wrong(solved) == []
    assert len(solved) >= 14
    assert {row["domain"] for row in solved} >= {"chrome", "gimp", "libreoffice_impress", "os", "vlc"}


def test_infeasible_tasks_are_solved_by_giving_up_and_by_nothing_else(rows: list[dict[str, Any]]) -> None:
    infeasible = [row for row in rows if row["tried"] == "FAIL" and row["domain"] != "vs_code"]

    assert _wrong(infeasible) == []
    assert len(infeasible) == 8


def test_other_tasks_are_set_up_and_evaluated_or_say_what_the_desktop_lacks(rows: list[dict[str, Any]]) -> None:
    without_code = [row for row in rows if row["domain"] == "vs_code"]
    offline = [row for row in rows if row["tried"] == "nothing" and row["domain"] != "vs_code"]

    assert [row["task"] for row in without_code if not row["why"].startswith(NO_VS_CODE)] == []
    assert [row["task"] for row in without_code if "the guest has no program or folder code" not in row["why"]] == []
    assert [row["task"] for row in offline if (row["score"], row["idle_score"]) != (0, 0)] == []
    assert [row["task"] for row in offline if not row["why"].startswith("the internet: ")] == []


def _wrong(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Of tasks that are to be solved and then not: what went otherwise."""
    told = [(row["task"], row["score"], row["idle_score"], row["same_vm"], row["why"]) for row in rows]
    return [row for row in told if row[1:] != (1, 0, True, "")]
