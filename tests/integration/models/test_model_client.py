"""The client against a real HTTP server that answers, refuses, hangs and talks nonsense in the order told."""

from __future__ import annotations

import gzip
import json
import os
import resource
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from rollout_tasks.errors import FailureClass, RolloutFailure, UserError
from rollout_tasks.model_config import ModelConfig
from rollout_tasks.models import client, retries
from rollout_tasks.models.client import ModelClient, open_model
from rollout_tasks.models.session_ids import session_id

KEY = "sk-not-to-be-seen"
MESSAGES = [{"role": "user", "content": "6 * 7?"}]
ANSWER = {
    "model": "m-1",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "42"}}],
    "usage": {"prompt_tokens": 7, "completion_tokens": 3},
}


@dataclass(frozen=True)
class Answer:
    status: int = 200
    body: bytes = json.dumps(ANSWER).encode()
    headers: dict[str, str] = field(default_factory=dict)
    hang: bool = False
    cut: bool = False
    drip: bool = False
    interim: bool = False


def error(status: int, message: str, code: str | None = None, **headers: str) -> Answer:
    body = json.dumps({"error": {"message": message, "code": code}}).encode()
    return Answer(status, body, {name.replace("_", "-"): value for name, value in headers.items()})


class Endpoint(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: list[Answer] = []
        self.requests: list[tuple[dict[str, str], dict[str, Any]]] = []
        self.connections: list[int] = []
        self.stopping = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def will(self, *answers: Answer) -> None:
        self.answers = list(answers)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Endpoint

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        assert self.path == "/v1/chat/completions"
        self.server.connections.append(self.client_address[1])
        self.server.requests.append(({name.lower(): value for name, value in self.headers.items()}, json.loads(body)))
        answer = self.server.answers.pop(0) if self.server.answers else Answer()
        if answer.hang:
            self.server.stopping.wait(30)
            return
        while answer.interim:
            self.close_connection = True
            try:
                self.wfile.write(b"HTTP/1.1 102 Processing\r\n\r\n")
            except ConnectionError:
                return
        self.send_response_only(answer.status)
        for name, value in {"content-type": "application/json", **answer.headers}.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(answer.body)))
        self.end_headers()
        if answer.drip:
            for byte in answer.body:
                if self.server.stopping.wait(0.05):
                    return
                self.wfile.write(bytes([byte]))
        with suppress(ConnectionError):
            self.wfile.write(answer.body[:10] if answer.cut else answer.body)
        self.close_connection = answer.cut

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    server = Endpoint()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield server
    server.stopping.set()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def connect(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> Callable[..., ModelClient]:
    monkeypatch.setattr(retries, "LONGEST_BACKOFF", 0.02)

    def connect(**options: Any) -> ModelClient:
        config = ModelConfig(name="m", base_url=endpoint.url, **{"timeout": 5.0, **options})
        return open_model(config, session_id=session_id("run", "item/ü", 0, 1), api_key=KEY)

    return connect


def test_one_turn(endpoint: Endpoint, connect: Callable[..., ModelClient]) -> None:
    tool = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}

    reply = connect(temperature=0.5, max_completion_tokens=9, seed=7, extra_body={"top_k": 20}).complete(
        MESSAGES, [tool]
    )

    assert (reply.text, reply.served_by) == ("42", "m-1")
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens, reply.usage.requests) == (7, 3, 1)
    assert reply.usage.seconds > 0
    ((headers, body),) = endpoint.requests
    assert headers["x-session-id"] == "run/item%2F%C3%BC/0/1"
    assert headers["authorization"] == f"Bearer {KEY}"
    assert headers["content-type"] == "application/json"
    expected = {"model": "m", "messages": MESSAGES, "tools": [tool], "temperature": 0.5, "max_completion_tokens": 9}
    expected |= {"seed": 7, "top_k": 20}
    assert body == expected


def test_a_reply_is_kept_without_the_key_that_an_endpoint_sends_back(
    endpoint: Endpoint, connect: Callable[..., ModelClient]
) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": json.dumps({"sent": KEY})}}
    said = {"role": "assistant", "content": f"You are {KEY}.", "reasoning": KEY, "tool_calls": [call]}
    endpoint.will(Answer(body=json.dumps({"model": KEY, "choices": [{"index": 0, "message": said}]}).encode()))

    reply = connect().complete(MESSAGES, [])

    assert reply.text == "You are ***."
    assert KEY not in repr(reply)


def test_a_key_that_is_a_common_word_is_left_in_replies(endpoint: Endpoint) -> None:
    """Local servers are given keys such as EMPTY."""
    reply = {**ANSWER, "choices": [{"index": 0, "message": {"role": "assistant", "content": "The list is EMPTY."}}]}
    endpoint.will(Answer(body=json.dumps(reply).encode()))
    client = open_model(ModelConfig(base_url=endpoint.url), session_id="s", api_key="EMPTY")

    assert client.complete(MESSAGES, []).text == "The list is EMPTY."


def test_text_that_is_no_unicode_is_sent_all_the_same(endpoint: Endpoint, connect: Callable[..., ModelClient]) -> None:
    half = [{"role": "user", "content": "half a pair: \ud83d"}]

    assert connect().complete(half, []).text == "42"
    assert endpoint.requests[0][1] == {"model": "m", "messages": half}


PASSING = {
    "408": error(408, "slow"),
    "409": error(409, "conflict"),
    "429": error(429, "slow down"),
    "429 with seconds": error(429, "slow down", retry_after="0.02"),
    "429 with a date": error(429, "slow down", retry_after="Wed, 21 Oct 2015 07:28:00 GMT"),
    "429 with a date of another century's clock": error(
        429, "slow down", date="Sat, 31 Oct 2099 07:27:59 GMT", retry_after="Sat, 31 Oct 2099 07:28:00 GMT"
    ),
    "500": error(500, "oops"),
    "502 in HTML": Answer(502, b"<html>Bad gateway</html>"),
    "503": error(503, "loading"),
    "disconnect": Answer(cut=True),
    "bad JSON": Answer(body=b'{"choices": ['),
    "no choices": Answer(body=b'{"choices": null}'),
    "empty choices": Answer(body=b'{"choices": []}'),
    "empty body": Answer(body=b""),
}


@pytest.mark.parametrize("fault", PASSING.values(), ids=PASSING.keys())
def test_what_may_pass_is_tried_again(endpoint: Endpoint, connect: Callable[..., ModelClient], fault: Answer) -> None:
    endpoint.will(fault, fault)

    reply = connect().complete(MESSAGES, [])

    assert reply.text == "42"
    assert reply.usage.requests == len(endpoint.requests) == 3


def test_a_hanging_endpoint_is_left_and_asked_again(endpoint: Endpoint, connect: Callable[..., ModelClient]) -> None:
    endpoint.will(Answer(hang=True))

    assert connect(timeout=2).complete(MESSAGES, []).usage.requests == 2


LASTING = {
    "429": (error(429, "slow down"), FailureClass.MODEL_OVERLOAD, "answered 429: slow down (try 3 of 3)"),
    "500": (error(500, "oops"), FailureClass.MODEL_OVERLOAD, "answered 500: oops (try 3 of 3)"),
    "no message": (Answer(503, b""), FailureClass.MODEL_OVERLOAD, "answered 503: Service Unavailable (try 3 of 3)"),
    "hang": (Answer(hang=True), FailureClass.MODEL_OVERLOAD, "did not answer within 0.2 s (try 3 of 3)"),
    "disconnect": (Answer(cut=True), FailureClass.MODEL_OVERLOAD, "cannot be reached: RemoteProtocolError"),
    "bad JSON": (Answer(body=b'{"ch'), FailureClass.MODEL, """answered with bad JSON: '{"ch' (try 3 of 3)"""),
    "bad JSON with the key where it is cut": (
        Answer(body=b"x" * 195 + KEY.encode()),
        FailureClass.MODEL,
        f"answered with bad JSON: '{'x' * 195}***' (try 3 of 3)",
    ),
    "empty choices": (Answer(body=b'{"choices": []}'), FailureClass.MODEL, "answered without choices"),
    "drip": (Answer(drip=True), FailureClass.MODEL_OVERLOAD, "did not answer within 0.2 s (try 3 of 3)"),
    "interim answers": (Answer(interim=True), FailureClass.MODEL_OVERLOAD, "did not answer within 0.2 s (try 3 of 3)"),
    "no gzip": (
        Answer(headers={"content-encoding": "gzip"}),
        FailureClass.MODEL,
        "answered with a body that is not gzip: Error -3 while decompressing data",
    ),
    "packed otherwise": (
        Answer(headers={"content-encoding": "br"}),
        FailureClass.MODEL,
        "answered in the encoding 'br', which was not asked for (try 3 of 3)",
    ),
}


@pytest.mark.parametrize(("fault", "failure_class", "said"), LASTING.values(), ids=LASTING.keys())
def test_what_lasts_fails_after_all_tries(
    endpoint: Endpoint, connect: Callable[..., ModelClient], fault: Answer, failure_class: FailureClass, said: str
) -> None:
    endpoint.will(*[fault] * 5)

    with pytest.raises(RolloutFailure) as caught:
        connect(timeout=0.2 if fault.hang or fault.drip or fault.interim else 5).complete(MESSAGES, [])

    assert caught.value.failure_class is failure_class
    assert f"model m at {endpoint.url} {said}" in str(caught.value)
    deadline = time.monotonic() + 20
    while len(endpoint.requests) < 3 and time.monotonic() < deadline:  # the endpoint may still be reading the last one
        time.sleep(0.01)
    assert len(endpoint.requests) == 3


REFUSALS = {
    "400": (error(400, "bad tools"), "answered 400: bad tools"),
    "401": (error(401, f"Incorrect API key provided: {KEY}."), "answered 401: Incorrect API key provided: ***."),
    "401 where it is cut": (error(401, "x" * 490 + KEY), f"answered 401: {'x' * 490}***"),
    "401 in other spelling": (
        Answer(401, b'{"error": {"message": "' + b"x" * 490 + KEY.replace("-", "\\u002d").encode() + b'"}}'),
        f"answered 401: {'x' * 490}***",
    ),
    "403": (error(403, "not yours"), "answered 403: not yours"),
    "404": (error(404, "The model `m` does not exist"), "answered 404: The model `m` does not exist"),
    "422": (error(422, "no such field"), "answered 422: no such field"),
    "text": (Answer(404, b"Not\nFound", {"content-type": "text/plain"}), "answered 404: Not Found"),
    "redirect": (
        Answer(307, b"", {"location": "http://user:secret@10.0.0.1/v1?token=secret"}),
        "answered 307: Temporary Redirect; it redirects to http://10.0.0.1/v1, which is not followed",
    ),
    "redirect where it is cut": (
        Answer(307, b"", {"location": f"http://10.0.0.1/{'x' * 280}{KEY}"}),
        f"it redirects to http://10.0.0.1/{'x' * 280}***, which is not followed",
    ),
    "redirect to no address": (
        Answer(307, b"", {"location": "http://[x/v1"}),
        "answered 307: Temporary Redirect; it redirects to an invalid address, which is not followed",
    ),
    "redirect within": (
        Answer(308, b"", {"location": "/v1/chat/completions/?a=secret"}),
        ":{port}/v1/chat/completions/, which is not followed",
    ),
    "long wait": (
        error(429, "quota used up", retry_after="300"),
        "answered 429: quota used up; it asks for a wait of 300 s, longer than the limit of 120 s",
    ),
    "context by code": (error(400, "too long", "context_length_exceeded"), "answered 400: too long"),
    "context by text": (error(400, "This model's maximum context length is 4096 tokens."), "4096 tokens."),
}


@pytest.mark.parametrize(("fault", "said"), REFUSALS.values(), ids=REFUSALS.keys())
def test_what_cannot_get_better_fails_at_once(
    endpoint: Endpoint, connect: Callable[..., ModelClient], fault: Answer, said: str, request: Any
) -> None:
    endpoint.will(fault)

    with pytest.raises(RolloutFailure) as caught:
        connect().complete(MESSAGES, [])

    assert str(caught.value).endswith(said.replace("{port}", str(endpoint.server_address[1])))
    assert KEY not in str(caught.value)
    assert len(endpoint.requests) == 1
    overload = "long wait" in request.node.callspec.id
    assert caught.value.failure_class is (FailureClass.MODEL_OVERLOAD if overload else FailureClass.MODEL)
    about_context = "the conversation no longer fits the model's context" in str(caught.value)
    assert about_context == ("context" in request.node.callspec.id)


def packed_zeros(mebibytes: int) -> bytes:
    pack = zlib.compressobj(1, wbits=31)
    zeros = bytes(1 << 20)
    return b"".join([*(pack.compress(zeros) for _ in range(mebibytes)), pack.flush()])


def test_a_packed_reply_is_read(endpoint: Endpoint, connect: Callable[..., ModelClient]) -> None:
    endpoint.will(Answer(body=gzip.compress(Answer().body), headers={"content-encoding": "gzip"}))

    assert connect().complete(MESSAGES, []).text == "42"
    assert endpoint.requests[0][0]["accept-encoding"] == "gzip"


@pytest.mark.parametrize("charset", ["zlib_codec", "utf-16", "no-such", "punycode"])
def test_the_charset_of_the_headers_is_nothing_to_go_by(
    endpoint: Endpoint, connect: Callable[..., ModelClient], charset: str
) -> None:
    endpoint.will(Answer(headers={"content-type": f"application/json; charset={charset}"}))

    assert connect().complete(MESSAGES, []).text == "42"


def test_a_bomb_is_not_unpacked(endpoint: Endpoint, connect: Callable[..., ModelClient]) -> None:
    bomb = packed_zeros(512)
    endpoint.will(*[Answer(body=bomb, headers={"content-encoding": "gzip"})] * 3)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    with pytest.raises(RolloutFailure, match="answered with more than 64 MiB") as caught:
        connect().complete(MESSAGES, [])

    assert caught.value.failure_class is FailureClass.MODEL
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 << 10


def test_replies_have_a_limit_together(
    endpoint: Endpoint, connect: Callable[..., ModelClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "LARGEST_CONVERSATION", 2 * len(Answer().body))
    model = connect()
    for _ in range(2):
        assert model.complete(MESSAGES, []).text == "42"

    with pytest.raises(RolloutFailure, match=r"has answered with more than .* characters in all") as caught:
        model.complete(MESSAGES, [])

    assert caught.value.failure_class is FailureClass.MODEL
    assert len(endpoint.requests) == 3, "it is not asked again"
    assert connect().complete(MESSAGES, []).text == "42", "another session has its own"


def test_nobody_there() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        model = open_model(ModelConfig(name="m", base_url=url, max_retries=1), session_id="s")

        with pytest.raises(RolloutFailure, match=f"model m at {url} cannot be reached: ConnectError") as caught:
            model.complete(MESSAGES, [])

    assert caught.value.failure_class is FailureClass.MODEL_OVERLOAD


@pytest.mark.parametrize(
    "proxy",
    ["http://10.0.0.256:1", "http://me:hunter2", "http://me:hunter2@[::1", "socks5://me:hunter2@h:1", "ftp://h"],
)
def test_a_proxy_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch, proxy: str) -> None:
    monkeypatch.setenv("HTTP_PROXY", proxy)
    model = open_model(ModelConfig(name="m", base_url="http://model.example/v1", max_retries=1), session_id="s")

    with pytest.raises(RolloutFailure, match="cannot be reached: the proxy that HTTP_PROXY, ") as caught:
        model.complete(MESSAGES, [])

    assert "hunter2" not in str(caught.value)
    assert caught.value.failure_class is FailureClass.MODEL_OVERLOAD


def test_a_forked_child_does_not_share_its_parents_connection(
    endpoint: Endpoint, connect: Callable[..., ModelClient]
) -> None:
    model = connect()
    model.complete(MESSAGES, [])
    child = os.fork()
    if child == 0:
        os._exit(0 if model.complete(MESSAGES, []).text == "42" else 1)

    assert os.waitpid(child, 0)[1] == 0
    assert model.complete(MESSAGES, []).usage.requests == 1
    before, childs, after = endpoint.connections
    assert before == after != childs


@pytest.mark.parametrize("key", ["sk-a\nb", "sk-\u201cquoted\u201d"])
def test_a_key_that_cannot_be_sent_is_said_without_showing_it(key: str) -> None:
    with pytest.raises(UserError, match="OPENAI_API_KEY") as caught:
        open_model(ModelConfig(), session_id="s", api_key=key)

    assert "sk-" not in str(caught.value)
