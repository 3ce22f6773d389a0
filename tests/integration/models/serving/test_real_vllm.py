"""`rollouts model serve` and `reload` with vLLM itself, on the CPU, and a tiny model with random weights that sees pictures."""

from __future__ import annotations

import base64
import io
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import redis
from PIL import Image

from rollout_tasks.model_config import ModelConfig
from rollout_tasks.models import routes
from rollout_tasks.models.client import open_model
from rollout_tasks.models.pool.replicas import Replica, Replicas
from rollout_tasks.models.served import Served
from tests.conftest import REPOSITORY
from tests.cpu_vllm import MINUTES, OPTIONS, VARIABLES, command, run_script, vllm_environment
from tests.integration.models.serving.conftest import Serve, ready, until

Make = Callable[[int], Path]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60 * MINUTES)]


@pytest.fixture(name="vllm", scope="module")
def _vllm() -> Path:
    return vllm_environment()


@pytest.fixture
def make(vllm: Path, tmp_path: Path) -> Make:
    """Makes a checkpoint, given its number."""

    def make(step: int) -> Path:
        folder = tmp_path / f"step-{step}"
        if not folder.exists():
            run_script(vllm, Path(__file__).with_name("tiny_model.py"), folder, str(step))
        return folder

    return make


@pytest.fixture(name="command")
def _command(vllm: Path) -> str:
    return command(vllm)


def picture(red: int) -> dict[str, Any]:
    content = io.BytesIO()
    grey = Image.linear_gradient("L").resize((160, 120))
    Image.merge("RGB", (Image.new("L", grey.size, red), grey, grey)).save(content, "PNG")
    url = f"data:image/png;base64,{base64.b64encode(content.getvalue()).decode()}"
    return {"type": "image_url", "image_url": {"url": url}}


def asked(red: int = 200) -> list[Any]:
    return [{"role": "user", "content": [picture(red), {"type": "text", "text": "say yes"}]}]


def tokens(replica: Replica, most: int = 12) -> list[int]:
    """What the model says of a picture, sampled greedily."""
    with openai.OpenAI(base_url=replica.base_url, api_key="none", max_retries=0) as client:
        reply = client.chat.completions.create(
            model="policy",
            messages=asked(),
            max_tokens=most,
            temperature=0,
            extra_body={"return_token_ids": True, "ignore_eos": True},
        )
    return list(reply.choices[0].token_ids)  # type: ignore[attr-defined]


def test_servers_of_a_checkpoint_come_back_and_leave_nothing(
    command: str, make: Make, start: Serve, replicas: Replicas
) -> None:
    serving = start(command, make(1), "--replicas", "2", "--", *OPTIONS, **VARIABLES)
    first, other = ready(replicas, 2, 60 * MINUTES / 3)
    said = tokens(first)
    assert tokens(other) == said
    assert first.weight_version == "step-1"

    server = next(process for process in serving.left() if str(port(first)) in process.cmdline())
    server.kill()
    until(lambda: [one.replica_id for one in replicas.ready()] == [other.replica_id], "replica that has left")
    assert tokens(other) == said
    again = next(one for one in ready(replicas, 2, 60 * MINUTES / 3) if one.replica_id == first.replica_id)
    assert tokens(again) == said

    serving.process.send_signal(signal.SIGTERM)
    assert "was ended by signal 9; starting its server again in 1 s" in serving.ends(0)


def port(replica: Replica) -> int:
    return int(replica.replica_id.rpartition(":")[2])


def test_vllms_own_words_say_why_it_does_not_start(command: str, make: Make, start: Serve) -> None:
    checkpoint = make(1)
    config = checkpoint / "config.json"
    config.write_text(config.read_text().replace("Qwen2VLForConditionalGeneration", "FooForCausalLM"))

    *_, last = start(command, checkpoint, "--", *OPTIONS, **VARIABLES).ends(2, 60 * MINUTES / 3).splitlines()

    assert "its server ended with exit code 1: " in last
    assert "FooForCausalLM" in last


class Rollouts:
    """Sessions that ask the pool, as rollouts do, until they are stopped."""

    def __init__(self) -> None:
        self.served: list[Served] = []
        self.failed: list[Exception] = []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(number,)) for number in range(4)]
        for thread in self._threads:
            thread.start()

    def _ask(self, number: int) -> None:
        config = ModelConfig(name="policy", pool="p", temperature=0, max_completion_tokens=16, max_retries=2)
        model = open_model(config, session_id=f"run/{number}/0/1", api_key="none")
        turn = 0
        try:
            while not self._stop.is_set():
                self.served.append(model.complete(asked(turn % 200), ()).served)
                turn += 1
        except Exception as error:  # noqa: BLE001 (shown when it ends)
            self.failed.append(error)

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(120)


@pytest.fixture
def workers_redis(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Has this process find the pool, as a worker does."""
    with redis.Redis.from_url(redis_url, decode_responses=True) as client:
        monkeypatch.setattr(routes, "worker_client", lambda: client)
        yield


def reload(redis_url: str, checkpoint: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rollout_tasks.cli.main", "model", "reload", "p", str(checkpoint)]
    return subprocess.run([*command, "--redis-url", redis_url], capture_output=True, text=True, cwd=REPOSITORY)


def test_weights_change_while_rollouts_go_on(
    command: str, make: Make, start: Serve, replicas: Replicas, redis_url: str, workers_redis: None
) -> None:
    serving = start(command, make(1), "--replicas", "2", "--", *OPTIONS, **VARIABLES)
    both = ready(replicas, 2, 60 * MINUTES / 3)
    said = {1: tokens(both[0])}
    rollouts = Rollouts()
    try:
        for step in (2, 1, 3):
            done = reload(redis_url, make(step))
            assert (done.returncode, done.stdout) == (0, f"2 replicas have the weights step-{step}\n"), done.stderr
            now = [tokens(replica) for replica in replicas.ready()]
            assert len(now) == 2
            assert now[0] == now[1] == said.setdefault(step, now[0]), "a fresh server said that with these weights"
        assert {one.instance for one in replicas.ready()} == {one.instance for one in both}

        next(process for process in serving.left() if str(port(both[0])) in process.cmdline()).kill()
        until(lambda: len(replicas.ready()) == 1, "replica that has left")
        assert [tokens(replica) for replica in ready(replicas, 2, 60 * MINUTES / 3)] == [said[3]] * 2
    finally:
        rollouts.stop()

    assert rollouts.failed == []
    assert {one.version_at_start for one in rollouts.served} == {"step-1", "step-2", "step-3"}
    assert [one for one in rollouts.served if one.version_at_start != one.version_at_end or not one.replica] == []
    assert len({tuple(one) for one in said.values()}) == 3

    cut = make(4)
    (weights,) = cut.glob("*.safetensors")
    weights.write_bytes(weights.read_bytes()[:-1000])
    assert "it is cut off" in reload(redis_url, cut).stderr
    assert [tokens(replica) for replica in replicas.ready()] == [said[3]] * 2
    for path in ("/pause", "/collective_rpc", "/weight_checker"):
        root = both[0].base_url.removesuffix("/v1")
        assert httpx.post(f"{root}{path}", json={"action": "reset", "method": "shutdown"}).status_code == 403
    serving.process.send_signal(signal.SIGTERM)
    serving.ends(0)

    start(command, make(2), "--", *OPTIONS, **VARIABLES)
    (fresh,) = ready(replicas, 1, 60 * MINUTES / 3)
    assert tokens(fresh) == said[2]
