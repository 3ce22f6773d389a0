"""The judge against a real HTTP endpoint that answers, refuses, hangs and babbles as told."""

from __future__ import annotations

import gzip
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from email.message import Message
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from benchmark import RolloutResult, evaluate
from benchmark.errors import BenchmarkError, JudgeFailure
from benchmark.grading import Grading
from benchmark.items import Item
from benchmark.judge import JUDGE_MARK, Judge, JudgeConfig, judge_messages
from benchmark.judged_answers import JudgedAnswers
from benchmark.metrics import Score
from benchmark.scoring import Outcome, score_each

ITEM = Item("a b/ü#1", "Capital of France?", "Paris")
Reply = tuple[int, dict[str, str], bytes]


def completion(text: Any) -> Reply:
    body = {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [_choice(text)]}
    return 200, {}, json.dumps(body).encode()


def _choice(text: Any) -> dict[str, Any]:
    return {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}


@dataclass(frozen=True)
class Endless:
    """An answer that never ends but always goes on, which no timeout on reads ever notices."""

    status: int | None = 200
    """None: the answer has no head but `start`."""
    headers: dict[str, str] = field(default_factory=dict)
    start: bytes = b""
    piece: bytes = b" "


Answer = Callable[[dict[str, Any], int], Reply | Endless | bytes]
"""From a request and its number to a reply; bytes are sent as they are, instead of HTTP."""


def always(reply: Reply | Endless | bytes) -> Answer:
    return lambda _request, _number: reply


class Endpoint(ThreadingHTTPServer):
    """Answers each request by `answer`, and keeps what it was sent."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer: Answer = always(completion("Correct"))
        self.requests: list[tuple[Message, dict[str, Any]]] = []
        self.lock = threading.Lock()
        self.finished = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class _Handler(BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            self.server.requests.append((self.headers, request))
            number = len(self.server.requests)
        reply = self.server.answer(request, number)
        with suppress(OSError):  # the judge may have hung up
            match reply:
                case bytes():
                    self.wfile.write(reply)
                case Endless():
                    if reply.status is not None:
                        self._head(reply.status, reply.headers)
                    self._trickle(reply)
                case status, headers, body:
                    self._head(status, {"Content-Length": str(len(body)), **headers})
                    self.wfile.write(body)

    def _head(self, status: int, headers: dict[str, str]) -> None:
        self.send_response_only(status)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def _trickle(self, endless: Endless) -> None:
        self.wfile.write(endless.start)
        while not self.server.finished.wait(0.02):
            self.wfile.write(endless.piece)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    server = Endpoint()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server
    server.finished.set()
    server.shutdown()
    server.server_close()
    thread.join()


def judge(
    endpoint: Endpoint,
    answers: JudgedAnswers | None = None,
    before_asking: Callable[[], None] | None = None,
    **options: Any,
) -> Judge:
    config = JudgeConfig("grader", endpoint.url, **{"tries": 2, **options})
    return Judge(config, api_key="test", answers=answers, before_asking=before_asking)


def grade_all(judge: Judge, asked: list[tuple[str, str, Item]]) -> list[Score | JudgeFailure]:
    with Grading(judge) as grading:
        return [graded.result() for graded in [grading.submit(*one) for one in asked]]


def test_messages_have_the_mark_and_labelled_fields() -> None:
    system, user = judge_messages("Q?", "R", "P\nmore")

    assert system["content"].splitlines()[0] == JUDGE_MARK
    assert user["content"] == "Question:\nQ?\n\nReference answer:\nR\n\nAnswer to grade:\nP\nmore"


@pytest.mark.parametrize(
    ("reply", "value"),
    [("Correct", 1.0), ("Incorrect", 0.0), (" Correct\n", 1.0), ("<think>Incorrect?</think>\n\nCorrect", 1.0)],
)
def test_a_verdict_is_a_score(endpoint: Endpoint, reply: str, value: float) -> None:
    endpoint.answer = always(completion(reply))

    with judge(endpoint) as graded:
        score = graded("It is Paris", "Paris", ITEM)

    assert (score.value, score.details["verdict"], score.details["tries"]) == (value, reply.split()[-1], 1)
    headers, request = endpoint.requests[0]
    assert (request["temperature"], request["model"]) == (0, "grader")
    assert request["messages"] == judge_messages("Capital of France?", "Paris", "It is Paris")
    assert headers["X-Session-Id"] == "judge/a%20b%2F%C3%BC%231"


def test_a_verdict_after_thinking_in_parts_is_a_score(endpoint: Endpoint) -> None:
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "Incorrect?"}]}
    endpoint.answer = always(completion([thought, {"type": "text", "text": "Correct"}]))

    with judge(endpoint) as graded:
        assert graded("It is Paris", "Paris", ITEM).value == 1.0


OVERLOADED: Reply = (503, {"Retry-After": "0"}, b"{}")

FAILURES = [
    (OVERLOADED, "model_overload", "HTTP 503", 2),
    ((429, {"Retry-After": "0"}, b"{}"), "model_overload", "HTTP 429", 2),
    ((500, {"Retry-After": "0"}, b"{}"), "model_overload", "HTTP 500", 2),
    ((503, {"Retry-After": "nan"}, b"{}"), "model_overload", "HTTP 503", 2),
    ((401, {}, b'{"error": {"message": "bad key sk-123"}}'), "model", "HTTP 401", 1),
    ((404, {}, b"{}"), "model", "HTTP 404", 1),
    ((429, {"Retry-After": "9999"}, b"{}"), "model_overload", "HTTP 429", 1),
    ((200, {}, b"{broken"), "model", "not a chat completion", 2),
    ((200, {"Content-Type": "text/html"}, b"<html>"), "model", "not a chat completion", 2),
    ((200, {}, b'{"choices": []}'), "model", "not a chat completion", 2),
    ((200, {}, b'{"choices": null}'), "model", "not a chat completion", 2),
    ((200, {}, b" " * 1_100_000), "model", "more than 1 MiB", 2),
    (completion("Correct."), "parse", "neither Correct nor Incorrect but 'Correct.'", 2),
    (completion("correct"), "parse", "neither", 2),
    (completion(None), "parse", "neither", 2),
    (completion([{"type": "text", "text": 5}]), "parse", "neither", 2),
]


@pytest.mark.parametrize(("reply", "failure_class", "sentence", "tries"), FAILURES)
def test_no_verdict_is_a_classified_failure(
    endpoint: Endpoint, reply: Reply, failure_class: str, sentence: str, tries: int
) -> None:
    endpoint.answer = always(reply)

    with judge(endpoint) as graded, pytest.raises(JudgeFailure, match=sentence) as caught:
        graded("Paris", "Paris", ITEM)

    assert caught.value.failure_class == failure_class
    assert str(caught.value).startswith("judge grader: ")
    assert "sk-123" not in str(caught.value)
    assert len(endpoint.requests) == tries


def test_a_failure_says_who_was_asked_and_what_came(endpoint: Endpoint) -> None:
    endpoint.answer = always(OVERLOADED)
    with judge(endpoint) as graded, pytest.raises(JudgeFailure) as caught:
        graded("Paris", "Paris", ITEM)

    assert str(caught.value) == f"judge grader: HTTP 503 from {endpoint.url}/chat/completions"


def test_another_try_may_succeed(endpoint: Endpoint) -> None:
    replies = [OVERLOADED, completion("Maybe"), completion("Incorrect")]
    endpoint.answer = lambda _request, number: replies[number - 1]

    with judge(endpoint, tries=3) as graded:
        score = graded("Rome", "Paris", ITEM)

    assert (score.value, score.details["tries"]) == (0.0, 3)


ENDLESS = [
    Endless(),
    Endless(headers={"Content-Encoding": "gzip"}, start=b"\x1f\x8b\x08\x08" + bytes(6), piece=b"a"),
    Endless(headers={"Content-Encoding": "gzip"}, start=b"\x1f\x8b\x08" + bytes(7), piece=b"\0\0\0\xff\xff"),
    Endless(None, piece=b"HTTP/1.1 102 Processing\r\n\r\n"),
    Endless(None, start=b"HTTP/1.1 200 OK\r\nX: ", piece=b"x"),
]


@pytest.mark.parametrize(
    "reply", ENDLESS, ids=["blanks", "the name of a gzip", "empty blocks of a gzip", "interim answers", "a header"]
)
def test_an_endpoint_that_never_finishes_is_given_up(endpoint: Endpoint, reply: Endless) -> None:
    endpoint.answer = always(reply)

    with judge(endpoint, call_seconds=0.3, answer_seconds=30) as graded, pytest.raises(JudgeFailure) as caught:
        graded("Rome", "Paris", ITEM)

    assert caught.value.failure_class == "model_overload"
    assert "not complete within 0.3 s" in str(caught.value)


@pytest.mark.parametrize(("status", "failure_class"), [(401, "model"), (503, "model_overload")])
def test_a_refusal_that_never_ends_is_not_read(endpoint: Endpoint, status: int, failure_class: str) -> None:
    endpoint.answer = always(Endless(status))

    with judge(endpoint) as graded, pytest.raises(JudgeFailure, match=f"HTTP {status}") as caught:
        graded("Rome", "Paris", ITEM)

    assert caught.value.failure_class == failure_class


GZIP = {"Content-Encoding": "gzip"}
NESTED = b"[" * 200_000
_HEAD = b"HTTP/1.1 200 OK\r\n"

ODD: dict[str, tuple[Reply | bytes, str]] = {
    "no gzip": ((200, GZIP, b"plain"), "model"),
    "refusal that is no gzip": ((401, GZIP, b"plain"), "model"),
    "overload that is no gzip": ((503, GZIP, b"plain"), "model_overload"),
    "gzip cut short": ((200, GZIP, gzip.compress(completion("Correct")[2])[:40]), "model"),
    "gzip of far more": ((200, GZIP, gzip.compress(bytes(64 << 20))), "model"),
    "another encoding": ((200, {"Content-Encoding": "br"}, b"plain"), "model"),
    "encodings without end": ((200, {"Content-Encoding": "gzip, " * 5000}, b"plain"), "model"),
    "nested deeply": ((200, {}, NESTED), "model"),
    "refusal nested deeply": ((400, {}, NESTED), "model"),
    "overload nested deeply": ((500, {}, NESTED), "model_overload"),
    "a number too long": ((200, {}, b"1" * 100_000), "model"),
    "a number": ((200, {}, b"1"), "model"),
    "a text": ((200, {}, b'"choices"'), "model"),
    "choices that are text": ((200, {}, b'{"choices": "abc"}'), "model"),
    "choices that are an object": ((200, {}, b'{"choices": {"0": {}}}'), "model"),
    "a message that is text": ((200, {}, b'{"choices": [{"message": "Correct"}]}'), "model"),
    "content that is a list": (completion([{"text": "Correct"}]), "parse"),
    "content that is a number": (completion(1), "parse"),
    "half a character": (completion("\ud83d"), "parse"),
    "no UTF-8": ((200, {}, b"\xff\xfe\x80"), "model"),
    "UTF-16 with half a character": ((200, {}, b"\xff\xfe\x3d\xd8"), "model"),
    "redirect to itself": ((307, {"Location": "/v1/chat/completions"}, b""), "model"),
    "redirect to no address": ((307, {"Location": "http://[x/"}, b""), "model"),
    "redirect to a long name": ((307, {"Location": f"http://{'a' * 300}/"}, b""), "model"),
    "redirect to nowhere": ((302, {}, b""), "model"),
    "no content": ((204, {}, b""), "model"),
    "not modified": ((304, {}, b""), "model"),
    "an unknown status": ((999, {}, b""), "model_overload"),
    "odd cookies": ((200, {"Set-Cookie": "=;;\x01; expires=x; domain=[; max-age=9" + "9" * 5000}, b"{}"), "model"),
    "nothing": (b"", "model_overload"),
    "no HTTP": (b"SSH-2.0-OpenSSH_9.9\r\n\r\n", "model_overload"),
    "a status that is none": (b"HTTP/1.1 -1 OK\r\n\r\n", "model_overload"),
    "switched protocols": (b"HTTP/1.1 101 Switching Protocols\r\n\r\nx", "model_overload"),
    "a header that is none": (_HEAD + b"\xff\x00\r\n\r\n", "model_overload"),
    "a header without end": (_HEAD + b"X: " + b"x" * 300_000, "model_overload"),
    "a length that is none": (_HEAD + b"Content-Length: x\r\n\r\n", "model_overload"),
    "a body cut short": (_HEAD + b"Content-Length: 9\r\n\r\n{}", "model_overload"),
    "chunks that are none": (_HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", "model_overload"),
}


@pytest.mark.parametrize(("reply", "failure_class"), ODD.values(), ids=ODD.keys())
def test_an_odd_reply_is_a_classified_failure(endpoint: Endpoint, reply: Reply | bytes, failure_class: str) -> None:
    endpoint.answer = always(reply)

    with judge(endpoint, tries=1) as grader:
        (graded,) = grade_all(grader, [("Paris", "Paris", ITEM)])

    assert isinstance(graded, JudgeFailure)
    assert graded.failure_class == failure_class
    str(graded).encode()


@pytest.mark.parametrize("encoding", ["gzip", "X-GZIP"])
def test_a_verdict_may_be_compressed(endpoint: Endpoint, encoding: str) -> None:
    endpoint.answer = always((200, {"Content-Encoding": encoding}, gzip.compress(completion("Correct")[2])))

    with judge(endpoint) as graded:
        assert graded("Paris", "Paris", ITEM).value == 1.0


def test_half_a_character_is_judged_like_any_answer(endpoint: Endpoint) -> None:
    with judge(endpoint) as graded:
        assert graded("\ud83d", "Paris", Item("\ud83d", "\ud83d?", "Paris")).value == 1.0

    assert endpoint.requests[0][1]["messages"] == judge_messages("\ud83d?", "Paris", "\ud83d")


@pytest.mark.parametrize("address", ["http://[x/v1", f"http://{'a' * 300}/v1"])
def test_an_address_that_is_none_is_a_classified_failure(address: str) -> None:
    with Judge(JudgeConfig("grader", address, tries=1), api_key="k") as grader:
        (graded,) = grade_all(grader, [("Paris", "Paris", ITEM)])

    assert isinstance(graded, JudgeFailure)


@pytest.mark.parametrize("proxy", ["http://me:hunter2@[::1", "socks5://me:hunter2@h:1", "ftp://me:hunter2@h"])
def test_a_proxy_that_cannot_be_used_is_a_classified_failure(monkeypatch: pytest.MonkeyPatch, proxy: str) -> None:
    monkeypatch.setenv("HTTP_PROXY", proxy)

    with Judge(JudgeConfig("grader", "http://model.example/v1", tries=1), api_key="k") as grader:
        (graded,) = grade_all(grader, [("Paris", "Paris", ITEM)])

    assert isinstance(graded, JudgeFailure)
    assert "the proxy that HTTP_PROXY, " in str(graded)
    assert "hunter2" not in str(graded)


@pytest.mark.parametrize("clock", [-3600.0, 0.0, 3600.0])
def test_a_wait_until_a_date_is_measured_by_the_endpoints_clock(endpoint: Endpoint, clock: float) -> None:
    def busy_at_first(_request: dict[str, Any], number: int) -> Reply:
        now = time.time() + clock
        dates = {"Date": formatdate(now, usegmt=True), "Retry-After": formatdate(now + 1, usegmt=True)}
        return (503, dates, b"") if number == 1 else completion("Correct")

    endpoint.answer = busy_at_first
    began = time.monotonic()

    with judge(endpoint) as graded:
        assert graded("Paris", "Paris", ITEM).details["tries"] == 2

    assert 1 <= time.monotonic() - began < 60


def test_an_endpoint_that_says_nothing_is_given_up(endpoint: Endpoint) -> None:
    def silent(request: dict[str, Any], number: int) -> Reply:
        endpoint.finished.wait(30)
        return completion("Correct")

    endpoint.answer = silent

    with judge(endpoint, call_seconds=2, answer_seconds=30) as graded, pytest.raises(JudgeFailure) as caught:
        graded("Rome", "Paris", ITEM)

    assert (caught.value.failure_class, len(endpoint.requests)) == ("model_overload", 2)
    assert str(caught.value) == "judge grader: the reply was not complete within 2 s"


def test_the_deadline_of_an_answer_bounds_its_tries(endpoint: Endpoint) -> None:
    endpoint.answer = always(OVERLOADED)

    with judge(endpoint, tries=1_000_000, answer_seconds=0.3) as graded, pytest.raises(JudgeFailure) as caught:
        graded("Rome", "Paris", ITEM)

    assert caught.value.failure_class == "model_overload"


def test_nobody_listening() -> None:
    with (
        Judge(JudgeConfig("grader", "http://127.0.0.1:9/v1", tries=1), api_key="k") as graded,
        pytest.raises(JudgeFailure, match="no reply from the endpoint") as caught,
    ):
        graded("Rome", "Paris", ITEM)

    assert caught.value.failure_class == "model_overload"


def test_evaluation_shows_what_the_judge_could_not_grade(endpoint: Endpoint) -> None:
    def by_question(request: dict[str, Any], number: int) -> Reply:
        question = request["messages"][1]["content"].splitlines()[1]
        return completion({"q0": "Correct", "q1": "Incorrect"}.get(question, "I cannot say"))

    endpoint.answer = by_question
    items = [Item(str(i), f"q{i}", "a") for i in range(4)]
    results = [RolloutResult(str(i), answer="b") for i in range(3)]
    results.append(RolloutResult("3", status="failed", failure_class="max_turns", counted_as="agent"))

    with judge(endpoint) as grader:
        evaluation = evaluate(items, results, metric="llm_judgement", judge=grader)

    summary = evaluation.summary
    assert [row.score for row in evaluation.rows] == [1.0, 0.0, None, 0.0]
    assert evaluation.rows[2].details["failure_class"] == "parse"
    assert summary.unscored["parse"].count == 1
    assert (summary.coverage, summary.average_score, summary.bounds) == (0.75, 0.25, (0.25, 0.5))
    assert summary.valid_mean == pytest.approx(1 / 3)


def test_several_are_graded_at_a_time_and_stay_in_order(endpoint: Endpoint) -> None:
    meeting = threading.Barrier(4, timeout=30)

    def together(request: dict[str, Any], number: int) -> Reply:
        meeting.wait()
        odd = int(request["messages"][1]["content"].splitlines()[1]) % 2
        return completion("Correct" if odd else "Incorrect")

    endpoint.answer = together

    with judge(endpoint, concurrency=4) as grader:
        graded = grade_all(grader, [("p", "a", Item(str(i), str(i))) for i in range(20)])

    assert [one.value for one in graded if not isinstance(one, JudgeFailure)] == [float(i % 2) for i in range(20)]


def test_a_dead_endpoint_is_not_asked_for_every_answer(endpoint: Endpoint) -> None:
    endpoint.answer = always((401, {}, b"{}"))

    with judge(endpoint, concurrency=2) as grader:
        graded = grade_all(grader, [("p", "a", Item(str(i), "q")) for i in range(200)])

    assert len(endpoint.requests) < 20
    assert all(isinstance(one, JudgeFailure) and one.failure_class == "model" for one in graded)
    assert "not asked any more, since judge grader: HTTP 401" in str(graded[-1])


def test_answers_that_cannot_be_read_do_not_stop_the_rest(endpoint: Endpoint) -> None:
    endpoint.answer = always(completion("Maybe"))

    with judge(endpoint, tries=1) as grader:
        grade_all(grader, [("p", "a", Item(str(i), "q")) for i in range(30)])

    assert len(endpoint.requests) == 30


def test_an_answer_is_paid_once(endpoint: Endpoint, tmp_path: Path) -> None:
    replies = [completion("Correct"), completion("Maybe"), completion("Incorrect")]
    endpoint.answer = lambda _request, number: replies[number - 1]
    asked = [(answer, "Paris", ITEM) for answer in ("Paris", "Rome", "Paris")]

    with judge(endpoint, concurrency=1, answers=JudgedAnswers(tmp_path / "judged.jsonl")) as grader:
        before = grade_all(grader, asked)
    with judge(endpoint, answers=JudgedAnswers(tmp_path / "judged.jsonl")) as another:
        after = grade_all(another, asked)
        single = another("Rome", "Paris", ITEM)

    assert len(endpoint.requests) == 3
    assert after == before
    assert single.details == {"verdict": "Incorrect", "judge": "grader", "tries": 2}


def test_only_verdicts_are_kept(endpoint: Endpoint, tmp_path: Path) -> None:
    endpoint.answer = always(completion("Maybe"))
    with judge(endpoint, answers=JudgedAnswers(tmp_path / "judged.jsonl")) as grader, pytest.raises(JudgeFailure):
        grader("Paris", "Paris", ITEM)

    endpoint.answer = always(completion("Correct"))
    with judge(endpoint, answers=JudgedAnswers(tmp_path / "judged.jsonl")) as grader:
        assert grader("Paris", "Paris", ITEM).value == 1.0


def test_a_slow_answer_does_not_have_the_whole_run_held(endpoint: Endpoint) -> None:
    """The first answer's grade comes last; meanwhile others are graded, but not without end."""
    asked_ahead = threading.Event()
    read = []

    def outcomes() -> Iterator[Outcome]:
        for number in range(400):
            read.append(number)
            if number == 120:
                asked_ahead.set()
            yield Outcome(Item(str(number), f"q{number}", "a"), [RolloutResult(str(number), answer="a")])

    def first_last(request: dict[str, Any], number: int) -> Reply:
        if request["messages"][1]["content"].startswith("Question:\nq0\n"):
            assert asked_ahead.wait(30)
        return completion("Correct")

    endpoint.answer = first_last

    with judge(endpoint) as grader, closing(score_each(outcomes(), metric="llm_judgement", judge=grader)) as scored:
        _, first = next(scored)
        assert len(read) < 200
        rows = [first, *(row for _, row in scored)]

    assert [row.item_id for row in rows] == [str(number) for number in range(400)]
    assert {row.score for row in rows} == {1.0}


def test_what_is_kept_is_found_behind_a_dead_endpoint(endpoint: Endpoint, tmp_path: Path) -> None:
    known = [("Paris", "Paris", Item(str(i), f"known {i}")) for i in range(40)]
    with judge(endpoint, answers=JudgedAnswers(tmp_path / "judged.jsonl")) as grader:
        grade_all(grader, known)
    endpoint.requests.clear()
    endpoint.answer = always((401, {}, b"{}"))
    mixed = [one for i in range(40) for one in (known[i], ("Paris", "Paris", Item(str(i), f"new {i}")))]

    with judge(endpoint, concurrency=1, answers=JudgedAnswers(tmp_path / "judged.jsonl")) as grader:
        graded = grade_all(grader, mixed)

    assert len(endpoint.requests) == 10, "known answers between them do not make an endpoint alive"
    assert [isinstance(one, JudgeFailure) for one in graded] == [False, True] * 40


def test_grading_ends_before_the_next_request_when_it_is_told_to(endpoint: Endpoint) -> None:
    def refuse_after_three() -> None:
        if len(endpoint.requests) >= 3:
            raise InterruptedError

    with judge(endpoint, concurrency=1, before_asking=refuse_after_three) as grader, pytest.raises(InterruptedError):
        grade_all(grader, [("p", "a", Item(str(i), "q")) for i in range(20)])

    assert len(endpoint.requests) == 3


VARIABLES = ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_API_BASE", "OPENAI_API_URL", "JUDGE_MODEL")


def test_key_and_address_come_from_the_environment(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(BenchmarkError, match="set OPENAI_API_KEY"):
        evaluate([ITEM], [RolloutResult(ITEM.id)], metric="llm_judgement")

    monkeypatch.setenv("OPENAI_API_BASE", endpoint.url)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("JUDGE_MODEL", "small-grader")
    evaluation = evaluate([ITEM], [RolloutResult(ITEM.id)], metric="llm_judgement")

    headers, request = endpoint.requests[0]
    assert (headers["Authorization"], request["model"]) == ("Bearer sk-secret", "small-grader")
    assert evaluation.summary.average_score == 1.0
    assert "sk-secret" not in repr(evaluation)


def test_the_connections_of_a_judge_from_the_environment_are_closed(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENAI_API_BASE", endpoint.url)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")

    with Grading() as grading:
        assert isinstance(grading.submit("Paris", "Paris", ITEM).result(), Score)
        made = grading._created_judge
        assert made is not None
        assert made._client is not None
    assert made._client is None


@pytest.mark.parametrize("key", [" sk-secret", "sk-secret\n", "sk-secret\r", "\tsk-secret\r\n"])
def test_blanks_around_the_key_are_not_sent(endpoint: Endpoint, key: str) -> None:
    with Judge(JudgeConfig("grader", endpoint.url, tries=1), api_key=key) as graded:
        assert graded("Paris", "Paris", ITEM).value == 1.0

    assert endpoint.requests[0][0]["Authorization"] == "Bearer sk-secret"


def test_a_blank_key_is_none(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "\n")
    with Judge(JudgeConfig("grader", endpoint.url, tries=1), api_key=" \n") as graded:
        assert graded("Paris", "Paris", ITEM).value == 1.0

    assert "sk" not in endpoint.requests[0][0]["Authorization"]


@pytest.mark.parametrize("key", ["sk-sec\nret", "sk-sec\rret", "sk-sec\u201dret", "sk-sec\0ret"])
def test_a_key_that_cannot_be_sent_is_refused_without_being_shown(endpoint: Endpoint, key: str) -> None:
    with pytest.raises(BenchmarkError, match="OPENAI_API_KEY: contains characters") as caught:
        Judge(JudgeConfig("grader", endpoint.url), api_key=key)

    assert "sk-sec" not in str(caught.value)


def test_what_an_endpoints_url_says_of_its_user_is_not_shown(endpoint: Endpoint) -> None:
    endpoint.answer = always((400, {}, b"{}"))
    with Judge(JudgeConfig("grader", endpoint.url.replace("//", "//me:hidden@")), api_key="test") as grader:
        [score] = grade_all(grader, [("Paris", "Paris", ITEM)])

    assert f"HTTP 400 from {endpoint.url}/chat/completions" in str(score)


SECRET = "sk-Very-secret"
ECHOES: list[Reply | bytes] = [
    completion(SECRET),
    completion("x" * 90 + SECRET),
    (200, {}, SECRET.encode()),
    (200, {}, b"x" * 90 + SECRET.encode()),
    (200, {"Content-Encoding": SECRET}, b""),
    (200, {"Content-Encoding": "x" * 40 + SECRET}, b""),
    f"{SECRET} 200 OK\r\n\r\n".encode(),
    f"HTTP/1.1 200 OK\r\nContent-Length: {SECRET}\r\n\r\n".encode(),
]


@pytest.mark.parametrize("reply", ECHOES)
def test_a_key_that_the_endpoint_sends_back_is_not_shown(endpoint: Endpoint, reply: Reply | bytes) -> None:
    endpoint.answer = always(reply)

    with (
        Judge(JudgeConfig("grader", endpoint.url, tries=1), api_key=SECRET) as graded,
        pytest.raises(JudgeFailure) as caught,
    ):
        graded("Paris", "Paris", ITEM)

    for part in ("sk-", "very", "secret"):
        assert part not in str(caught.value).lower()


@pytest.mark.parametrize(
    "url", ["http://10.0.0.256:8000/v1", "http://☃/v1", "localhost:8000", f"http://h/{'a' * 70_000}"]
)
def test_an_address_that_is_none_is_told_before_anything_is_asked(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    sentence = r"^the judge's endpoint must look like http://host:port/v1$"
    with pytest.raises(BenchmarkError, match=sentence):
        Judge(JudgeConfig("judge", base_url=url))
    monkeypatch.setenv("OPENAI_BASE_URL", url)
    with pytest.raises(BenchmarkError, match=sentence):
        evaluate([ITEM], [RolloutResult(ITEM.id)], metric="llm_judgement")
