"""The examples of docs/how-to/extend.md: the command that ends each block rolls out with the package that the block makes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.extension_examples import examples, install

SCORES = {"my-kitchen": 1.0, "my-planner": 1.0, "my-metric": None, "my-rack": 1.0}
"""What each reaches; the metric's example has items of all kinds."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "my-kitchen" else pytest.mark.slow) for name in SCORES]
)
def test_an_example_rolls_out_as_it_stands(name: str, tmp_path: Path) -> None:
    assert list(examples()) == list(SCORES)
    shutil.copytree(REPOSITORY / "examples", tmp_path / "examples")
    command = install(name, tmp_path)
    environment = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("OPENAI_", "REDIS_", "ROLLOUT_", "CELERY_"))
    }
    environment |= {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": f"{REPOSITORY}:{tmp_path / name}",
        "HOME": str(tmp_path / "home"),
    }

    done = subprocess.run(
        ["bash", "-euc", command],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    (report,) = (tmp_path / "results").glob("*/evaluation.json")
    summary = json.loads(report.read_text())["summary"]
    assert summary["coverage"] == 1.0
    assert SCORES[name] is None or summary["average_score"] == SCORES[name]
