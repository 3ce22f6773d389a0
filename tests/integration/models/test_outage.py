"""A model endpoint that is out for a while: who asks it, who waits, and until when."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import redis

from rollout_tasks.models import endpoint_check, outage
from rollout_tasks.models.outage import outage_of, wait_while_out
from rollout_tasks.models.pool.replicas import Replicas, ReplicaState
from rollout_tasks.settings import settings
from tests.dribbling import dribble


class Endpoint(ThreadingHTTPServer):
    """Answers every request with one status, and notes when it was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = 200
        self.asked: list[float] = []
        self.keys: list[tuple[str | None, str | None]] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


class _Handler(BaseHTTPRequestHandler):
    server: Endpoint

    def do_GET(self) -> None:
        self.server.asked.append(time.monotonic())
        self.server.keys.append((self.headers["Authorization"], self.headers["x-api-key"]))
        self.send_response(self.server.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Not to the test's output."""


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    server = Endpoint()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def client(redis_url: str) -> redis.Redis:
    return redis.Redis.from_url(redis_url, decode_responses=True)


@pytest.mark.parametrize(("api", "login"), [("chat", ("Bearer sk", None)), ("messages", (None, "sk"))])
def test_an_endpoint_is_asked_with_its_apis_login(
    client: redis.Redis,
    endpoint: Endpoint,
    monkeypatch: pytest.MonkeyPatch,
    api: str,
    login: tuple[str | None, str | None],
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk")
    settings.cache_clear()
    assert not wait_while_out(client, endpoint.url, suspected=True, wanted=lambda: True, api=api)
    settings.cache_clear()

    assert endpoint.keys == [login]


def test_a_pool_is_out_when_none_of_its_servers_works(client: redis.Redis, endpoint: Endpoint) -> None:
    """Though they count as ready until they have been silent for a while."""
    replicas = Replicas(client, "policy")
    for name in ("a", "b"):
        replicas.register(
            name,
            f"{name}-1",
            base_url=endpoint.url if name == "a" else "http://127.0.0.1:9/v1",
            model="m",
            weight_version="1",
            host="here",
            state=ReplicaState.READY,
        )
    assert not wait_while_out(client, "pool://policy", suspected=True, wanted=lambda: True)
    endpoint.status = 503
    deadline = time.monotonic() + 20

    def wanted() -> bool:
        found = outage_of(client, "pool://policy")
        if found is not None:
            assert str(found).startswith(
                "the model endpoint pool://policy has no replica that works: a answers HTTP 503"
            )
            endpoint.status = 200
        return time.monotonic() < deadline

    assert wait_while_out(client, "pool://policy", suspected=True, wanted=wanted)
    assert endpoint.status == 200


def test_an_endpoint_that_nobody_suspects_is_not_asked(client: redis.Redis, endpoint: Endpoint) -> None:
    endpoint.status = 503

    assert not wait_while_out(client, endpoint.url, suspected=False, wanted=lambda: True)

    assert endpoint.asked == []


@pytest.mark.parametrize("status", [200, 401, 404, 429])
def test_one_that_answers_is_not_out_whatever_was_wrong_with_a_call(
    client: redis.Redis, endpoint: Endpoint, status: int
) -> None:
    endpoint.status = status

    assert not wait_while_out(client, endpoint.url, suspected=True, wanted=lambda: True)

    assert len(endpoint.asked) == 1
    assert outage_of(client, endpoint.url) is None


@pytest.mark.parametrize(
    ("head", "piece"),
    [(b"", b"HTTP/1.1 102 Processing\r\n\r\n"), (b"HTTP/1.1 200 OK\r\nX: ", b"x")],
    ids=["interim answers", "a header"],
)
def test_one_whose_answer_never_begins_is_out(
    client: redis.Redis, monkeypatch: pytest.MonkeyPatch, head: bytes, piece: bytes
) -> None:
    monkeypatch.setattr(endpoint_check, "ANSWER_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        threading.Thread(target=dribble, args=(listening, head, piece)).start()
        assert wait_while_out(client, url, suspected=True, wanted=lambda: outage_of(client, url) is None)
        known = outage_of(client, url)

    assert known is not None
    assert known.problem == "gives no answer within 0.2 s"


def test_one_asks_and_all_go_on_when_it_is_back(
    client: redis.Redis, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outage, "ASK_EVERY_SECONDS", 0.5)
    endpoint.status = 503
    with ThreadPoolExecutor(12) as threads:
        waiting = [
            threads.submit(wait_while_out, client, endpoint.url, suspected=number < 6, wanted=lambda: True)
            for number in range(6)
        ]
        deadline = time.monotonic() + 20
        while (known := outage_of(client, endpoint.url)) is None:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        later = [
            threads.submit(wait_while_out, client, endpoint.url, suspected=False, wanted=lambda: True) for _ in range(6)
        ]
        while len(endpoint.asked) < 4:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert not any(one.done() for one in [*waiting, *later])
        endpoint.status = 200
        assert all(one.result(20) for one in [*waiting, *later])

    assert str(known).startswith(f"the model endpoint {endpoint.url} answers HTTP 503 (for ")
    pauses = [after - before for before, after in zip(endpoint.asked, endpoint.asked[1:], strict=False)]
    assert min(pauses) > 0.45, "two asked at a time"
    assert outage_of(client, endpoint.url) is None


def test_of_many_that_suspect_it_one_asks_for_all(client: redis.Redis, endpoint: Endpoint) -> None:
    with ThreadPoolExecutor(20) as threads:
        suspects = [
            threads.submit(wait_while_out, client, endpoint.url, suspected=True, wanted=lambda: True) for _ in range(20)
        ]
        assert not any(suspect.result(60) for suspect in suspects)

    assert len(endpoint.asked) <= 2


def test_who_comes_late_waits_no_longer_than_those_who_came_first(
    client: redis.Redis, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outage, "PATIENCE_SECONDS", 3.0)
    monkeypatch.setattr(outage, "ASK_EVERY_SECONDS", 0.2)
    endpoint.status = 500
    assert not wait_while_out(client, endpoint.url, suspected=True, wanted=lambda: True)
    while (known := outage_of(client, endpoint.url)) is not None and known.seconds < 3:
        time.sleep(0.05)
    looks = []

    for suspected in (False, True):
        assert not wait_while_out(client, endpoint.url, suspected=suspected, wanted=lambda: looks.append(1) or True)
    endpoint.status = 200
    time.sleep(0.3)  # till somebody may ask again
    assert wait_while_out(client, endpoint.url, suspected=False, wanted=lambda: True)

    assert looks == []


def test_who_asked_may_die(client: redis.Redis, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """The right to ask, which it took with it, ends by itself, and the outage stays noted meanwhile."""
    monkeypatch.setattr(outage, "ASK_EVERY_SECONDS", 0.5)
    monkeypatch.setattr(outage, "ANSWER_SECONDS", 1.0)
    endpoint.status = 500
    gone = {"asked": 0}

    def look() -> bool:
        gone["asked"] += 1
        return gone["asked"] < 2

    wait_while_out(client, endpoint.url, suspected=True, wanted=look)
    assert outage_of(client, endpoint.url) is not None
    (key,) = client.keys("model:outage:*:asked") or [""]
    assert client.pttl(key) != -1, "it would never end"
    assert client.pttl(key) <= 1500
    endpoint.status = 200

    assert wait_while_out(client, endpoint.url, suspected=False, wanted=lambda: True)


def test_nobody_waits_for_ever(client: redis.Redis, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outage, "PATIENCE_SECONDS", 1.0)
    endpoint.status = 500

    began = time.monotonic()
    assert not wait_while_out(client, endpoint.url, suspected=True, wanted=lambda: True)

    assert 1 <= time.monotonic() - began < 10


def test_what_is_not_wanted_any_more_is_not_waited_for(client: redis.Redis, endpoint: Endpoint) -> None:
    endpoint.status = 500

    assert not wait_while_out(client, endpoint.url, suspected=True, wanted=lambda: False)


def test_nothing_at_its_address_is_an_outage_too(client: redis.Redis, endpoint: Endpoint) -> None:
    url = endpoint.url
    endpoint.shutdown()
    endpoint.server_close()
    looks = iter([True, False])

    assert wait_while_out(client, url, suspected=True, wanted=lambda: next(looks))

    assert str(outage_of(client, url)).startswith(f"the model endpoint {url} cannot be reached (ConnectError) (for ")


def test_the_log_names_the_run_that_waits(
    client: redis.Redis, endpoint: Endpoint, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint.status = 503
    looks = iter([True, False])

    assert wait_while_out(client, endpoint.url, suspected=True, wanted=lambda: next(looks), run_id="night-1")

    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert [line.partition(" answers HTTP 503 ")[0] for line in said] == [
        f"run night-1: the model endpoint {endpoint.url}"
    ]


def test_an_address_that_is_none_is_out(client: redis.Redis) -> None:
    looks = iter([True, True, False])

    assert wait_while_out(client, "http://10.0.0.256/v1", suspected=True, wanted=lambda: next(looks))

    assert "cannot be reached (InvalidURL)" in str(outage_of(client, "http://10.0.0.256/v1"))
