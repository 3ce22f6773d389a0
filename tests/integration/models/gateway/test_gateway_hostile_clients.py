"""Clients that send what no client should: each is answered or cut in time, and others notice nothing."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from rollout_tasks.models.gateway.session_summary import SessionLimits
from tests.integration.models.gateway.upstream import Agent, Answer, Upstream, read_all

Open = Callable[..., Agent]
JSON = "application/json"

BODIES: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "the body is not JSON"),
    "half": (b'{"messages": [', "the body is not JSON"),
    "a list": (b"[]", "the body must be a JSON object"),
    "bad UTF-8": (b'{"messages": "\xff"}', "the body is not UTF-8"),
    "nested": (b"[" * 1_000_000, "the body is nested more than 64 deep"),
    "NaN": (b'{"temperature": NaN}', "the body is not JSON: NaN is not a number"),
    "a long number": (
        b'{"seed": ' + b"1" * 1_000_000 + b"}",
        "the body is not JSON: a number of 1000000 digits is too long",
    ),
    "no messages": (b"{}", "messages must be"),
    "messages that are none": (b'{"messages": ["a"]}', "messages must be"),
    "a message without a role": (b'{"messages": [{"content": "a"}]}', "messages must be"),
}


@pytest.mark.parametrize("address", ["/v1/chat/completions", "/v1/responses", "/v1/messages", "/reward"])
@pytest.mark.parametrize(("body", "said"), BODIES.values(), ids=BODIES.keys())
def test_bodies_that_are_none(agent: Open, upstream: Upstream, body: bytes, said: str, address: str) -> None:
    one = agent()

    answer = one.post(address, content=body)

    assert answer.status_code == 400
    if address == "/v1/chat/completions":
        assert said in answer.json()["error"]["message"]
    assert not upstream.requests
    assert one.summary.calls == 0
    assert one.summary.failure_class is None


def test_a_compressed_body_is_refused(agent: Open) -> None:
    one = agent()
    headers = {"Authorization": f"Bearer {one.handle.token}", "Content-Encoding": "gzip"}

    assert one.client.post(f"{one.handle.base_url}/chat/completions", headers=headers, content=b"x").status_code == 415


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("address", ["/v1/chat/completions", "/v1/messages"])
def test_a_body_that_is_too_large_is_refused_with_a_reason(agent: Open, address: str, chunked: bool) -> None:
    one = agent(SessionLimits(request_bytes=1 << 20))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def parts() -> Iterator[bytes]:
        for _ in range(48):
            yield b"x" * (1 << 16)

    content: Any = parts() if chunked else b"x" * (48 << 16)
    answer = one.post(address, content=content)

    assert answer.status_code == 413
    assert "the body has more than 1,048,576 bytes" in answer.json()["error"]["message"]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10
    assert one.chat().status_code == 200


def test_a_client_that_sends_all_before_it_reads_learns_why(agent: Open) -> None:
    one = agent(SessionLimits(request_bytes=1 << 16))

    connection = one.raw(b"Content-Length: 250000\r\n\r\n")
    for _ in range(10):
        connection.sendall(b"x" * 25_000)
        time.sleep(0.02)

    assert b"413 " in read_all(connection)[:20]


def test_a_body_without_end_is_cut(agent: Open) -> None:
    one = agent(SessionLimits(request_bytes=1 << 16))
    connection = one.raw(b"Transfer-Encoding: chunked\r\n\r\n")
    sent = 0
    with pytest.raises(OSError):  # noqa: PT011 - a broken pipe or a reset
        while sent < 1 << 30:
            connection.sendall(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
            sent += 0x10000
    assert sent < 64 << 20


@pytest.mark.parametrize("text", [b"", b"G", b"POST /sessions/x HTTP/1.1\r\nHost: a\r\nX: "])
def test_a_head_that_does_not_end_is_cut(agent: Open, text: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rollout_tasks.http_protocol.HEAD_SECONDS", 0.3)
    one = agent()
    connection = one.raw(text, token=False)
    began = time.monotonic()

    assert read_all(connection) == b""
    assert time.monotonic() - began < 15
    assert one.chat().status_code == 200


def test_a_head_that_drips_after_a_request_is_cut(agent: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rollout_tasks.http_protocol.HEAD_SECONDS", 0.3)
    one = agent()
    connection = one.raw(b"Content-Length: 2\r\n\r\n{}")
    answer = b""
    while not answer.endswith(b"}}"):
        answer += connection.recv(65536)
    assert b"400 Bad Request" in answer
    connection.sendall(b"POST ")

    assert read_all(connection) == b""


def test_a_body_that_drips_is_answered_in_time(agent: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rollout_tasks.models.gateway.connection.BODY_SECONDS", 0.3)
    one = agent()
    connection = one.raw(b"Content-Length: 100\r\n\r\n{")

    assert b"408 Request Timeout" in read_all(connection)


def test_a_request_that_is_cut_is_no_call(agent: Open) -> None:
    one = agent()
    connection = one.raw(b"Content-Length: 100\r\n\r\n{")
    connection.close()
    deadline = time.monotonic() + 20
    while not one.summary.refused and time.monotonic() < deadline:
        time.sleep(0.01)

    assert (one.summary.calls, one.summary.refused) == (0, 1)
    assert one.trace()["refusals"] == ["the client went away before its request was complete"]


@pytest.mark.parametrize(
    "text",
    [b"\x00\xff\r\n\r\n", b"GET / FTP/1.1\r\n\r\n", b"A" * 200_000, b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 20_000],
)
def test_what_is_no_http_is_refused(agent: Open, text: bytes) -> None:
    one = agent()

    assert read_all(one.raw(text, token=False))[:12] in (b"HTTP/1.1 400", b"")
    assert one.chat().status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        "/sessions/../sessions/{id}/v1/chat/completions",
        "/sessions//v1/chat/completions",
        "/sessions/v1/chat/completions",
        "/v1/chat/completions",
        "/sessions/{id}/v1/chat/completions/",
        "/sessions/{id}%00/v1/chat/completions",
        "/sessions/{id}/trace/trace",
    ],
)
def test_other_addresses_lead_nowhere(agent: Open, path: str) -> None:
    one = agent()
    url = httpx.URL(one.handle.base_url)
    name = url.raw_path.decode().split("/")[2]
    text = f"POST {path.format(id=name)} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
    text += f"Authorization: Bearer {one.handle.token}\r\nContent-Length: 2\r\n\r\n{{}}"

    assert read_all(one.raw(text.encode(), token=False))[:12] == b"HTTP/1.1 404"


def test_a_session_has_so_many_calls_at_once(agent: Open, upstream: Upstream) -> None:
    one = agent()
    upstream.will(*[Answer(write=lambda _write, server: server.stopping.wait(20))] * SessionLimits().calls_at_once)
    body = b'{"messages": [{"role": "user"}]}'
    connections = [
        one.raw(b"Content-Length: %d\r\n\r\n%s" % (len(body), body)) for _ in range(SessionLimits().calls_at_once)
    ]
    deadline = time.monotonic() + 20
    while one.summary.calls < SessionLimits().calls_at_once and time.monotonic() < deadline:
        time.sleep(0.01)

    answer = one.chat()

    assert answer.status_code == 429
    assert "calls in flight, the most at a time" in answer.json()["error"]["message"]
    assert agent().chat().status_code == 200
    for connection in connections:
        connection.close()
