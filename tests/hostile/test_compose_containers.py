"""The walls of a worker hold in the containers of docker-compose.yml, too: there its own hostile tests are run.

This builds images, so it needs a Docker engine and packages; BASE_IMAGE names a base, as for compose.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

PACKAGES = {"pytest", "pytest-timeout", "pytest-xdist", "hypothesis", "anthropic"}
"""What the tests need beyond the image, with what these need in turn."""
NEEDED_BY_THEM = {
    "execnet",
    "iniconfig",
    "pluggy",
    "sortedcontainers",
    "distro",
    "docstring-parser",
    "jiter",
    "sniffio",
}
TESTED = [
    "tests/hostile/test_cells.py",
    "tests/hostile/test_forged_answers.py",
    "tests/hostile/test_forged_scores.py",
    "tests/hostile/test_hostile_guest_server.py",
    "tests/hostile/test_random_replies.py",
    "tests/integration/environments/test_py_environment.py",
]
NAME = f"rollouts-hostile-{os.getpid()}"
STATE = """
import json, os, re
status = dict(re.findall(r"(?m)^(\\w+):\\s*(.*)$", open("/proc/self/status").read()))
def writable(folder):
    try:
        open(os.path.join(folder, "x"), "w").close()
        return True
    except OSError:
        return False
print(json.dumps({
    "user": os.getuid(),
    "rights": [status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")],
    "gains none": status["NoNewPrivs"],
    "writable": [folder for folder in ("/", "/app", "/app/rollout_tasks", "/etc", "/opt/venv", "/tmp") if writable(folder)],
}))
"""

Run = Callable[..., subprocess.CompletedProcess[str]]


def compose() -> list[str]:
    """Returns the command of compose; skips where no engine answers."""
    if (
        shutil.which("docker") is None
        or subprocess.run(["docker", "info"], capture_output=True, check=False).returncode
    ):
        pytest.skip("no Docker engine answers")
    for command in (["docker", "compose"], ["docker-compose"]):
        if (
            shutil.which(command[0])
            and not subprocess.run([*command, "version"], capture_output=True, check=False).returncode
        ):
            return command
    pytest.skip("Docker has no compose")


def lock_of(names: set[str]) -> str:
    """Returns the lines of the lock about some packages."""
    entries = re.split(r"(?m)^(?=[a-z0-9])", (REPOSITORY / "requirements-dev.lock").read_text(encoding="utf-8"))
    return "".join(one for one in entries if re.split(r"[=\[; ]", one)[0] in names)


def done(*command: str | Path) -> None:
    outcome = subprocess.run(command, capture_output=True, text=True, check=False)
    assert outcome.returncode == 0, (command, outcome.stdout[-3000:], outcome.stderr[-3000:])


@pytest.fixture(scope="module")
def in_container(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Runs a command in a container as compose's service `osworld` has it, with the tests beside the program."""
    folder = tmp_path_factory.mktemp("compose")
    (folder / "env").write_text("REDIS_PASSWORD=none\nFLOWER_BASIC_AUTH=none:none\n")
    images = [f"{NAME}-osworld", f"{NAME}-tests"]
    command = [*compose(), "--project-name", NAME, "--env-file", folder / "env"]
    command += ["--file", REPOSITORY / "docker-compose.yml", "--file", folder / "names.yml", "--profile", "osworld"]
    try:
        (folder / "names.yml").write_text(json.dumps({"services": {"osworld": {"image": images[0]}}}))
        done(*command, "build", "osworld")
        (folder / "tests.lock").write_text(lock_of(PACKAGES | NEEDED_BY_THEM))
        install = "pip install --no-cache-dir --no-deps --require-hashes -r /tmp/tests.lock"
        (folder / "Dockerfile").write_text(
            f"FROM {images[0]}\nUSER root\nCOPY tests.lock /tmp/\nRUN {install}\nUSER rollouts\n"
        )
        done("docker", "build", "--tag", images[1], folder)
        (folder / "names.yml").write_text(json.dumps({"services": {"osworld": {"image": images[1]}}}))
        tests = f"{REPOSITORY / 'tests'}:/app/tests:ro"

        def run(*inside: str) -> subprocess.CompletedProcess[str]:
            arguments = ["run", "--rm", "-T", "--no-deps", "--volume", tests, "osworld", *inside]
            return subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)

        yield run
    finally:
        subprocess.run([*command, "down", "--volumes"], capture_output=True, check=False)
        subprocess.run(["docker", "image", "rm", *images], capture_output=True, check=False)


def test_a_worker_has_no_rights_and_writes_nothing_but_its_folders(in_container: Run) -> None:
    seen = in_container("python", "-c", STATE)

    assert json.loads(seen.stdout) == {
        "user": 1000,
        "rights": ["0" * 16] * 5,
        "gains none": "1",
        "writable": ["/tmp"],  # noqa: S108
    }


def test_whatever_tasks_guests_and_models_send_the_worker_stays_whole(in_container: Run) -> None:
    options = [
        "-p",
        "no:cacheprovider",
        "--basetemp",
        "/app/results/tmp",
        "-n",
        "3",
        "--dist",
        "loadfile",
        "-m",
        "not slow",
    ]

    tried = in_container("python", "-m", "pytest", "-q", *options, *TESTED)

    assert tried.returncode == 0, tried.stdout[-5000:]
    passed = re.search(r"(\d+) passed", tried.stdout)
    assert passed is not None
    assert int(passed[1]) > 350  # half of the tests of cells are for root
