"""An environment that has OpenEnv, and `rollouts openenv` in it, for the tests of its clients."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from desktop_image.cache import guest_cache_folder
from desktop_image.locks import hold_file
from tests.conftest import REPOSITORY, free_port

OPENENV = "openenv==0.10.0"
TOKEN = "0123456789abcdef"
TTL = 3.0
MINUTES = 20
"""For an installation on a busy machine."""


def environment_with(name: str, *packages: str) -> Path:
    """The Python of an environment with packages that the tests' own lacks: made once, in the cache."""
    folder = guest_cache_folder().parent / name
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = hold_file(folder.with_name(f"{name}.lock"), seconds=60 * MINUTES)
    assert lock is not None
    python = folder / "bin" / "python"
    try:
        if not (folder / "complete").exists():
            for command in (
                [sys.executable, "-m", "venv", "--clear", folder],
                [python, "-m", "pip", "install", *packages],
            ):
                done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
                assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
            (folder / "complete").touch()
    finally:
        os.close(lock)
    return python


def python_with_openenv() -> Path:
    """A Python that has OpenEnv besides what this one has."""
    if importlib.util.find_spec("openenv") is not None:
        return Path(sys.executable)
    python = environment_with(OPENENV.replace("==", "-"), OPENENV)
    [packages] = python.parent.parent.glob("lib/python*/site-packages")
    (packages / "what-the-tests-have.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return python


class OpenEnvServer:
    """The command."""

    def __init__(self, python: Path, folder: Path, *options: str, variables: Mapping[str, str] | None = None) -> None:
        """Starts it and waits until it serves."""
        self.python = python
        self.results = folder / "results"
        self.port = free_port()
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "REDIS_", "ROLLOUT_"))
        }
        self._environment = {**kept, "PYTHONPATH": str(REPOSITORY)}
        environment = {
            **self._environment,
            "ROLLOUT_SERVICE_TOKENS": f"trainer:{TOKEN}",
            "ROLLOUT_LEASE_TTL": str(TTL),
            **(variables or {}),
        }
        command = [str(python), "-m", "rollout_tasks.cli.main", "openenv", "--port", str(self.port)]
        self.process = subprocess.Popen(
            [*command, "--output-dir", str(self.results), *options],
            cwd=folder,
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stderr is not None
        self.said = ""
        while "Application startup complete" not in self.said:
            line = self.process.stderr.readline()
            assert line, (self.process.wait(10), self.said)
            self.said += line

    @property
    def url(self) -> str:
        """With the token, for clients that send no headers of their own."""
        return f"http://trainer:{TOKEN}@127.0.0.1:{self.port}"

    def play(self, program: str, *arguments: str, python: Path | None = None, seconds: float = 300) -> Any:
        """Runs a client's program; returns the JSON of its last line.

        Args:
            program: Its text.
            arguments: Those after the address and the token.
            python: What runs it; default: the server's own.
            seconds: How long it may take.
        """
        done = self.start(program, *arguments, python=python)
        output, errors = done.communicate(timeout=seconds)
        assert done.returncode == 0, output[-2000:] + errors[-4000:]
        return json.loads(output.splitlines()[-1])

    def start(self, program: str, *arguments: str, python: Path | None = None) -> subprocess.Popen[str]:
        """Starts a client's program, which gets the address and the token as its first two arguments."""
        plain = f"http://127.0.0.1:{self.port}"
        command = [str(python or self.python), "-c", program, plain, TOKEN, *arguments]
        pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(command, env=self._environment, **pipes)

    def session(self, name: str) -> dict[str, Any]:
        """What is recorded of a session that has ended."""
        told: dict[str, Any] = json.loads((self.results / "sessions" / name / "session.json").read_text())
        return told

    def sessions(self) -> list[dict[str, Any]]:
        """What is recorded of the sessions that have ended."""
        return [json.loads(path.read_text()) for path in self.results.glob("sessions/*/session.json")]

    def stop(self) -> None:
        """Ends it as a supervisor does."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.said += self.process.communicate(timeout=100)[1]
