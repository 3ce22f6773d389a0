"""The wheel, installed into an empty environment, outside the repository: a run, a worker that hosts desktops, the Python API."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.multi_process_program import PRINTED, PROGRAM
from tests.conftest import REPOSITORY, ValkeyServer
from tests.desktops import needs_local_desktops
from tests.virtual_machines import wait_until

pytestmark = pytest.mark.slow
ITEMS = REPOSITORY / "examples" / "items.jsonl"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of an environment that has the wheel and what its lock file names, and nothing else."""
    folder = tmp_path_factory.mktemp("wheel")
    uv = shutil.which("uv") or str(REPOSITORY / ".uv" / "bin" / "uv")
    if not Path(uv).exists():
        pytest.skip("uv is not there: scripts/install.sh gets it")
    # From a copy: a build leaves files beside the sources.
    copy = folder / "copy"
    names = subprocess.run(["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, check=True).stdout.decode()
    for name in filter(None, names.split("\0")):
        if (REPOSITORY / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPOSITORY / name, copy / name)
    run = {"check": True, "capture_output": True, "env": {**os.environ, "UV_SYSTEM_CERTS": "true"}}
    subprocess.run([uv, "build", "--wheel", "--out-dir", str(folder), str(copy)], **run)
    subprocess.run([uv, "venv", "--python", sys.executable, str(folder / "venv")], **run)
    lock, [wheel] = REPOSITORY / "requirements-osworld.lock", folder.glob("*.whl")
    python = str(folder / "venv" / "bin" / "python")
    subprocess.run([uv, "pip", "install", "--python", python, "--require-hashes", "-r", str(lock)], **run)
    subprocess.run([uv, "pip", "install", "--python", python, "--no-deps", str(wheel)], **run)
    return folder / "venv" / "bin"


@pytest.fixture
def environment(installed: Path) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("OPENAI_", "REDIS_", "ROLLOUT_", "CELERY_", "PYTHON", "VIRTUAL_ENV"))
    }
    return {**kept, "PATH": f"{installed}:{kept['PATH']}"}


def output_of(command: list[str], folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=200, check=False
    )


def test_a_run(environment: dict[str, str], tmp_path: Path) -> None:
    command = ["rollouts", "run", "--data-path", str(ITEMS), "--env-mode", "math", "--metric", "final_number", "--json"]
    done = output_of(command, tmp_path, environment)

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["summary"]["average_score"] == 1.0


def test_the_python_api(environment: dict[str, str], tmp_path: Path) -> None:
    program = (
        "from benchmark import Benchmark; from rollout_tasks import RunConfig, run;"
        f"print(run(RunConfig(env_mode='math', metric='final_number'), Benchmark({str(ITEMS)!r}, limit=2)).score)"
    )
    done = output_of(["python", "-c", program], tmp_path, environment)
    assert (done.returncode, done.stdout) == (0, "1.0\n"), done.stderr


def test_a_program_of_the_multi_process_framework(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM.format(items=str(ITEMS)))
    done = output_of(["python", "program.py"], tmp_path, environment)
    assert (done.returncode, done.stdout) == (0, PRINTED), done.stderr


@pytest.mark.parametrize("package", ["benchmark", "rollout_tasks", "vm_pool"])
def test_its_types_are_known(installed: Path, package: str) -> None:
    assert list(installed.parent.glob(f"lib/*/site-packages/{package}/py.typed"))


@pytest.fixture
def worker(environment: dict[str, str], tmp_path: Path, valkey: ValkeyServer) -> Iterator[dict[str, str]]:
    """A worker that hosts two desktops; the environment in which it is reached."""
    environment = {**environment, "REDIS_URL": valkey.url}
    command = ["celery", "-A", "rollout_tasks", "worker", "--concurrency", "2", "--num-vms", "2", "--provider", "local"]
    with (tmp_path / "worker.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=log, stderr=subprocess.STDOUT)
        try:
            wait_until(lambda: vms_of(environment, tmp_path) == 2, seconds=120)
            yield environment
        finally:
            process.terminate()
            process.wait(60)


def vms_of(environment: dict[str, str], folder: Path) -> int:
    command = ["rollouts", "pool", "status", "--json"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    return len(json.loads(done.stdout)["vms"])


@needs_local_desktops
def test_a_worker_with_desktops(worker: dict[str, str], tmp_path: Path) -> None:
    tasks = str(REPOSITORY / "examples" / "desktop")
    model = subprocess.Popen(
        ["rollouts", "scripted-model", "--data-path", tasks, "--json"],
        cwd=tmp_path,
        env=worker,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert model.stdout is not None
    url = json.loads(model.stdout.readline())["url"]
    command = ["rollouts", "submit", "--data-path", tasks, "--env-mode", "osworld", "--domain", "terminal", "--watch"]
    command += ["--base-url", url, "--sleep-after-execution", "0.5", "--json"]
    try:
        done = subprocess.run(
            command, cwd=tmp_path, env=worker, capture_output=True, text=True, timeout=230, check=False
        )
    finally:
        model.terminate()
        model.wait(30)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["summary"]["average_score"] == 1.0
