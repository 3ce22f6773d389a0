"""The main job on real input: GSM8K through the submit command, everything embedded, real processes and real HTTP."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rollout_tasks.models.scripted.process import ScriptedModelProcess
from tests.conftest import REPOSITORY

PATTERN = "#### (.+)"


def command(script: str, *options: str) -> dict[str, Any]:
    environment = {
        name: value for name, value in os.environ.items() if "REDIS_URL" not in name and "OPENAI" not in name
    }
    done = subprocess.run(
        [sys.executable, f"scripts/{script}", *options, "--json"],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=220,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def submit(data: Path, results: Path, *options: str) -> dict[str, Any]:
    given = ["--data-path", str(data), "--answer-pattern", PATTERN, "--env-mode", "math", "--metric", "numeric_match"]
    return command("submit.py", *given, "--num-rollouts", "4", "--output-dir", str(results), "--embedded", *options)


@pytest.fixture(scope="module")
def gsm8k(shared_data: Path) -> Path:
    return shared_data / "gsm8k" / "test.jsonl"


@pytest.mark.parametrize("problems", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_all_problems_are_solved(gsm8k: Path, tmp_path: Path, problems: int) -> None:
    some = tmp_path / "some.jsonl"
    some.write_text("".join(gsm8k.read_text().splitlines(keepends=True)[:problems]))

    end = submit(some, tmp_path)

    assert (end["state"], end["committed"], end["completed"]) == ("done", problems, problems)
    assert end["summary"]["average_score"] == 1.0
    assert end["summary"]["coverage"] == 1.0
    assert (
        (Path(end["folder"]) / "report.md")
        .read_text()
        .startswith("**The answers in this report came from the scripted")
    )


@pytest.mark.slow
def test_with_137_wrong_answers_and_a_judge(gsm8k: Path, tmp_path: Path) -> None:
    with ScriptedModelProcess(gsm8k, corrupt=137, seed=3) as model:
        end = submit(gsm8k, tmp_path, "--base-url", model.url)
        assert end["summary"]["average_score"] == 0.863
        assert end["completed"] == 1000

        few = tmp_path / "few.jsonl"
        few.write_text("".join(gsm8k.read_text().splitlines(keepends=True)[:20]))
        judged = submit(few, tmp_path, "--base-url", model.url, "--metric", "llm_judgement")
        assert judged["summary"]["metric"] == "llm_judgement"
        all_judged = command("rescore.py", end["folder"], "--metric", "llm_judgement")
        assert all_judged["average_score"] == 0.863

    rescored = command("rescore.py", end["folder"], "--metric", "contains_answer")
    assert rescored["average_score"] < 1.0
    shown = command("show_result.py", end["folder"])
    assert shown["overall"]["solved"] == 863
    assert shown["scripted"] is True
