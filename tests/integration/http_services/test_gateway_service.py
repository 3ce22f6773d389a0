"""`rollouts gateway`: programs elsewhere open sessions with a token, use them with any client, and their calls are recorded."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from rollout_tasks.http_services import sessions
from rollout_tasks.http_services.tokens import ServiceTokens
from rollout_tasks.models.base import Usage
from rollout_tasks.models.gateway.engine import EngineCall, EngineReply, FunctionEngine, read_completion
from rollout_tasks.models.gateway.gateway import Gateway
from rollout_tasks.models.served import Served
from rollout_tasks.trajectories.call_reader import read_calls
from tests.conftest import REPOSITORY, free_port
from tests.unit.agents.chat_endpoint import ChatEndpoint, said

ALICE, BOB = "a" * 20, "b" * 20
MESSAGES: Any = [{"role": "user", "content": "6 * 7?"}]


def command(endpoint: ChatEndpoint) -> list[str]:
    return [sys.executable, "-m", "rollout_tasks.cli.main", "gateway", "--model", "policy", "--base-url", endpoint.url]


class Service:
    """The command, and what its users send."""

    def __init__(self, folder: Path, endpoint: ChatEndpoint) -> None:
        self.folder = folder / "sessions"
        self.port = free_port()
        environment = {
            **os.environ,
            "ROLLOUT_SERVICE_TOKENS": f"alice:{ALICE} bob:{BOB}",
            "OPENAI_API_KEY": "sk-of-the-model",
        }
        options = ["--port", str(self.port), "--output-dir", str(self.folder)]
        self.process = subprocess.Popen(
            [*command(endpoint), *options], cwd=REPOSITORY, env=environment, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stderr is not None
        while "serving" not in (line := self.process.stderr.readline()):
            assert line, self.process.wait(10)

    def ask(self, method: str, path: str = "", token: str = ALICE, **options: Any) -> httpx.Response:
        url = f"http://127.0.0.1:{self.port}/sessions{path}"
        return httpx.request(method, url, headers={"Authorization": f"Bearer {token}"}, timeout=30, **options)

    def opened(self, **wanted: Any) -> dict[str, Any]:
        response = self.ask("POST", json=wanted)
        assert response.status_code == 201, response.text
        return dict(response.json())

    def stop(self) -> str:
        self.process.send_signal(signal.SIGTERM)
        log = self.process.communicate(timeout=30)[1]
        assert self.process.returncode == 0
        return str(log)


@pytest.fixture
def endpoint() -> Iterator[ChatEndpoint]:
    made = ChatEndpoint()
    yield made
    made.close()


@pytest.fixture
def service(tmp_path: Path, endpoint: ChatEndpoint) -> Iterator[Service]:
    made = Service(tmp_path, endpoint)
    yield made
    if made.process.poll() is None:
        made.process.kill()
    made.process.communicate()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One that several tests use, each with sessions of its own."""
    endpoint = ChatEndpoint()
    made = Service(tmp_path_factory.mktemp("shared"), endpoint)
    yield made
    made.stop()
    endpoint.close()


def names_in(service: Service) -> set[str]:
    return {one["id"] for one in service.ask("GET").json()["sessions"]}


def client_of(session: dict[str, Any]) -> openai.OpenAI:
    return openai.OpenAI(base_url=session["base_url"], api_key=session["token"], max_retries=0)


def test_a_session_is_opened_used_rewarded_and_closed(service: Service, endpoint: ChatEndpoint) -> None:
    endpoint.will(said("42"), said("43"))
    session = service.opened(id="episode-1")
    assert session["base_url"] == f"http://127.0.0.1:{service.port}/sessions/episode-1/v1"

    chat = client_of(session)
    assert chat.chat.completions.create(model="any", messages=MESSAGES).choices[0].message.content == "42"
    assert chat.responses.create(model="any", input="And 43?").output_text == "43"
    key = {"Authorization": f"Bearer {session['token']}"}
    rewarded = httpx.post(f"{session['messages_url']}/reward", headers=key, json={"reward": 0.5}, timeout=20)
    assert rewarded.json() == {"reward": 0.5}
    trace = httpx.get(f"{session['messages_url']}/trace", headers=key, timeout=20).json()
    assert [call["outcome"] for call in trace["calls"]] == ["served", "served"]

    [listed] = service.ask("GET").json()["sessions"]
    assert (listed["id"], listed["calls"], listed["reward"]) == ("episode-1", 2, 0.5)
    closed = service.ask("DELETE", "/episode-1").json()
    assert (closed["calls"], closed["usage"]["completion_tokens"]) == (2, 10)
    assert service.ask("GET").json() == {"sessions": []}
    with pytest.raises(openai.APIStatusError) as refused:
        chat.chat.completions.create(model="any", messages=MESSAGES)
    assert refused.value.status_code == 409

    told = json.loads((service.folder / "episode-1" / "session.json").read_text())
    assert (told["owner"], told["reward"], told["calls"]) == ("alice", 0.5, 2)
    record = read_calls(service.folder / "episode-1")
    assert record.header["owner"] == "alice"
    assert [call.reply["content"] for call in record.calls] == ["42", "43"]
    log = service.stop()
    assert not [secret for secret in (ALICE, BOB, session["token"], "sk-of-the-model") if secret in log]


def test_a_failed_call_fails_alone_and_is_in_the_log(service: Service, endpoint: ChatEndpoint) -> None:
    endpoint.will({"status": 400})
    chat = client_of(service.opened(id="s"))
    with pytest.raises(openai.BadRequestError):
        chat.chat.completions.create(model="any", messages=MESSAGES)
    endpoint.will(said("42"))

    assert chat.chat.completions.create(model="any", messages=MESSAGES).choices[0].message.content == "42"

    assert service.ask("DELETE", "/s").json()["failed"] == 1
    assert "session s: call 1 failed: model policy at" in service.stop()


@pytest.mark.parametrize("name", ["trace", "reward", "v1", "models", "sessions"])
def test_a_session_may_have_the_name_of_an_address(shared: Service, name: str) -> None:
    shared.opened(id=name)
    assert shared.ask("DELETE", f"/{name}").status_code == 200
    assert name not in names_in(shared)


def test_an_id_is_used_once(service: Service, tmp_path: Path) -> None:
    service.opened(id="s")
    service.ask("DELETE", "/s")
    refused = service.ask("POST", json={"id": "s"})
    assert (refused.status_code, refused.json()["error"]["message"]) == (
        409,
        "the id 's' is used up: there is the record of an earlier session",
    )
    (tmp_path / "sessions").rename(tmp_path / "away")
    (tmp_path / "sessions").write_text("in the way")
    assert service.ask("POST", json={"id": "t"}).status_code == 507
    (tmp_path / "sessions").unlink()
    service.opened(id="t")


@pytest.mark.parametrize("path", ["/s/v1/embeddings", "/s/chat/completions", "/s/v1/chat/completions/", "x"])
def test_another_address_is_no_matter_of_keys(shared: Service, path: str) -> None:
    refused = shared.ask("POST", path, json={})
    assert (refused.status_code, refused.json()["error"]["message"][:27]) == (404, "there is no such address: c")


def test_what_is_not_written_is_not_taken_for_written(service: Service, tmp_path: Path) -> None:
    session = service.opened(id="s")
    shutil.rmtree(tmp_path / "sessions" / "s")
    key = {"x-api-key": session["token"]}
    assert (
        httpx.post(f"{session['messages_url']}/reward", headers=key, json={"reward": 1}, timeout=20).status_code == 507
    )
    assert service.ask("GET").json()["sessions"][0]["reward"] is None
    closed = service.ask("DELETE", "/s")
    assert (closed.status_code, "its record cannot be written" in closed.text) == (507, True)
    assert service.ask("GET").json() == {"sessions": []}


def test_idle_sessions_end_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a record cannot be made durable; not one whose call is under way."""
    monkeypatch.setattr(sessions, "IDLE_SECONDS", 0.2)
    began, go_on = threading.Event(), threading.Event()

    def sample(_call: EngineCall) -> EngineReply:
        began.set()
        go_on.wait(20)
        body = {"choices": [said("42")], "model": "m"}
        return read_completion(json.dumps(body), Usage(), Served())

    with Gateway() as gateway:
        remote = sessions.RemoteSessions(gateway, FunctionEngine("m", sample), tmp_path, ServiceTokens(f"a:{ALICE}"))
        remote.open("a", {"id": "broken"})
        remote.open("a", {"id": "idle"})
        busy = remote.open("a", {"id": "busy"})
        no_file, end = os.pipe()  # which cannot be synced
        os.dup2(end, remote._opened["broken"].recorder.writer._descriptor)
        body = {"model": "m", "messages": MESSAGES}
        with ThreadPoolExecutor(1) as threads:
            headers = {"Authorization": f"Bearer {busy['token']}"}
            call = threads.submit(
                httpx.post, f"{busy['base_url']}/chat/completions", json=body, headers=headers, timeout=30
            )
            assert began.wait(20)
            time.sleep(0.4)
            assert sorted(remote.close_idle()) == ["broken", "idle"]
            go_on.set()
            assert call.result().status_code == 200
        remote.close_all()
    for name, calls in (("busy", 1), ("idle", 0), ("broken", 0)):
        assert json.loads((tmp_path / name / "session.json").read_text())["calls"] == calls
    os.close(no_file)
    os.close(end)


def test_nobody_sees_or_ends_anothers(service: Service) -> None:
    service.opened(id="hers")

    assert service.ask("GET", token=BOB).json() == {"sessions": []}
    assert service.ask("DELETE", "/hers", token=BOB).status_code == 404
    for token in ("x", ALICE[:-1], f"{ALICE}a"):
        assert service.ask("POST", token=token, json={}).status_code == 401
        assert service.ask("GET", "/hers/trace", token=token).status_code == 401
    assert service.ask("GET", "/hers/trace").status_code == 401, "a session's own token is needed"
    assert [one["id"] for one in service.ask("GET").json()["sessions"]] == ["hers"]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "sentence"),
    [
        ("POST", "", {"id": "../up"}, 400, "id: use 1 to 128 letters"),
        ("POST", "", {"id": "x" * 129}, 400, "id: use 1 to 128 letters"),
        ("POST", "", {"id": 5}, 400, "id: use 1 to 128 letters"),
        ("POST", "", {"id": "there"}, 409, "there is a session 'there' already"),
        ("POST", "", {"call": 5}, 400, "'call' is not known here: a session has id, calls and tokens"),
        ("POST", "", {"calls": 0}, 400, "calls must be a whole number from 1"),
        ("POST", "", {"tokens": True}, 400, "tokens must be a whole number from 1"),
        ("POST", "", [], 400, "the body must be a JSON object"),
        ("POST", "", {"id": "y" * 70_000}, 413, "the body has more than 65,536 bytes"),
        ("DELETE", "/none", None, 404, "there is no such session"),
        ("DELETE", "", None, 405, "the method must be GET or POST"),
        ("PUT", "/there", None, 405, "the method must be DELETE"),
    ],
)
def test_bad_orders_are_refused_in_a_sentence(
    shared: Service, method: str, path: str, body: object, status: int, sentence: str
) -> None:
    shared.ask("POST", json={"id": "there"})
    before = names_in(shared)

    refused = shared.ask(method, path, json=body)

    assert (refused.status_code, sentence in refused.json()["error"]["message"]) == (status, True), refused.text
    assert names_in(shared) == before >= {"there"}


def test_a_session_has_the_limits_that_it_was_opened_with(service: Service, endpoint: ChatEndpoint) -> None:
    endpoint.will(said("42"))
    chat = client_of(service.opened(calls=1))
    chat.chat.completions.create(model="any", messages=MESSAGES)

    with pytest.raises(openai.RateLimitError, match="has used all its 1 calls"):
        chat.chat.completions.create(model="any", messages=MESSAGES)


def test_open_sessions_end_with_the_service_and_keep_their_records(service: Service, endpoint: ChatEndpoint) -> None:
    endpoint.will(said("42"))
    session = service.opened()
    client_of(session).chat.completions.create(model="any", messages=MESSAGES)

    service.stop()

    assert len(read_calls(service.folder / session["id"]).calls) == 1


@pytest.mark.parametrize(
    ("tokens", "options", "sentence"),
    [
        ("", (), "ROLLOUT_SERVICE_TOKENS is not set: whoever uses the service needs a token"),
        ("alice", (), "ROLLOUT_SERVICE_TOKENS: entry 1 must be NAME:TOKEN"),
        ("alice:short", (), "the token of 'alice' must have at least 16 characters"),
        (f"a:{ALICE} a:{BOB}", (), "'a', or its token, is there twice"),
        (f"a:{ALICE} b:{ALICE}", (), "'b', or its token, is there twice"),
        (f"a:{ALICE},b:{BOB}", (), "the token of 'a' has a comma: there are blanks between entries"),
        (f"a:{ALICE}", ("--host", "::"), "--host '::' listens at all addresses: say with --url"),
        (f"a:{ALICE}", ("--host", "0"), "--host '0' listens at all addresses: say with --url"),
        (f"a:{ALICE}", ("--url", "http://h/a?"), "--url must look like https://HOST"),
        (f"a:{ALICE}", ("--url", "http://a b"), "--url must look like https://HOST"),
        (f"a:{ALICE}", ("--output-dir", "/proc/none"), "--output-dir /proc/none: No such file or directory"),
        (
            f"a:{ALICE}",
            ("--base-url", "http://127.0.0.1:9/v1"),
            "the model endpoint http://127.0.0.1:9/v1 cannot be reached",
        ),
        (f"a:{ALICE}", ("--url", "ftp://x"), "--url must look like https://HOST"),
        (
            f"a:{ALICE}",
            ("--port", "{taken}"),
            "the model gateway cannot listen at 127.0.0.1:{taken}: Address already in use",
        ),
        (f"a:{ALICE}", ("--host", "256.1.1.1"), "the model gateway cannot listen"),
    ],
)
def test_what_keeps_it_from_starting_is_one_sentence(
    endpoint: ChatEndpoint, tmp_path: Path, tokens: str, options: tuple[str, ...], sentence: str
) -> None:
    taken = endpoint.url.removesuffix("/v1").rpartition(":")[2]
    began = time.monotonic()
    done = subprocess.run(
        [*command(endpoint), "--output-dir", str(tmp_path), *(option.format(taken=taken) for option in options)],
        cwd=REPOSITORY,
        env={**os.environ, "ROLLOUT_SERVICE_TOKENS": tokens},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 2, f"{done.stderr} after {time.monotonic() - began:.0f} s"
    assert sentence.format(taken=taken) in done.stderr
    assert "Traceback" not in done.stderr
    assert ALICE not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_record_is_whole_after_a_kill(service: Service, endpoint: ChatEndpoint) -> None:
    endpoint.will(said("42"))
    session = service.opened(id="killed")
    client_of(session).chat.completions.create(model="any", messages=MESSAGES)

    service.process.kill()
    service.process.wait(10)

    lines = (service.folder / "killed" / "calls.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["outcome"] == "served"
