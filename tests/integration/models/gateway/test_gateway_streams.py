"""Streams through the gateway: pieces come as they are sampled, and what breaks in the middle is said and recorded."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any

import openai
import pytest

from rollout_tasks.errors import FailureClass
from rollout_tasks.models.gateway.session_summary import SessionLimits
from tests.integration.models.gateway.upstream import (
    CHAT,
    STREAM,
    USER,
    Agent,
    Answer,
    Upstream,
    Write,
    error,
    piece,
    read_all,
    sse,
    streamed,
)

Open = Callable[..., Agent]


def whole(write: Write, _server: Upstream) -> None:
    write(sse(*STREAM))


def pieces(text: str) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not true() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert true()


def test_pieces_are_passed_on_before_the_reply_is_complete(agent: Open, upstream: Upstream) -> None:
    one, seen = agent(), threading.Event()

    def write(write: Write, _server: Upstream) -> None:
        write(sse(STREAM[0]))
        assert seen.wait(20)
        write(sse(*STREAM[1:]))

    upstream.will(streamed(write))
    client = openai.OpenAI(base_url=one.handle.base_url, api_key=one.handle.token, max_retries=0)
    options: Any = {"stream": True, "stream_options": {"include_usage": True}}
    said = ""
    chunks = []
    for chunk in client.chat.completions.create(**CHAT, **options):
        chunks.append(chunk)
        said += (chunk.choices[0].delta.content or "") if chunk.choices else ""
        if said == "4":
            assert not one.recorder.calls
            seen.set()

    assert (said, chunks[-1].usage.total_tokens) == ("42", 10)
    assert upstream.requests[0][1] == {
        "model": "policy",
        "messages": [USER],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    (call,) = one.recorder.calls
    assert (call.outcome, call.reply, call.finish_reason) == ("served", {"role": "assistant", "content": "42"}, "stop")
    assert call.sampling == {"model": "policy"}
    assert call.usage.total_tokens == 10


def test_a_stream_byte_by_byte_is_the_same(agent: Open, upstream: Upstream) -> None:
    def bytewise(write: Write, _server: Upstream) -> None:
        for byte in sse(*STREAM).replace(b"\n\n", b"\r\n\r\n"):
            write(bytes([byte]))

    one = agent()
    upstream.will(streamed(whole), streamed(bytewise))

    at_once, bytes_ = one.chat(stream=True), one.chat(stream=True)

    def told(text: str) -> list[Any]:
        return [{**each, "created": 0} for each in pieces(text)]

    assert told(at_once.text) == told(bytes_.text)
    assert bytes_.text.endswith("data: [DONE]\n\n")
    assert one.recorder.calls[0].reply == one.recorder.calls[1].reply


def test_what_the_client_did_not_ask_for_is_recorded_but_not_shown(agent: Open, upstream: Upstream) -> None:
    choice = {"index": 0, "delta": {"content": "a", "secret": 1}, "token_ids": [4], "finish_reason": "stop"}
    first = {"id": "x", "prompt_token_ids": [1], "choices": [{**choice, "logprobs": {"content": [{"logprob": -0.5}]}}]}
    one = agent()
    upstream.will(*[streamed(lambda write, _server: write(sse(first, b"[DONE]")))] * 2)

    plain, asked = one.chat(stream=True), one.chat(stream=True, logprobs=True, return_token_ids=True)

    assert pieces(plain.text)[0]["choices"][0] == {
        "index": 0,
        "delta": {"content": "a"},
        "logprobs": None,
        "finish_reason": "stop",
    }
    assert pieces(asked.text)[0]["choices"][0]["token_ids"] == [4]
    assert pieces(asked.text)[0]["prompt_token_ids"] == [1]
    assert "prompt_token_ids" not in pieces(plain.text)[0]
    sampled = one.recorder.calls[0].sampled
    assert (sampled.prompt_ids, sampled.output_ids, sampled.logprobs) == ((1,), (4,), (-0.5,))


def test_an_endpoint_that_does_not_stream_is_streamed_whole(agent: Open) -> None:
    answer = agent().chat(stream=True, stream_options={"include_usage": True})

    found = pieces(answer.text)
    assert found[0]["choices"][0]["delta"] == {"role": "assistant", "content": "42"}
    assert found[1]["choices"][0]["finish_reason"] == "stop"
    assert found[2]["usage"]["total_tokens"] == 10


BEFORE: dict[str, Answer] = {
    "refused": error(503, "busy"),
    "bad JSON": streamed(lambda write, _server: write(sse(b"{"))),
    "no object": streamed(lambda write, _server: write(sse(b"[]"))),
    "an error": streamed(lambda write, _server: write(sse({"error": {"message": "oops"}}))),
    "nothing": streamed(lambda _write, _server: None),
    "deep": streamed(lambda write, _server: write(sse(b"[" * 100_000))),
}


@pytest.mark.parametrize("fault", BEFORE.values(), ids=BEFORE.keys())
def test_a_stream_that_fails_before_its_first_piece_is_tried_again(
    agent: Open, upstream: Upstream, fault: Answer
) -> None:
    one = agent()
    upstream.will(fault, streamed(whole))

    assert one.chat(stream=True).text.endswith("data: [DONE]\n\n")
    assert (one.recorder.calls[0].usage.requests, one.summary.failure_class) == (2, None)


def endless(write: Write, server: Upstream) -> None:
    while not server.stopping.wait(0.002):
        write(sse(piece(content="more and more ")))


def endless_line(write: Write, server: Upstream) -> None:
    write(sse(piece(content="a")))
    while not server.stopping.is_set():
        write(b"data: " + b"x" * 10_000)


def hangs(write: Write, server: Upstream) -> None:
    write(sse(piece(content="a")))
    server.stopping.wait(20)


AFTER: dict[str, tuple[Callable[[Write, Upstream], None], SessionLimits, FailureClass, str]] = {
    "cut": (
        lambda write, _server: write(sse(piece(content="a"))),
        SessionLimits(),
        FailureClass.MODEL,
        "answered with a stream that ends before its reply does",
    ),
    "an error": (
        lambda write, _server: write(sse(piece(content="a"), {"error": "oops"})),
        SessionLimits(),
        FailureClass.MODEL,
        "answered with an error in its stream: oops",
    ),
    "hangs": (hangs, SessionLimits(), FailureClass.MODEL_OVERLOAD, "did not answer within 1 s"),
    "never ends in time": (
        endless,
        SessionLimits(call_seconds=0.5),
        FailureClass.MODEL_OVERLOAD,
        "model policy gave no whole reply within 0.5 s",
    ),
    "never ends": (
        endless,
        SessionLimits(reply_bytes=20_000),
        FailureClass.MODEL,
        "answered with more than 20,000 bytes",
    ),
    "a line never ends": (
        endless_line,
        SessionLimits(reply_bytes=1_000_000),
        FailureClass.MODEL,
        "answered with more than 1,000,000 bytes",
    ),
}


@pytest.mark.parametrize(("write", "limits", "failure_class", "said"), AFTER.values(), ids=AFTER.keys())
def test_a_stream_that_breaks_ends_with_an_error_and_is_not_tried_again(
    agent: Open,
    upstream: Upstream,
    write: Callable[[Write, Upstream], None],
    limits: SessionLimits,
    failure_class: FailureClass,
    said: str,
) -> None:
    one = agent(limits, timeout=1.0)
    upstream.will(streamed(write))

    answer = one.chat(stream=True)

    assert answer.status_code == 200
    *_, last = pieces(answer.text)
    assert said in last["error"]["message"]
    assert "[DONE]" not in answer.text
    assert len(upstream.requests) == 1
    (call,) = one.recorder.calls
    assert (call.outcome, call.failure_class) == ("failed", failure_class)
    assert one.summary.failure_class is failure_class


def test_openais_client_sees_a_broken_stream_as_an_error(agent: Open, upstream: Upstream) -> None:
    one = agent()
    upstream.will(streamed(lambda write, _server: write(sse(piece(content="a")))))
    client = openai.OpenAI(base_url=one.handle.base_url, api_key=one.handle.token, max_retries=0)

    with pytest.raises(openai.APIError, match="ends before its reply does"):
        for _ in client.chat.completions.create(**CHAT, stream=True):  # type: ignore[call-overload]
            pass


@pytest.mark.parametrize("stream", [b"true", b"false"])
def test_a_client_that_goes_away_ends_its_call(agent: Open, upstream: Upstream, stream: bytes) -> None:
    one = agent()
    upstream.will(streamed(endless))
    body = b'{"model": "m", "messages": [{"role": "user", "content": "x"}], "stream": %s}' % stream
    connection = one.raw(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
    if stream == b"true":
        assert b"more and more" in connection.recv(65536) + connection.recv(65536)
    else:
        wait_until(lambda: bool(upstream.requests))

    connection.close()

    wait_until(lambda: bool(one.recorder.calls))
    (call,) = one.recorder.calls
    assert (call.outcome, call.sentence) == ("cut", "the client went away before it had the reply")
    assert upstream.cut.wait(20)
    assert (one.summary.cut, one.summary.failure_class) == (1, None)
    assert one.trace()["calls"][0]["outcome"] == "cut"


def test_a_client_that_does_not_read_is_cut(
    agent: Open, upstream: Upstream, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("rollout_tasks.models.gateway.connection.SEND_SECONDS", 0.3)

    def flood(write: Write, server: Upstream) -> None:
        while not server.stopping.is_set():
            write(sse(piece(content="x" * 50_000)))

    one = agent()
    upstream.will(streamed(flood))
    body = b'{"model": "m", "messages": [{"role": "user", "content": "x"}], "stream": true}'
    connection = one.raw(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))

    wait_until(lambda: bool(one.recorder.calls))
    assert (one.recorder.calls[0].outcome, one.recorder.calls[0].sentence) == (
        "cut",
        "the client does not read the reply",
    )
    assert read_all(connection)
    assert upstream.cut.wait(20)
    assert not caplog.messages


def test_calls_in_flight_end_when_their_session_is_closed(agent: Open, upstream: Upstream) -> None:
    one = agent()
    upstream.will(streamed(endless))
    answers = []
    thread = threading.Thread(target=lambda: answers.append(one.chat()))
    thread.start()
    wait_until(lambda: bool(upstream.requests))

    summary = one.handle.close()

    thread.join(20)
    assert answers[0].status_code == 409
    assert (summary.calls, summary.cut) == (1, 1)
    assert one.recorder.calls[0].sentence == "the session was closed"
