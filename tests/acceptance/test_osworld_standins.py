"""OSWorld's own tasks with files made here: solved in the programs' own windows they score 1, left alone and missed narrowly 0."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmark.items import load_items
from scripts.bench.osworld_standins import files_by_url
from tests.acceptance.osworld_standins import stand_ins
from tests.conftest import REPOSITORY
from tests.desktops import needs_local_desktops

SECONDS = 3000
DRAWN = 8
"""So many are played here; the bench plays all."""


@pytest.fixture(scope="module")
def task_list(shared_data: Path) -> Path:
    return shared_data / "osworld" / "test_all.json"


@pytest.mark.slow
def test_every_file_that_a_task_asks_for_has_a_stand_in(task_list: Path) -> None:
    items = {item.id: item for item in load_items(task_list)}

    for one in stand_ins():
        files_by_url(items[one.task], one.files)
        assert one.right != one.near_miss


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 60)
@needs_local_desktops
def test_each_scores_as_it_should(task_list: Path, tmp_path: Path) -> None:
    drawn = random.Random(DRAWN).sample(stand_ins(), DRAWN)
    tasks = [word for one in drawn for word in ("--task", one.task)]
    command = [sys.executable, "scripts/bench/osworld_standins.py", "run", "--data-path", str(task_list), "--json"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "REDIS_"))}
    run = subprocess.run(
        [*command, *tasks, "--num-vms", "2", "--output-dir", str(tmp_path)],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    rows: list[dict[str, Any]] = json.loads(run.stdout)

    told = {row["task"]: (row["right"], row["nothing"], row["near_miss"], row["why"]) for row in rows}
    wanted = {one.task: ([1.0], 0.0, 0.0, "") for one in drawn}
    assert told == wanted
