"""`rollouts model serve` with a program in vLLM's place: real processes, a real pool, real signals."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import psutil
import pytest
import redis

from rollout_tasks.models.pool.replicas import Replica, Replicas, ReplicaState
from tests.conftest import REPOSITORY

STAND_IN = Path(__file__).with_name("stand_in.py")
SECONDS = 60.0
KEY = "sk-of-the-servers"


class Serving:
    """The command, as a user starts it."""

    def __init__(self, folder: Path, redis_url: str, told: dict[str, Any], *options: str, **variables: str) -> None:
        self.checkpoint = folder / "step-200"
        self.checkpoint.mkdir(exist_ok=True)
        (self.checkpoint / "config.json").write_text(json.dumps(told))
        (folder / "bin").mkdir(exist_ok=True)
        vllm = folder / "bin" / "vllm"
        vllm.write_text(f'#!/bin/sh\nexec {sys.executable} {STAND_IN} "$@"\n')
        vllm.chmod(0o755)
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
        command = [sys.executable, "-m", "rollout_tasks.cli.main", "model", "serve", "p", str(self.checkpoint)]
        self.process = subprocess.Popen(
            [*command, *options, "--model", "policy"],
            cwd=folder,
            env=environment | variables,
            stdout=self.output,
            stderr=subprocess.STDOUT,
        )

    def said(self) -> str:
        return Path(self.output.name).read_text()

    def ends(self, code: int) -> str:
        """Waits for its end, after which nothing of it is left; returns what it said."""
        assert self.process.wait(SECONDS) == code, self.said()
        until(lambda: not self.left(), "an end of all processes")
        return self.said()

    def left(self) -> list[psutil.Process]:
        """Every process that it has started, or that these have, and itself."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get("SERVED_BY_TEST") == str(self._folder) and process.status() != "zombie":
                    found.append(process)
            except psutil.Error:
                continue
        return found


def until(done: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + SECONDS
    while not (found := done()):
        assert time.monotonic() < deadline, f"no {what} within {SECONDS:g} s"
        time.sleep(0.05)
    return found


Serve = Callable[..., Serving]


@pytest.fixture
def serve(tmp_path: Path, redis_url: str) -> Iterator[Serve]:
    started: list[Serving] = []

    def serve(*options: str, told: dict[str, Any] | None = None, **variables: str) -> Serving:
        started.append(Serving(tmp_path, redis_url, told or {}, *options, **variables))
        return started[-1]

    yield serve
    for one in started:
        one.process.kill()
        one.process.wait()
        one.output.close()
        for process in one.left():
            process.kill()


@pytest.fixture
def replicas(redis_url: str) -> Iterator[Replicas]:
    client = redis.Redis.from_url(redis_url, decode_responses=True)
    yield Replicas(client, "p")
    client.close()


def ready(replicas: Replicas, count: int) -> tuple[Replica, ...]:
    found: tuple[Replica, ...] = until(
        lambda: len(replicas.ready()) == count and replicas.ready(), f"{count} replicas that are ready"
    )
    return found


def ask(replica: Replica, text: str = "hello", key: str = "none") -> str:
    with openai.OpenAI(base_url=replica.base_url, api_key=key, max_retries=0) as client:
        messages: Any = [{"role": "user", "content": text}]
        return client.chat.completions.create(model="policy", messages=messages).choices[0].message.content or ""


def test_servers_join_the_pool_and_leave_nothing(serve: Serve, replicas: Replicas, tmp_path: Path) -> None:
    serving = serve("--replicas", "2")
    two = ready(replicas, 2)

    assert {(one.model, one.weight_version, one.gpu, one.state) for one in two} == {
        ("policy", "step-200", None, ReplicaState.READY)
    }
    assert len({ask(one) for one in two}) == 2
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(ask, two[0], "slowly")
        time.sleep(0.5)
        serving.process.send_signal(signal.SIGTERM)
        assert slow.result(SECONDS).startswith("from "), "what it was asked before it was to end is answered"
    said = serving.ends(0)

    assert replicas.all() == ()
    assert "its server ended" not in said
    logs = sorted(path.name for path in (tmp_path / "model-logs").iterdir())
    assert logs == sorted(f"{one.replica_id.replace(':', '-')}.log" for one in two)


@pytest.mark.slow
def test_a_server_that_ends_by_itself_is_started_again(serve: Serve, replicas: Replicas) -> None:
    serving = serve("--replicas", "2")
    first, other = ready(replicas, 2)
    before = ask(first)
    with pytest.raises(openai.APIConnectionError):
        ask(first, "die")

    until(lambda: len(replicas.ready()) == 1, "replica that has left")
    assert ask(other)
    again = next(one for one in ready(replicas, 2) if one.replica_id == first.replica_id)

    assert again.instance != first.instance
    assert ask(again) != before
    assert "its server ended with exit code 3: ready; starting its server again in 1 s" in serving.said()
    serving.process.send_signal(signal.SIGINT)
    serving.ends(0)


def test_nothing_is_left_of_a_killed_command(serve: Serve, replicas: Replicas) -> None:
    serving = serve()
    ready(replicas, 1)
    assert len(serving.left()) >= 3, "the command, the server and its engine"

    serving.process.kill()

    serving.ends(-signal.SIGKILL)


@pytest.mark.parametrize(
    ("told", "options", "said"),
    [
        (
            {"fails": "Model architectures ['Foo'] are not supported"},
            (),
            r"its server ended with exit code 1: ValueError: Model architectures \['Foo'\] are not supported",
        ),
        pytest.param(
            {"silent": True},
            ("--start-timeout", "2"),
            r"its server does not answer 2 s after its start: ready",
            marks=pytest.mark.slow,
        ),
    ],
    ids=["it fails", "it never answers"],
)
def test_servers_that_never_answered_end_the_command(
    serve: Serve, replicas: Replicas, told: dict[str, Any], options: tuple[str, ...], said: str
) -> None:
    serving = serve(*options, "--replicas", "2", told=told)

    *_, last = serving.ends(2).splitlines()

    assert re.match(rf"error: replica 127\.0\.0\.1:\d+: {said}", last), last
    assert re.search(r"; its log: model-logs/127\.0\.0\.1-\d+\.log$", last), last
    assert replicas.all() == ()


@pytest.mark.slow
def test_servers_have_a_key_that_is_in_no_command_line(serve: Serve, replicas: Replicas, tmp_path: Path) -> None:
    serving = serve(OPENAI_API_KEY=KEY)
    (one,) = ready(replicas, 1)

    with pytest.raises(openai.AuthenticationError):
        ask(one)
    assert ask(one, key=KEY)
    assert not any(KEY in word for process in serving.left() for word in process.cmdline())
    serving.process.send_signal(signal.SIGTERM)
    assert KEY not in serving.ends(0)
    assert not any(KEY in log.read_text() for log in (tmp_path / "model-logs").iterdir())


@pytest.mark.slow
def test_what_cannot_be_served_is_one_sentence(serve: Serve, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert serve("--port", port).ends(2) == f"error: --port: {port} cannot be listened at: Address already in use\n"
    (tmp_path / "bin" / "nvidia-smi").write_text(
        "#!/bin/sh\necho '0, GPU-a, 1000, 80000'; echo '1, GPU-b, 79000, 80000'\n"
    )
    (tmp_path / "bin" / "nvidia-smi").chmod(0o755)
    said = serve("--replicas", "2").ends(2)
    assert said == (
        "error: --replicas: there is room for 1, as each takes 1 GPU with 90% of its memory free (0: 1,000 of 80,000 MiB,"
        " 1: 79,000 of 80,000 MiB); use fewer, or less memory, as in -- --gpu-memory-utilization 0.5\n"
    )


@pytest.mark.slow
def test_each_server_has_gpus_of_its_own(serve: Serve, replicas: Replicas, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    listed = "; ".join(f"echo '{gpu}, GPU-{gpu}, 79000, 80000'" for gpu in range(6))
    (tmp_path / "bin" / "nvidia-smi").write_text(f"#!/bin/sh\n{listed}\n")
    (tmp_path / "bin" / "nvidia-smi").chmod(0o755)
    serving = serve("--", "--tensor-parallel-size", "2", CUDA_VISIBLE_DEVICES="1,2,4,5")

    two = ready(replicas, 2)

    assert {one.gpu for one in two} == {"1,2", "4,5"}
    assert {ask(one).rpartition(" ")[2] for one in two} == {"1,2", "4,5"}
    serving.process.send_signal(signal.SIGTERM)
    serving.ends(0)


@pytest.mark.slow
def test_a_replica_that_was_found_dead_is_started_again(serve: Serve, replicas: Replicas) -> None:
    serving = serve()
    (one,) = ready(replicas, 1)
    before = ask(one)
    replicas.change(one, state=ReplicaState.DEAD)

    until(lambda: replicas.ready() and replicas.ready()[0].instance != one.instance, "another server")

    assert ask(replicas.ready()[0]) != before
    serving.process.send_signal(signal.SIGTERM)
    serving.ends(0)
