"""The example tasks on real desktops, as people run them: one command, everything embedded."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import cv2
import pytest
from PIL import Image

from benchmark.items import load_items
from rollout_tasks.runs.folder import find_run
from tests.conftest import REPOSITORY
from tests.desktops import needs_local_desktops, traces
from tests.virtual_machines import processes_naming
from vm_pool.providers.qemu.folders import folder_of as qemu_folder_of

TREE = REPOSITORY / "examples" / "desktop"
SOME = TREE / "test_small.json"
"""Three tasks, each of another application."""
RIGHT, WRONG = 0, 1
"""Which of an item's scripts a rollout plays is its index."""

ATTESTATION = {"local": "attested", "qemu": "unattested"}
NUM_VMS = {"local": 2, "qemu": 1}
"""A machine in software emulation alone keeps two cores busy."""


def roll_out(tasks: Path, results: Path, provider: str, *, seconds: float) -> tuple[dict[str, Any], str]:
    """Runs every script of a tree; returns what the command said at its end, and on the way."""
    options = ["--provider", provider, "--num-vms", str(NUM_VMS[provider]), "--rollouts-per-item", "2"]
    command = [sys.executable, "scripts/submit.py", "--embedded", "--data-path", str(tasks), "--env-mode", "osworld"]
    command += [
        *options,
        "--num-rollouts",
        str(2 * NUM_VMS[provider]),
        "--sleep-after-execution",
        "0.5",
        "--output-dir",
        str(results),
        "--run-id",
        "desktops",
        "--json",
    ]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "REDIS_"))}
    run = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=seconds)
    assert run.returncode == 0, run.stderr[-4000:]
    return json.loads(run.stdout), run.stderr


def check(tasks: Path, results: Path, provider: str, *, seconds: float) -> None:
    """Right scripts score 1, wrong ones 0; what can be looked at is whole; no desktop stays."""
    ended, said = roll_out(tasks, results, provider, seconds=seconds)
    folder = find_run("desktops", results)
    items = load_items(tasks).items
    verdicts = {(item.id, index): folder.verdict(f"{item.id}#{index}") for item in items for index in (RIGHT, WRONG)}
    wanted = {(item.id, index): float(index == RIGHT) for item in items for index in (RIGHT, WRONG)}

    assert {key: verdict and verdict.score for key, verdict in verdicts.items()} == wanted
    assert ended["summary"]["average_score"] == 0.5
    assert ended["summary"]["attestation"] == {ATTESTATION[provider]: len(verdicts)}
    assert "VMs" in said
    assert "no worker serves" not in said
    for verdict in verdicts.values():
        attempt = folder.attempt(verdict.rollout_id, verdict.attempt)
        shots = sorted(attempt.glob("step_*.png"))
        assert len(shots) >= 2
        assert {Image.open(shot).size for shot in shots} == {(1920, 1080)}
        assert frame_of(attempt / "recording.mp4") == (1080, 1920, 3)
        assert verdict.stages.keys() == {"setup", "acting", "model", "evaluation"}
        assert sum(verdict.stages.values()) < verdict.finished - verdict.started
        assert left_of(verdict.lease.vm_id) == []


def left_of(vm_id: str) -> list[str]:
    """What is left of a VM of either provider: processes, folders with sockets and disks, mounts, cgroups."""
    folder = qemu_folder_of(vm_id)
    return [*traces(vm_id), *processes_naming(vm_id), *([str(folder)] if folder.exists() else [])]


def frame_of(recording: Path) -> tuple[int, ...]:
    """The shape of a recording's last frame that can be read."""
    video = cv2.VideoCapture(str(recording))
    frames = 0
    shape: tuple[int, ...] = ()
    while True:
        there, frame = video.read()
        if not there:
            break
        frames, shape = frames + 1, frame.shape
    video.release()
    assert frames > 0, f"{recording} has no frames"
    return shape


@pytest.mark.slow
@needs_local_desktops
def test_a_task_is_solved_by_its_right_script_and_not_by_its_wrong_one(tmp_path: Path) -> None:
    tree = shutil.copytree(TREE, tmp_path / "tasks")
    (tree / "test_one.json").write_text(json.dumps({"editor": ["replace-butter"]}))
    check(tree / "test_one.json", tmp_path / "results", "local", seconds=240)


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_tasks_of_three_programs_have_the_same_scores_on_virtual_machines(tmp_path: Path) -> None:
    check(SOME, tmp_path / "results", "qemu", seconds=2300)


@needs_local_desktops
@pytest.mark.slow
@pytest.mark.timeout(960)
def test_every_task_is_solved_by_its_right_script_and_not_by_its_wrong_one(tmp_path: Path) -> None:
    check(TREE, tmp_path / "results", "local", seconds=900)
