"""`rollouts model reload` with a program in vLLM's place: one server after the other, and none left with unknown weights."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import openai
import pytest
import redis

from rollout_tasks.models.pool.balancing import Balancer, Pick
from rollout_tasks.models.pool.membership import BEAT_SECONDS
from rollout_tasks.models.pool.reloads import Reloads, Stage
from rollout_tasks.models.pool.replicas import Replica, Replicas, ReplicaState
from tests.checkpoints import write_checkpoint, write_tensors
from tests.conftest import REPOSITORY, ValkeyServer
from tests.integration.models.serving.conftest import SECONDS, Serve, Serving, ask, ready, until

STAND_IN = Path(__file__).with_name("stand_in.py")

Reload = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def serving(start: Serve, tmp_path: Path) -> Serving:
    """Two servers, each on a GPU: there, a checksum counts all weights."""
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho '0, GPU-a, 79000, 80000'; echo '1, GPU-b, 79000, 80000'\n")
    program.chmod(0o755)
    return start(f"{sys.executable} {STAND_IN}", write_checkpoint(tmp_path / "step-1"), "--replicas", "2")


@pytest.fixture
def reload(redis_url: str) -> Reload:
    def reload(checkpoint: Path, *options: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "rollout_tasks.cli.main", "model", "reload", "p", str(checkpoint), *options]
        return subprocess.run(
            [*command, "--redis-url", redis_url], capture_output=True, text=True, cwd=REPOSITORY, timeout=SECONDS
        )

    return reload


def weights_of(replica: Replica, text: str = "hello") -> str:
    """What tells the weights of a reply from others."""
    with openai.OpenAI(base_url=replica.base_url, api_key="none", max_retries=0) as client:
        messages: Any = [{"role": "user", "content": text}]
        return client.chat.completions.create(model="policy", messages=messages).system_fingerprint or ""


def control(folder: Path, replica: Replica) -> list[str]:
    """What a server was told besides its calls."""
    log = folder / "model-logs" / f"{replica.replica_id.replace(':', '-')}.log"
    return [line.split()[1] for line in log.read_text().splitlines() if line.startswith("control ")]


def test_all_servers_get_the_weights_and_keep_them(
    serving: Serving, replicas: Replicas, reload: Reload, tmp_path: Path
) -> None:
    one, other = ready(replicas, 2)
    before = weights_of(one)
    step_2 = write_checkpoint(tmp_path / "step-2", 2)
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(weights_of, one, "slowly")
        done = reload(step_2)
        assert slow.result(SECONDS) == before

    assert done.returncode == 0, done.stderr
    assert done.stdout == "2 replicas have the weights step-2\n"
    now = ready(replicas, 2)
    assert {(found.weight_version, found.checkpoint, found.last_checkpoint) for found in now} == {
        ("step-2", str(step_2), str(tmp_path / "step-1"))
    }
    assert {found.instance for found in now} == {one.instance, other.instance}, "no server was started again"
    after = weights_of(one)
    assert weights_of(other) == after != before
    for replica in now:
        assert control(tmp_path, replica) == [
            *("/weight_checker", "/pause?mode=wait&clear_cache=false", "/collective_rpc"),
            *("/reset_prefix_cache?reset_running_requests=false&reset_external=true", "/reset_mm_cache"),
            *("/reset_encoder_cache", "/weight_checker", "/update_weight_version", "/resume"),
        ]

    with pytest.raises(openai.APIConnectionError):
        ask(one, "die")
    until(lambda: len(replicas.ready()) == 1, "replica that has left")
    again = next(found for found in ready(replicas, 2) if found.replica_id == one.replica_id)
    assert (again.weight_version, weights_of(again)) == ("step-2", after)


def test_a_checkpoint_that_cannot_be_used_changes_nothing(
    serving: Serving, replicas: Replicas, reload: Reload, tmp_path: Path
) -> None:
    both = ready(replicas, 2)
    cut = write_checkpoint(tmp_path / "cut", 2)
    (cut / "model.safetensors").write_bytes((cut / "model.safetensors").read_bytes()[:-1])
    other = write_checkpoint(tmp_path / "other", 2)
    write_tensors(other / "model.safetensors", {"a.weight": ("F32", [2, 4]), "b.weight": ("BF16", [4])})

    refused, wrong = reload(cut), reload(other, "--json")

    assert refused.returncode == 2
    *_, last = refused.stderr.splitlines()
    assert last.startswith("error: 0 of 2 replicas have the weights cut: ")
    assert last.count("refused: ") >= 1, "the other one may have seen that first"
    assert last.count("it is cut off") >= 1
    assert wrong.returncode == 1
    why = f"{other} has 'a.weight' as F32 of shape [2, 4], not F32 of shape [2, 3]: it is another model than {tmp_path / 'step-1'}"
    assert ("refused", why) in {(row["stage"], row["text"]) for row in json.loads(wrong.stdout)}
    assert [(one.instance, one.weight_version) for one in replicas.ready()] == [
        (one.instance, "step-1") for one in both
    ]
    assert [control(tmp_path, one) for one in both] == [[], []]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({"unloadable": True}, "/collective_rpc was answered with HTTP 500"),
        ({"ignored": True}, "it has the weights before, though it says that it has loaded the new ones"),
    ],
    ids=["it says so", "it says that it did"],
)
def test_a_server_that_could_not_load_them_is_started_again_with_those_before(
    serving: Serving, replicas: Replicas, reload: Reload, tmp_path: Path, told: dict[str, bool], why: str
) -> None:
    """The other server is not tried: the pool would have none for as long as they need to start."""
    both = ready(replicas, 2)
    before = weights_of(both[0])
    drained = replicas.change(both[0], state=ReplicaState.DRAINING)
    time.sleep(BEAT_SECONDS + 1)  # its process has seen that

    done = reload(write_checkpoint(tmp_path / "step-2", 2, config=told))

    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]
    assert why in last
    assert "; its server is started again with step-1" in last
    assert " failed with it, so it was not tried here" in last
    old = {one.instance for one in both}
    until(lambda: len(replicas.all()) == 2 and len(old - {one.instance for one in replicas.all()}) == 1, "a new server")
    assert {(one.weight_version, weights_of(one)) for one in replicas.all()} == {("step-1", before)}
    states = {one.replica_id: one.state for one in replicas.all()}
    assert states.pop(drained.replica_id) is ReplicaState.DRAINING
    assert list(states.values()) == [ReplicaState.READY]


@pytest.mark.slow
def test_weights_whose_folder_is_gone_can_be_replaced(
    serving: Serving, replicas: Replicas, reload: Reload, tmp_path: Path
) -> None:
    """As a trainer deletes old checkpoints. A server that has to start without its folder takes what was asked for since."""
    ready(replicas, 2)
    for step in (2, 3):
        assert reload(write_checkpoint(tmp_path / f"step-{step}", step)).returncode == 0
        shutil.rmtree(tmp_path / f"step-{step}")
    one, _ = ready(replicas, 2)
    with pytest.raises(openai.APIConnectionError):
        ask(one, "die")
    until(lambda: len(replicas.ready()) == 1, "replica that has left")

    assert reload(write_checkpoint(tmp_path / "step-4", 4)).returncode == 0

    until(lambda: {found.weight_version for found in replicas.ready()} == {"step-4"}, "the newest weights")
    assert len({weights_of(found) for found in ready(replicas, 2)}) == 1


@pytest.mark.slow
def test_servers_that_are_shut_down_meanwhile_say_so(
    serving: Serving, replicas: Replicas, reload: Reload, tmp_path: Path
) -> None:
    one, _ = ready(replicas, 2)
    with ThreadPoolExecutor(2) as threads:
        slow = threads.submit(ask, one, "slowly")
        asked = threads.submit(reload, write_checkpoint(tmp_path / "step-2", 2), "--json")
        time.sleep(BEAT_SECONDS + 1)
        serving.process.terminate()
        rows = json.loads(asked.result(SECONDS).stdout)
        with suppress(Exception):
            slow.result(SECONDS)
    assert {(row["stage"], row["text"]) for row in rows} <= {("failed", "its server is shut down"), ("done", "")}
    assert ("failed", "its server is shut down") in {(row["stage"], row["text"]) for row in rows}


@pytest.mark.slow
def test_weights_whose_files_were_changed_are_not_called_by_their_name(
    serving: Serving, replicas: Replicas, reload: Reload, tmp_path: Path
) -> None:
    one, _ = ready(replicas, 2)
    latest = write_checkpoint(tmp_path / "latest", 2)
    assert reload(latest, "--weight-version", "2").returncode == 0
    write_checkpoint(latest, 3)

    with pytest.raises(openai.APIConnectionError):
        ask(one, "die")

    until(lambda: {found.weight_version for found in replicas.ready()} == {"2", "changed"}, "two versions")
    assert reload(latest, "--weight-version", "3").returncode == 0
    assert {found.weight_version for found in replicas.ready()} == {"3"}
    assert len({weights_of(found) for found in replicas.ready()}) == 1


@pytest.mark.slow
def test_redis_may_be_away_while_a_replica_is_drained(start: Serve, valkey: ValkeyServer, tmp_path: Path) -> None:
    serving = start(
        f"{sys.executable} {STAND_IN}",
        write_checkpoint(tmp_path / "step-1"),
        "--redis-url",
        valkey.url,
        REDIS_URL=valkey.url,
    )
    with redis.Redis.from_url(valkey.url, decode_responses=True) as client:
        replicas, reloads = Replicas(client, "p"), Reloads(client, "p")
        (one,) = ready(replicas, 1)
        pick = Balancer(client, "p").pick("s")
        assert isinstance(pick, Pick)
        asked = reloads.ask(str(write_checkpoint(tmp_path / "step-2", 2)), "2")
        until(lambda: Stage.DRAINING in {progress.stage for progress in reloads.progress(asked).values()}, "draining")

        valkey.kill()
        time.sleep(3)
        valkey.start()
        Balancer(client, "p").release(pick)

        until(lambda: [found.weight_version for found in replicas.ready()] == ["2"], "replica with its new weights")
        assert replicas.ready()[0].instance == one.instance
    assert serving.process.poll() is None


@pytest.mark.slow
def test_calls_under_way_need_not_be_finished_first(
    serving: Serving, replicas: Replicas, reload: Reload, tmp_path: Path
) -> None:
    one, _ = ready(replicas, 2)
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(weights_of, one, "slowly")
        done = reload(write_checkpoint(tmp_path / "step-2", 2), "--in-flight", "--weight-version", "2")
        assert slow.result(SECONDS)

    assert done.returncode == 0, done.stderr
    assert "draining" not in done.stderr
    assert {one.weight_version for one in replicas.ready()} == {"2"}
    assert "/pause?mode=keep&clear_cache=false" in control(tmp_path, replicas.ready()[0])


@pytest.mark.slow
def test_a_drained_replica_stays_so_and_a_pool_without_servers_of_ours_says_so(
    serving: Serving, replicas: Replicas, reload: Reload, tmp_path: Path
) -> None:
    one, _ = ready(replicas, 2)
    replicas.change(one, state=ReplicaState.DRAINING)
    time.sleep(BEAT_SECONDS + 1)  # its process has seen that

    assert reload(write_checkpoint(tmp_path / "step-2", 2)).returncode == 0

    now = {found.replica_id: found for found in replicas.all()}[one.replica_id]
    assert (now.state, now.weight_version) == (ReplicaState.DRAINING, "step-2")
    for found in replicas.all():
        replicas.remove(found)
    assert reload(tmp_path / "step-2").stderr == "error: POOL: model pool p has no replica\n"
