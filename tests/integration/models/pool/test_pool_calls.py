"""Model calls through a pool: real servers, the client that runs use, and the command that attaches them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
import redis

from benchmark.items import MAX_ID_BYTES
from rollout_tasks.config import parse_config
from rollout_tasks.errors import FailureClass, RolloutFailure, UserError
from rollout_tasks.model_config import ModelConfig
from rollout_tasks.models import attached_replicas, retries, routes
from rollout_tasks.models.client import open_model
from rollout_tasks.models.gateway.endpoint_engine import EndpointEngine
from rollout_tasks.models.gateway.gateway import Gateway
from rollout_tasks.models.pool.replicas import Replica, Replicas, ReplicaState
from rollout_tasks.models.session_ids import session_id
from rollout_tasks.runs.model_check import check_model
from rollout_tasks.settings import settings
from tests.conftest import REPOSITORY
from tests.integration.models.gateway.upstream import Recorder
from tests.unit.agents.chat_endpoint import ChatEndpoint, said

MESSAGES = [{"role": "user", "content": "6 * 7?"}]
POOL = ModelConfig(name="policy", pool="p", timeout=10)


@pytest.fixture
def endpoints(client: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[ChatEndpoint]]:
    """Two servers, and a worker whose Redis has the pool."""
    monkeypatch.setattr(retries, "LONGEST_BACKOFF", 0.02)
    monkeypatch.setattr(routes, "worker_client", lambda: client)
    made = [ChatEndpoint(), ChatEndpoint()]
    yield made
    for endpoint in made:
        endpoint.close()


@pytest.fixture
def registered(endpoints: list[ChatEndpoint], register: Callable[..., Replica]) -> list[Replica]:
    return [register(f"r{number}", base_url=one.url) for number, one in enumerate(endpoints)]


def ask(session: str = "run/1/0/1", config: ModelConfig = POOL) -> Any:
    return open_model(config, session_id=session, api_key="k").complete(MESSAGES, ())


def text_of(asked: str) -> str:
    """What a new session is answered."""
    if asked == "client":
        return str(ask("run/1/0/2").text)
    with Gateway() as gateway, gateway.open("run/1/0/3", EndpointEngine(POOL), Recorder()) as session:
        headers = {"Authorization": f"Bearer {session.token}"}
        body = {"model": "any", "messages": MESSAGES}
        answer = httpx.post(f"{session.base_url}/chat/completions", json=body, headers=headers, timeout=20)
    return str(answer.json()["choices"][0]["message"]["content"])


def test_a_session_stays_with_its_replica_and_replies_are_stamped(
    endpoints: list[ChatEndpoint], registered: list[Replica], replicas: Replicas
) -> None:
    for endpoint in endpoints:
        endpoint.will(*[said("42")] * 3)
    model = open_model(POOL, session_id="run/1/0/1", api_key="k")

    replies = [model.complete(MESSAGES, ()) for _ in range(3)]

    assert {reply.served.replica for reply in replies} == {"r0"}
    assert (replies[0].served.version_at_start, replies[0].served.version_at_end) == ("step-1", "step-1")
    assert [len(endpoint.bodies) for endpoint in endpoints] == [3, 0]
    assert ask("run/2/0/1").served.replica == "r1", "another session goes to the replica that was picked least recently"
    assert [one.in_flight for one in replicas.all()] == [0, 0]
    assert registered[0].replica_id == "r0"


def test_weights_that_change_during_a_call_are_seen(
    endpoints: list[ChatEndpoint], registered: list[Replica], replicas: Replicas
) -> None:
    endpoints[0].when_asked = lambda: replicas.change(registered[0], weight_version="step-2")
    endpoints[0].will(said("42"))

    served = ask().served

    assert (served.version_at_start, served.version_at_end) == ("step-1", "step-2")


def test_a_replica_that_fails_is_left_for_another(endpoints: list[ChatEndpoint], registered: list[Replica]) -> None:
    endpoints[0].will({"status": 503})
    endpoints[1].will(said("42"))

    reply = ask()

    assert (reply.text, reply.served.replica, reply.usage.requests) == ("42", "r1", 2)
    assert len(registered) == 2


@pytest.mark.parametrize("asked", ["client", "gateway"])
@pytest.mark.parametrize(
    "fault",
    [
        {"status": 401},
        {"status": 404},
        {"status": 307},
        {"status": 503, "retry_after": 60},
        {"status": 503, "retry_after": 600},
        {"finish_reason": "stop"},
    ],
)
def test_one_that_is_set_up_wrongly_is_left_for_another(
    endpoints: list[ChatEndpoint], registered: list[Replica], fault: dict[str, Any], asked: str
) -> None:
    endpoints[0].will(fault)
    endpoints[1].will(said("42"))

    assert text_of(asked) == "42"

    assert [len(endpoint.bodies) for endpoint in endpoints] == [1, 1]
    assert len(registered) == 2


def test_the_longest_ids_make_a_session(endpoints: list[ChatEndpoint], registered: list[Replica]) -> None:
    longest = session_id("r" * 100, "界" * (MAX_ID_BYTES // 3), 99, 99)
    endpoints[0].will(said("42"), said("42"))
    assert ask(longest).text == "42"
    with Gateway() as gateway, gateway.open(longest, EndpointEngine(POOL), Recorder()):
        pass
    assert len(registered) == 2


def test_the_judge_of_a_pools_run_is_looked_for_at_its_own_endpoint(
    endpoints: list[ChatEndpoint], registered: list[Replica], redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDIS_URL", redis_url)
    judged = {"model": {"name": "policy", "pool": "p"}, "metric": "llm_judgement"}
    settings.cache_clear()
    with pytest.raises(UserError, match="a judge is not asked in a model pool: name its endpoint in OPENAI_BASE_URL"):
        check_model(parse_config(judged))

    monkeypatch.setenv("OPENAI_BASE_URL", endpoints[1].url)
    settings.cache_clear()
    with pytest.raises(UserError, match=f"--judge-model: {endpoints[1].url} does not serve 'gpt'; it serves policy"):
        check_model(parse_config({**judged, "judge_model": "gpt"}))
    assert check_model(parse_config(judged)).model.pool == "p"

    settings.cache_clear()
    assert len(registered) == 2


def test_a_call_that_is_refused_for_itself_goes_nowhere_else(
    endpoints: list[ChatEndpoint], registered: list[Replica]
) -> None:
    endpoints[0].will({"status": 400})

    with pytest.raises(RolloutFailure, match="400"):
        ask()

    assert [len(endpoint.bodies) for endpoint in endpoints] == [1, 0]
    assert len(registered) == 2


def test_without_a_replica_the_failure_says_so(endpoints: list[ChatEndpoint]) -> None:
    with pytest.raises(RolloutFailure, match="model pool p has no replica: none is registered") as failure:
        ask(config=POOL.model_copy(update={"max_retries": 1}))

    assert failure.value.failure_class is FailureClass.MODEL_OVERLOAD
    assert len(endpoints) == 2


def test_a_session_of_the_gateway_goes_through_the_pool(
    endpoints: list[ChatEndpoint], registered: list[Replica], replicas: Replicas
) -> None:
    endpoints[0].will({"status": 503})
    endpoints[1].will(said("42"))
    recorder = Recorder()

    with Gateway() as gateway, gateway.open("run/1/0/1", EndpointEngine(POOL), recorder) as session:
        headers = {"Authorization": f"Bearer {session.token}"}
        body = {"model": "any", "messages": MESSAGES}
        answer = httpx.post(f"{session.base_url}/chat/completions", json=body, headers=headers, timeout=20)

    assert answer.json()["choices"][0]["message"]["content"] == "42"
    (call,) = recorder.calls
    assert (call.served.replica, call.served.version_at_start, call.usage.requests) == ("r1", "step-1", 2)
    assert [one.in_flight for one in replicas.all()] == [0, 0]
    assert len(registered) == 2


def rollouts(*arguments: str, redis_url: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "REDIS_URL": redis_url, "OPENAI_API_KEY": "none"}
    command = [sys.executable, "-m", "rollout_tasks.cli.main", *arguments]
    return subprocess.Popen(
        command, cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_attached_servers_are_in_the_pool_until_the_command_ends(
    endpoints: list[ChatEndpoint], replicas: Replicas, redis_url: str
) -> None:
    for endpoint in endpoints:
        endpoint.will(said("yes"), said("42"))
    urls = [endpoint.url for endpoint in endpoints]
    command = rollouts("model", "attach", "p", *urls, "--model", "policy", redis_url=redis_url)
    try:
        deadline = time.monotonic() + 60
        while [one.state for one in replicas.all()] != [ReplicaState.READY] * 2:
            assert command.poll() is None, command.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert ask().text == "42"
        shown = rollouts("model", "status", "p", "--json", redis_url=redis_url)
        assert [one["base_url"] for one in json.loads(shown.communicate(timeout=60)[0])] == sorted(urls)
        command.send_signal(signal.SIGTERM)
        assert command.wait(30) == 0
    finally:
        command.kill()
        command.communicate()
    assert replicas.all() == ()


def test_a_server_that_comes_back_is_as_its_operator_left_it(
    endpoints: list[ChatEndpoint], client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its new weights, and drained."""
    monkeypatch.setattr(attached_replicas, "BEAT_SECONDS", 0.05)
    replicas = Replicas(client, "p", silent_seconds=0.5)
    monkeypatch.setattr(attached_replicas, "Replicas", lambda *_: replicas)
    servers = attached_replicas.AttachedReplicas(
        client, "p", [endpoints[0].url], model="policy", weight_version="step-1"
    )
    stop = threading.Event()
    running = threading.Thread(target=servers.run, args=(stop,))
    running.start()
    try:
        first = wait_for(replicas.ready)[0]
        replicas.change(replicas.change(first, weight_version="step-2"), state=ReplicaState.DRAINING)
        time.sleep(0.3)  # it is seen
        endpoints[0].fails = True
        wait_for(lambda: not replicas.all())
        endpoints[0].fails = False
        (again,) = wait_for(lambda: replicas.all())
        wait_for(lambda: replicas.all()[0].state is ReplicaState.DRAINING)
        assert (again.instance != first.instance, again.weight_version) == (True, "step-2")
    finally:
        stop.set()
        running.join()
    assert replicas.all() == ()


def wait_for(look: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 20
    while not (found := look()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


def test_the_last_of_two_that_keep_one_server_has_it(
    endpoints: list[ChatEndpoint], client: redis.Redis, replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attached_replicas, "BEAT_SECONDS", 0.05)
    stop, ended = threading.Event(), list[str]()

    def keep(version: str) -> None:
        servers = attached_replicas.AttachedReplicas(
            client, "p", [endpoints[0].url], model="policy", weight_version=version
        )
        try:
            servers.run(stop)
        except UserError as error:
            ended.append(str(error))

    running = [threading.Thread(target=keep, args=(version,)) for version in ("first", "second")]
    try:
        running[0].start()
        wait_for(replicas.ready)
        running[1].start()
        wait_for(lambda: ended)
        assert ended == ["other processes keep all these servers in model pool p now"]
        time.sleep(0.3)
        assert [one.weight_version for one in replicas.ready()] == ["second"]
    finally:
        stop.set()
        for one in running:
            one.join()
    assert replicas.all() == ()


@pytest.mark.parametrize(
    ("given", "said_of_it"),
    [
        (("--model", ""), "--model must be 1 to 512 printable characters"),
        (("--weight-version", "a\nb"), "--weight-version must be 1 to 512 printable characters"),
        ((f"http://{'.'.join(['a' * 60] * 3)}/v1",), "is not a replica's id"),
        (("http://[::1]:9/v1", "http://[::1]:9/v2"), "one host and port, is named twice"),
    ],
)
def test_what_cannot_be_kept_is_refused_in_one_line(redis_url: str, given: tuple[str, ...], said_of_it: str) -> None:
    command = rollouts("model", "attach", "p", "http://127.0.0.1:9/v1", *given, redis_url=redis_url)

    _, problems = command.communicate(timeout=60)

    assert (command.returncode, problems.count("\n")) == (2, 1)
    assert said_of_it in problems


def test_a_first_answer_that_takes_long_can_be_stopped(redis_url: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        command = rollouts("model", "attach", "p", url, redis_url=redis_url)
        silent.settimeout(60)
        with silent.accept()[0]:
            command.send_signal(signal.SIGINT)
            assert command.wait(20) != 0
    command.communicate()


def test_a_server_that_does_not_answer_is_not_attached(endpoints: list[ChatEndpoint], redis_url: str) -> None:
    endpoints[0].will({"status": 500})

    command = rollouts("model", "attach", "p", endpoints[0].url, redis_url=redis_url)

    _, problems = command.communicate(timeout=60)
    assert command.returncode == 2
    assert "asking 1 server" in problems
    assert "answered 500" in problems.splitlines()[-1]
    assert "Traceback" not in problems
