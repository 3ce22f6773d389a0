"""`rollouts model serve` with a program in vLLM's place: real processes, a real pool, real signals."""

from __future__ import annotations

import json
import re
import signal
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest

from rollout_tasks.models.pool.membership import BEAT_SECONDS
from rollout_tasks.models.pool.replicas import Replicas, ReplicaState
from tests.integration.models.serving.conftest import SECONDS, Serve, Serving, ask, ready, until

STAND_IN = Path(__file__).with_name("stand_in.py")
KEY = "sk-of-the-servers"


@pytest.fixture
def serve(start: Serve, tmp_path: Path) -> Serve:
    """Serves with the stand-in, which is told what to do."""

    def serve(*options: str, told: dict[str, Any] | None = None, **variables: str) -> Serving:
        checkpoint = tmp_path / "step-200"
        checkpoint.mkdir(exist_ok=True)
        (checkpoint / "config.json").write_text(json.dumps(told or {}))
        return start(f"{sys.executable} {STAND_IN}", checkpoint, *options, **variables)

    return serve


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
            r"its server ended with exit code 1: ValueError: Model architectures \['Foo'\] are not supported so it is not served;",
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
def test_a_server_that_was_drained_is_drained_when_it_comes_back(serve: Serve, replicas: Replicas) -> None:
    serving = serve()
    (one,) = ready(replicas, 1)
    replicas.change(one, state=ReplicaState.DRAINING)
    time.sleep(BEAT_SECONDS + 1)  # it has seen that
    with pytest.raises(openai.APIConnectionError):
        ask(one, "die")

    (again,) = until(
        lambda: [found for found in replicas.all() if found.instance != one.instance and found.state != "starting"],
        "server that is back",
    )

    assert again.state is ReplicaState.DRAINING
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
