"""verl's own classes with its agent loop: rollouts on workers of this project, verl's worker, replay buffer and advantages."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from desktop_image.cache import guest_cache_folder
from desktop_image.locks import hold_file
from tests.conftest import REPOSITORY, ValkeyServer, free_port
from tests.cpu_vllm import MINUTES, OPTIONS, VARIABLES, vllm_environment
from tests.torchvision_operators import OPERATORS_OF_TORCHVISION

VERSION, TORCH, TORCHVISION = "0.9.1", "2.13.0", "0.28.0"
"""verl takes any torch; of this one there is a build without CUDA."""
HERE = Path(__file__).parent
MODEL = REPOSITORY / "tests" / "integration" / "models" / "serving" / "tiny_model.py"
TARGET = "rollout_tasks.integrations.verl.agent_loop.RolloutAgentLoop"

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


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the entry points of this project and of the test's environment, as installed packages have them."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    doors = {"rollout_tasks.environments": {"doors": "tests.integration.integrations.doors:DoorsEnvironment"}}
    folder = tmp_path_factory.mktemp("names")
    for name, groups in (("ours", project["entry-points"]), ("doors", doors)):
        described = folder / f"{name}-1.0.dist-info"
        described.mkdir()
        (described / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        lines = [
            line
            for group, points in groups.items()
            for line in (f"[{group}]", *(f"{one} = {target}" for one, target in points.items()))
        ]
        (described / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("trainer")


@pytest.fixture(scope="module")
def environment(names: Path, folder: Path) -> Iterator[dict[str, str]]:
    """The variables that trainer and workers share, and their Redis."""
    hidden = ("OPENAI_", "REDIS_", "ROLLOUT_", "CELERY_", "PYTHON", "VIRTUAL_ENV")
    server = ValkeyServer(folder, aof=False)
    server.start()
    yield {
        **{name: value for name, value in os.environ.items() if not name.startswith(hidden)},
        "PYTHONPATH": f"{REPOSITORY}:{names}",
        "REDIS_URL": server.url,
        "OPENAI_API_KEY": "key-of-trainer-and-workers",
        "HF_HUB_OFFLINE": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "HOME": str(folder),
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    server.kill_at_once()


@pytest.fixture(scope="module", autouse=True)
def workers(environment: dict[str, str], folder: Path) -> Iterator[None]:
    """Workers of this project, with its own packages."""
    celery = [sys.executable, "-m", "celery", "-A", "rollout_tasks"]
    command = [*celery, "worker", "--concurrency", "4", "-Q", "rollout.light,finalize"]
    with (folder / "worker.log").open("w") as log:
        worker = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
        yield
        worker.terminate()
        worker.wait(60)


Train = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def train(verl: Path, site: Path, checkpoint: Path, environment: dict[str, str], folder: Path) -> Train:
    """Has verl's classes do a job; returns what they have then."""

    def train(**job: Any) -> dict[str, Any]:
        common = {"max_attempts": 1, "output_dir": str(folder / "results")}
        limits = {"max_turns": 6, "max_seconds": 120}
        runs = {
            "doors": {"env_mode": "doors", "limits": limits, "model": {"max_images": 2}},
            "short": {"env_mode": "doors", "limits": limits, "model": {"max_completion_tokens": 12}},
            "math": {"env_mode": "math", "metric": "final_number", "limits": limits},
        }
        loops = [
            {"name": name, "_target_": TARGET, "run": {**options, **common}, "wait_seconds": 600}
            for name, options in runs.items()
        ]
        (folder / "agent_loops.yaml").write_text(yaml.safe_dump(loops))
        known = {"checkpoint": str(checkpoint), "agent_loops": str(folder / "agent_loops.yaml"), "url": ""}
        (folder / "job.json").write_text(json.dumps({**known, "padded": [], **job}))
        with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as sockets:  # whose paths have to be short
            path = f"{environment['PYTHONPATH']}:{site}"
            there = {**environment, "PYTHONPATH": path, "RAY_TMPDIR": sockets}
            said = run(verl, HERE / "verl_program.py", folder / "job.json", env=there, cwd=folder, timeout=1200)
        [line] = [line for line in said.splitlines() if line.startswith("RESULT ")]
        result: dict[str, Any] = json.loads(line.removeprefix("RESULT "))
        return result

    return train


PRESS = {"agent_loop": "doors", "item": {"id": "one", "question": "Press 1.", "answer": "1"}}
BROKEN = {"agent_loop": "doors", "item": {**PRESS["item"], "id": "two", "answer": "broken"}}
SUM = {"agent_loop": "math", "item": {"id": "sum", "question": "How much is 40 + 2?", "answer": "42"}}


@pytest.fixture(scope="module")
def trained(train: Train) -> dict[str, Any]:
    return train(rows=[PRESS, BROKEN, SUM], n=4, padded=[[SUM, SUM], [PRESS]])


def rows_of(trained: dict[str, Any], number: int) -> list[dict[str, Any]]:
    return [row for row in trained["rows"] if row["row"] == number]


def test_verls_trainer_takes_every_trace_of_rollouts_on_workers(trained: dict[str, Any]) -> None:
    rows = rows_of(trained, 0)

    assert [(row["session"], row["index"]) for row in rows] == [(n, index) for n in range(4) for index in range(2)]
    for row in rows:
        assert len(row["responses"]) == len(row["response_mask"]) == len(row["rollout_log_probs"])
        assert row["response_mask"][0] == row["response_mask"][-1] == 1
        for mask, logprob in zip(row["response_mask"], row["rollout_log_probs"], strict=True):
            assert (logprob < 0) == bool(mask)
    for first, second in zip(rows[::2], rows[1::2], strict=True):
        # The first has two calls; the prompt of the third has lost the oldest picture.
        assert (first["num_turns"], second["num_turns"]) == (4, 2)
        assert (0 in first["response_mask"], 0 in second["response_mask"]) == (True, False)
        assert (len(first["pictures"]), len(second["pictures"])) == (2, 2)
        assert first["pictures"][1] == second["pictures"][0]
        assert (first["steps"], second["steps"]) == ([8, 9], [10, 10])
        assert first["extra_fields"]["failure_class"] == ""


def test_every_trace_of_a_rollout_has_its_reward_and_the_same_advantage(trained: dict[str, Any]) -> None:
    rows = rows_of(trained, 0)

    assert sorted(row["rm_scores"][-1] for row in rows) == [0.0] * 4 + [1.0] * 4
    for first, second in zip(rows[::2], rows[1::2], strict=True):
        reward = first["rm_scores"][-1]
        assert reward == second["rm_scores"][-1]
        expected = 0.866 if reward else -0.866  # (reward - 0.5) / the standard deviation of two zeros and two ones
        for row in (first, second):
            for mask, advantage in zip(row["response_mask"], row["advantages"], strict=True):
                assert advantage == pytest.approx(expected * mask, abs=1e-3)


def test_a_rollout_that_the_infrastructure_lost_is_a_failure_and_in_no_mean(trained: dict[str, Any]) -> None:
    assert trained["failed"] == [1]
    assert rows_of(trained, 1) == []


def test_a_rollout_of_one_call_is_one_row(trained: dict[str, Any]) -> None:
    rows = rows_of(trained, 2)

    assert [(row["session"], row["index"], row["num_turns"]) for row in rows] == [(n, 0, 2) for n in range(4)]
    assert sorted(row["rm_scores"][-1] for row in rows) == [0.0, 0.0, 1.0, 1.0]
    assert {tuple(row["response_mask"]) for row in rows} == {(1,) * len(rows[0]["responses"])}


def test_the_older_trainer_takes_one_trace_of_a_rollout_and_no_more(trained: dict[str, Any]) -> None:
    taken, refused = trained["padded"]

    assert sorted(taken["rewards"]) == [0.0, 1.0]
    assert all(taken["sampled"])
    assert (
        "the rollout has 2 traces, and this verl worker takes one: train with trainer.use_v1=True" in refused["error"]
    )


@pytest.fixture
def vllm(checkpoint: Path, folder: Path) -> Iterator[str]:
    """A server of vLLM with the checkpoint."""
    there = vllm_environment()
    port = free_port()
    command = [there / "bin" / "python", there / "bin" / "vllm", "serve", checkpoint, "--port", port, *OPTIONS]
    path = {"PYTHONPATH": str(there / "names"), "HOME": str(folder)}
    with (folder / "vllm.log").open("w") as log:
        server = subprocess.Popen(
            [*map(str, command), "--enable-scale-out"],
            env={**os.environ, **VARIABLES, **path},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            deadline = time.monotonic() + 60 * MINUTES / 2
            while not answers(f"http://127.0.0.1:{port}/health"):
                assert server.poll() is None, (folder / "vllm.log").read_text()[-4000:]
                assert time.monotonic() < deadline, "vLLM does not start"
                time.sleep(0.5)
            yield f"http://127.0.0.1:{port}"
        finally:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5).is_success
    except httpx.HTTPError:
        return False


def test_what_vllm_samples_is_what_the_model_itself_says(train: Train, vllm: str) -> None:
    """The forward pass over each row, with the pictures and positions that verl made of it, has vLLM's log-probabilities."""
    rows = [{**PRESS, "agent_loop": "short"}, {**SUM, "agent_loop": "math"}]

    trained = train(rows=rows, n=2, url=vllm)

    assert trained["failed"] == []
    assert [len(rows_of(trained, number)) >= 2 for number in range(2)] == [True, True]
    assert [len(row["pictures"]) for row in rows_of(trained, 0)] == [1] * len(rows_of(trained, 0))
    for row in trained["rows"]:
        assert row["farthest"] < 1e-3
