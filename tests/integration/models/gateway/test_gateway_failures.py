"""Engines that give up, hang or lie: the session has their class of failure, whatever its agent does then."""

from __future__ import annotations

import json
from collections.abc import Callable

import httpx
import pytest

from rollout_tasks.errors import FailureClass
from rollout_tasks.models.gateway.session_summary import SessionLimits
from tests.integration.models.gateway.upstream import ANSWER, KEY, USER, Agent, Answer, Upstream, error

Open = Callable[..., Agent]

FAULTS: dict[str, tuple[Answer, int, FailureClass, str, int]] = {
    "overload": (error(503, "busy"), 503, FailureClass.MODEL_OVERLOAD, "answered 503: busy (try 3 of 3)", 3),
    "no reply": (Answer(body=b'{"choices": []}'), 502, FailureClass.MODEL, "answered without choices", 3),
    "bad JSON": (Answer(body=b"{"), 502, FailureClass.MODEL, "answered with bad JSON: '{' (try 3 of 3)", 3),
    "bad request": (error(400, "no tools here"), 400, FailureClass.MODEL, "answered 400: no tools here", 1),
    "wrong key": (error(401, f"wrong key {KEY}"), 502, FailureClass.MODEL, "answered 401: wrong key ***", 1),
    "long wait": (
        error(429, "later", retry_after="300"),
        503,
        FailureClass.MODEL_OVERLOAD,
        "it asks for a wait of 300 s, longer than the limit of 120 s",
        1,
    ),
    "redirect": (
        Answer(307, b"", {"location": "http://me:secret@10.0.0.1/v1?x=secret"}),
        502,
        FailureClass.MODEL,
        "it redirects to http://10.0.0.1/v1, which is not followed",
        1,
    ),
    "packed": (
        Answer(headers={"content-encoding": "gzip"}),
        502,
        FailureClass.MODEL,
        "answered in an encoding that was not asked for (try 3 of 3)",
        3,
    ),
    "false log-probabilities": (
        Answer(body=json.dumps({**ANSWER, "choices": [{**ANSWER["choices"][0], "token_ids": [1], "logprobs": {"content": [{"logprob": float("nan")}]}}]}).encode()),  # type: ignore[index,dict-item] # noqa: E501
        502,
        FailureClass.MODEL,
        "answered with a log-probability 0 that is not a finite number (try 3 of 3)",
        3,
    ),
}  # fmt: skip


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(("fault", "status", "failure_class", "said", "tries"), FAULTS.values(), ids=FAULTS.keys())
def test_an_engine_that_gave_up_decides_the_class(
    agent: Open,
    upstream: Upstream,
    fault: Answer,
    status: int,
    failure_class: FailureClass,
    said: str,
    tries: int,
    stream: bool,
) -> None:
    one = agent()
    upstream.will(*[fault] * tries)

    answer = one.chat(stream=stream)
    later = one.chat()

    assert (answer.status_code, len(upstream.requests)) == (status, tries)
    assert said in answer.json()["error"]["message"]
    assert answer.headers["x-should-retry"] == "false"
    assert later.status_code == 503
    assert "has failed and answers no more calls" in later.json()["error"]["message"]
    summary = one.handle.close()
    assert (summary.failure_class, summary.failed, summary.calls) == (failure_class, 1, 1)
    assert said in summary.failure
    (call,) = one.recorder.calls
    assert (call.outcome, call.failure_class, call.usage.requests) == ("failed", failure_class, tries)
    assert list(call.messages) == [USER]
    assert said in call.sentence
    for text in (answer.text, later.text, summary.failure, call.sentence):
        assert KEY not in text
        assert "secret" not in text


def test_a_reply_is_kept_without_the_key_that_an_endpoint_sends_back(agent: Open, upstream: Upstream) -> None:
    one = agent()
    said = {"role": "assistant", "content": f"You are {KEY}."}
    upstream.will(Answer(body=json.dumps({"model": KEY, "choices": [{"index": 0, "message": said}]}).encode()))

    answer = one.chat()

    assert answer.json()["choices"][0]["message"]["content"] == "You are ***."
    assert KEY not in repr(one.recorder.calls)


TOO_LONG = error(400, "too long", "context_length_exceeded")
NO_LONGER_FITS = "the conversation no longer fits the model's context: "


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_prompt_that_is_too_long_is_the_agents_to_shorten(agent: Open, upstream: Upstream, stream: bool) -> None:
    one = agent()
    upstream.will(TOO_LONG)

    answer = one.chat(stream=stream)
    before = one.handle.summary()
    later = one.chat()

    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "context_length_exceeded")
    assert NO_LONGER_FITS in answer.json()["error"]["message"]
    assert NO_LONGER_FITS in before.unserved
    assert later.status_code == 200
    summary = one.handle.close()
    assert (summary.failure_class, summary.failed, summary.calls, summary.unserved) == (None, 1, 2, "")
    first, second = one.recorder.calls
    assert (first.outcome, first.failure_class, second.outcome) == ("failed", FailureClass.MODEL, "served")


def test_an_agent_that_never_shortens_its_prompt_is_told_off(agent: Open, upstream: Upstream) -> None:
    one = agent(SessionLimits(refusals=2))
    upstream.will(TOO_LONG, TOO_LONG)

    statuses = [one.chat().status_code for _ in range(3)]

    assert statuses == [400, 400, 503]
    summary = one.handle.close()
    assert summary.failure_class is FailureClass.MODEL
    assert summary.failure.startswith("2 requests in a row, the last: " + NO_LONGER_FITS)


@pytest.mark.parametrize("link", [{"url": {"$file": "a.png"}}, {"$file": "a.png"}, {}, 7])
def test_a_picture_without_an_address_is_refused(agent: Open, upstream: Upstream, link: object) -> None:
    one = agent()

    answer = one.chat(messages=[{"role": "user", "content": [{"type": "image_url", "image_url": link}]}])

    assert answer.status_code == 400
    assert "image_url must be an address" in answer.json()["error"]["message"]
    assert upstream.requests == []


def test_refusals_in_a_row_end_a_session_that_limits_them(agent: Open) -> None:
    one = agent(SessionLimits(refusals=2))

    statuses = [one.chat(n=2).status_code, one.chat().status_code, one.chat(n=2).status_code, one.chat(n=2).status_code]

    assert statuses == [400, 200, 400, 400]
    assert one.chat().status_code == 503
    assert one.handle.close().failure_class is FailureClass.MODEL


@pytest.mark.parametrize("proxy", ["http://10.0.0.256:1", "http://me:hunter2", "http://me:hunter2@[::1", "ftp://h"])
def test_a_proxy_that_cannot_be_used(agent: Open, monkeypatch: pytest.MonkeyPatch, proxy: str) -> None:
    monkeypatch.setenv("HTTP_PROXY", proxy)
    one = agent(max_retries=1)

    answer = httpx.post(
        f"{one.handle.base_url}/chat/completions",
        headers={"Authorization": f"Bearer {one.handle.token}"},
        json={"messages": [USER]},
        trust_env=False,
    )

    assert "cannot be reached: the proxy that HTTP_PROXY, " in answer.json()["error"]["message"]
    assert "hunter2" not in answer.text
    assert one.summary.failure_class is FailureClass.MODEL_OVERLOAD


def test_what_passes_is_tried_again_and_counted(agent: Open, upstream: Upstream) -> None:
    one = agent()
    upstream.will(error(429, "slow down", retry_after="0.02"), error(500, "oops"))

    assert one.chat().json()["choices"][0]["message"]["content"] == "42"
    assert (one.recorder.calls[0].usage.requests, one.summary.failure_class) == (3, None)


def test_a_call_that_takes_too_long_is_the_endpoints_failure(agent: Open, upstream: Upstream) -> None:
    one = agent(SessionLimits(call_seconds=0.3))
    upstream.will(Answer(write=lambda _write, server: server.stopping.wait(20)))

    answer = one.chat()

    assert answer.status_code == 504
    assert "gave no whole reply within 0.3 s" in answer.json()["error"]["message"]
    assert one.summary.failure_class is FailureClass.MODEL_OVERLOAD


def test_an_endpoint_that_hangs_is_asked_again(agent: Open, upstream: Upstream) -> None:
    one = agent(timeout=1.0)
    upstream.will(Answer(write=lambda _write, server: server.stopping.wait(20)))

    assert one.chat().status_code == 200
    assert one.recorder.calls[0].usage.requests == 2


def test_a_reply_that_is_too_large_is_not_taken(agent: Open, upstream: Upstream) -> None:
    one = agent(SessionLimits(reply_bytes=1000), max_retries=1)
    upstream.will(Answer(body=b" " * 1001))

    answer = one.chat()

    assert answer.status_code == 502
    assert "answered with more than 1,000 bytes" in answer.json()["error"]["message"]
