"""`rollouts model serve` as a user starts it, and the pool that its servers join."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import openai
import psutil
import pytest
import redis

from rollout_tasks.models.pool.replicas import Replica, Replicas
from tests.conftest import REPOSITORY

SECONDS = 60.0
ENDS_SECONDS = 30.0


class Serving:
    """The command, as a user starts it."""

    def __init__(
        self,
        folder: Path,
        redis_url: str,
        vllm: str,
        checkpoint: Path,
        options: Sequence[str],
        variables: Mapping[str, str],
    ) -> None:
        """Starts it.

        Args:
            folder: Where it works; its ``bin`` comes first on the PATH.
            redis_url: Where the pool is.
            vllm: The command that is started as vLLM.
            checkpoint: What is served.
            options: More options.
            variables: More variables of its environment.
        """
        (folder / "bin").mkdir(exist_ok=True)
        program = folder / "bin" / "vllm"
        program.write_text(f'#!/bin/sh\nexec {vllm} "$@"\n')
        program.chmod(0o755)
        hidden = {"OPENAI_API_KEY", "OPENAI_BASE_URL", "CUDA_VISIBLE_DEVICES"}
        environment = {name: value for name, value in os.environ.items() if name not in hidden}
        environment |= {
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": str(REPOSITORY),
            "REDIS_URL": redis_url,
            "SERVED_BY_TEST": str(folder),
        }
        self._folder = folder
        self.output = (folder / "output").open("w+")
        command = [sys.executable, "-m", "rollout_tasks.cli.main", "model", "serve", "p", str(checkpoint)]
        self.process = subprocess.Popen(
            [*command, "--model", "policy", *options],
            cwd=folder,
            env=environment | dict(variables),
            stdout=self.output,
            stderr=subprocess.STDOUT,
        )

    def said(self) -> str:
        return Path(self.output.name).read_text()

    def ends(self, code: int, seconds: float = SECONDS) -> str:
        """Waits for its end, after which nothing of it is left; returns what it said."""
        assert self.process.wait(seconds) == code, self.said()
        until(lambda: not self.left(), "an end of all processes")
        return self.said()

    def close(self) -> None:
        """Kills it; what it started ends by itself then, or is killed, too."""
        self.process.kill()
        self.process.wait()
        self.output.close()
        with suppress(AssertionError):
            until(lambda: not self.left(), "an end of all processes", ENDS_SECONDS)
        for process in self.left():
            with suppress(psutil.NoSuchProcess):  # it ends with its parent
                process.kill()

    def left(self) -> list[psutil.Process]:
        """Every process that it has started, or that these have, and itself."""
        found = []
        for process in psutil.process_iter():
            try:
                # vLLM writes the names of its processes where their environment was.
                ours = process.environ().get("SERVED_BY_TEST") == str(self._folder) or process.cwd() == str(
                    self._folder
                )
                if ours and process.status() != "zombie":
                    found.append(process)
            except psutil.Error:
                continue
        return found


def until(done: Callable[[], Any], what: str, seconds: float = SECONDS) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := done()):
        assert time.monotonic() < deadline, f"no {what} within {seconds:g} s"
        time.sleep(0.05)
    return found


Serve = Callable[..., Serving]


@pytest.fixture
def start(tmp_path: Path, redis_url: str) -> Iterator[Serve]:
    """Starts the command, given vLLM's command, the checkpoint, options and variables; nothing is left of it afterwards."""
    started: list[Serving] = []

    def start(vllm: str, checkpoint: Path, *options: str, **variables: str) -> Serving:
        started.append(Serving(tmp_path, redis_url, vllm, checkpoint, options, variables))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
    for one in started:
        one.close()


@pytest.fixture
def replicas(redis_url: str) -> Iterator[Replicas]:
    client = redis.Redis.from_url(redis_url, decode_responses=True)
    yield Replicas(client, "p")
    client.close()


def ready(replicas: Replicas, count: int, seconds: float = SECONDS) -> tuple[Replica, ...]:
    found: tuple[Replica, ...] = until(
        lambda: len(replicas.ready()) == count and replicas.ready(), f"{count} replicas that are ready", seconds
    )
    return found


def ask(replica: Replica, text: str = "hello", key: str = "none") -> str:
    with openai.OpenAI(base_url=replica.base_url, api_key=key, max_retries=0) as client:
        messages: Any = [{"role": "user", "content": text}]
        return client.chat.completions.create(model="policy", messages=messages).choices[0].message.content or ""
