"""verl's own classes with its agent loop: rollouts on workers of this project, verl's worker, replay buffer and advantages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from desktop_image.cache import guest_cache_folder
from desktop_image.locks import hold_file
from tests.conftest import REPOSITORY
from tests.torchvision_operators import OPERATORS_OF_TORCHVISION

VERSION, TORCH, TORCHVISION = "0.9.1", "2.13.0", "0.28.0"
"""verl takes any torch; of this one there is a build without CUDA."""
MINUTES = 25
HERE = Path(__file__).parent
MODEL = REPOSITORY / "tests" / "integration" / "models" / "serving" / "tiny_model.py"
DOORS = {"env_mode": "doors", "max_attempts": 1, "limits": {"max_turns": 6, "max_seconds": 60}}
KEY = "key-of-trainer-and-workers"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60 * MINUTES)]


def run(*command: str | Path, **options: Any) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-6000:]
    return done.stdout


@pytest.fixture(scope="module")
def verl() -> Path:
    """The Python of the environment that has it, and what this project needs: 4 GB, made once in the cache."""
    folder = guest_cache_folder().parent / f"verl-{VERSION}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = hold_file(folder.with_name(f"{folder.name}.lock"), seconds=60 * MINUTES)
    assert lock is not None
    try:
        if not (folder / "complete").exists():
            needed = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["dependencies"]
            pip = folder / "bin" / "pip"
            run(sys.executable, "-m", "venv", "--clear", folder)
            run(pip, "install", "--no-compile", f"verl[verl-core]=={VERSION}", f"torch=={TORCH}")
            # In a second step, because the pins of both on `packaging` contradict each other; it works with the newer one.
            run(pip, "install", "--no-compile", *needed)
            run(pip, "install", "--no-compile", "--no-deps", f"torchvision=={TORCHVISION}")
            (folder / "complete").touch()
    finally:
        os.close(lock)
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def site(verl: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the path of verl's Python, where torchvision is built for another torch."""
    folder = tmp_path_factory.mktemp("site")
    if run(verl, "-c", "import torch; print(torch.version.cuda)").strip() == "None":
        (folder / "sitecustomize.py").write_text(OPERATORS_OF_TORCHVISION)
    return folder


@pytest.fixture(scope="module")
def checkpoint(verl: Path, site: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model that sees pictures, with a chat template that has tools."""
    folder = tmp_path_factory.mktemp("checkpoint")
    run(verl, MODEL, folder, "1", env={**os.environ, "PYTHONPATH": str(site)})
    (folder / "chat_template.jinja").write_text((HERE / "verl_chat.jinja").read_text())
    return folder


@pytest.fixture
def names(tmp_path: Path) -> Path:
    """A folder with the entry points of this project and of the test's environment, as installed packages have them."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    groups = {group: dict(points) for group, points in project["entry-points"].items()}
    doors = {"rollout_tasks.environments": {"doors": "tests.integration.integrations.doors:DoorsEnvironment"}}
    for name, points in (("ours", groups), ("doors", doors)):
        described = tmp_path / "names" / f"{name}-1.0.dist-info"
        described.mkdir(parents=True)
        (described / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        lines = [
            line
            for group, of_group in points.items()
            for line in (f"[{group}]", *(f"{one} = {target}" for one, target in of_group.items()))
        ]
        (described / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return tmp_path / "names"


@pytest.fixture
def environment(redis_url: str, names: Path) -> dict[str, str]:
    hidden = ("OPENAI_", "REDIS_", "ROLLOUT_", "CELERY_", "PYTHON", "VIRTUAL_ENV")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    return {
        **kept,
        "PYTHONPATH": f"{REPOSITORY}:{names}",
        "REDIS_URL": redis_url,
        "OPENAI_API_KEY": KEY,
        "HF_HUB_OFFLINE": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }


@pytest.fixture
def workers(environment: dict[str, str], tmp_path: Path) -> Iterator[None]:
    """Workers of this project, with its own packages."""
    command = [
        sys.executable,
        "-m",
        "celery",
        "-A",
        "rollout_tasks",
        "worker",
        "--concurrency",
        "4",
        "-Q",
        "rollout.light,finalize",
    ]
    with (tmp_path / "worker.log").open("w") as log:
        worker = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=log, stderr=log)
        yield
        worker.terminate()
        worker.wait(60)


Train = Callable[..., dict[str, Any]]


@pytest.fixture
def train(
    verl: Path, site: Path, checkpoint: Path, environment: dict[str, str], workers: None, tmp_path: Path
) -> Train:
    """Has verl roll out items, given the options of their runs; returns what it has of them."""

    def train(items: list[dict[str, Any]], options: dict[str, Any], **more: Any) -> dict[str, Any]:
        loops = tmp_path / "agent_loops.yaml"
        target = "rollout_tasks.integrations.verl.agent_loop.RolloutAgentLoop"
        options = {**options, "output_dir": str(tmp_path / "results")}
        loops.write_text(
            yaml.safe_dump([{"name": "rollouts", "_target_": target, "run": options, "wait_seconds": 300}])
        )
        job = {"checkpoint": str(checkpoint), "agent_loops": str(loops), "items": items, "n": 4, **more}
        (tmp_path / "job.json").write_text(json.dumps(job))
        with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as sockets:  # whose paths have to be short
            there = {
                **environment,
                "PYTHONPATH": f"{environment['PYTHONPATH']}:{site}",
                "HOME": str(tmp_path),
                "RAY_TMPDIR": sockets,
                "RAY_USAGE_STATS_ENABLED": "0",
            }
            said = run(verl, HERE / "verl_program.py", tmp_path / "job.json", env=there, cwd=tmp_path, timeout=600)
        [line] = [line for line in said.splitlines() if line.startswith("RESULT ")]
        result: dict[str, Any] = json.loads(line.removeprefix("RESULT "))
        return result

    return train


def test_verls_trainer_takes_every_trace_of_rollouts_on_workers(train: Train) -> None:
    item = {"id": "one", "question": "Press 1.", "answer": "1"}

    result = train([item, {**item, "id": "two", "answer": "broken"}], {**DOORS, "model": {"max_images": 2}})

    assert result["failed"] == [1], "the infrastructure lost its rollouts"
    rows = result["rows"]
    assert [(row["item"], row["session"], row["index"]) for row in rows] == [
        (0, session, index) for session in range(4) for index in range(2)
    ]
    for row in rows:
        sampled = [one for one, mask in zip(row["rollout_log_probs"], row["response_mask"], strict=True) if mask]
        assert len(row["responses"]) == len(row["response_mask"])
        assert set(sampled) <= {-0.125, -0.25, -0.375, -0.5}
        assert row["response_mask"][0] == row["response_mask"][-1] == 1
    rewards = {(row["session"], row["index"]): row["rm_scores"][-1] for row in rows}
    assert sorted(rewards.values()) == [0.0] * 4 + [1.0] * 4
    for session in range(4):
        first, second = (row for row in rows if row["session"] == session)
        reward = rewards[session, 0]
        assert reward == rewards[session, 1]
        advantages = {round(one, 4) for row in (first, second) for one in row["advantages"] if one}
        assert advantages == {0.866 if reward else -0.866}, "every trace of a rollout has the same"
        # The first has two calls; the third call's prompt has lost the oldest picture.
        assert (first["num_turns"], second["num_turns"]) == (4, 2)
        assert 0 in first["response_mask"]
        assert 0 not in second["response_mask"]
        assert (len(first["pictures"]), len(second["pictures"])) == (2, 2)
        assert first["pictures"][1] == second["pictures"][0]
        assert (first["tag"]["min_global_steps"], first["tag"]["max_global_steps"]) == (8, 9)
        assert second["tag"]["min_global_steps"] == second["tag"]["max_global_steps"] == 10
        assert first["extra_fields"]["failure_class"] == ""
