"""A rollout whose model's endpoint is out of service: it waits without an attempt, and none is counted for the outage."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from billiard import common

from rollout_tasks.execution import heartbeat
from rollout_tasks.execution.claim import Delivery, RolloutClaim
from rollout_tasks.execution.rollout import HANDED_BACK, run_rollout
from rollout_tasks.execution.shutdown import ends_child, set_worker_stops
from rollout_tasks.models import outage
from rollout_tasks.models.outage import wait_while_out
from rollout_tasks.settings import settings
from tests.unit.execution import watched
from tests.unit.execution.conftest import DELIVERY, ROLLOUT, RUN, Bench

KEY = f"{{run:{RUN}}}"
QUEUE = "rollout.watched"
DELIVERED = Delivery("task-1", "tag-1", "worker@here")


class Endpoint(ThreadingHTTPServer):
    """Out of service till it was asked after twice: by then the rollout waits, and `waiting` is called; or for long."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = 503
        self.asked = 0
        self.calls = 0
        self.for_long = False
        self.waiting: Callable[[], object] = lambda: None
        self.keys: list[str | None] = []
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def model(self) -> dict[str, object]:
        return {"name": "m", "base_url": f"http://127.0.0.1:{self.server_port}/v1", "max_retries": 1}


class _Handler(BaseHTTPRequestHandler):
    server: Endpoint

    def do_GET(self) -> None:
        self.server.asked += 1
        self.server.keys.append(self.headers["Authorization"])
        if self.server.asked == 2:
            self.server.waiting()
        if self.server.asked == (50 if self.server.for_long else 2):
            self.server.status = 200
        self._answer({})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.calls += 1
        message = {"role": "assistant", "content": "4"}
        choices = [{"index": 0, "finish_reason": "stop", "message": message}]
        self._answer({"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": choices})

    def _answer(self, reply: dict[str, object]) -> None:
        body = json.dumps(reply).encode()
        self.send_response(self.server.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Not to the test's output."""


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    monkeypatch.setattr(outage, "ASK_EVERY_SECONDS", 0.1)
    monkeypatch.setattr(outage, "_LOOK_SECONDS", 0.05)
    server = Endpoint()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def stops() -> Iterator[Callable[[], None]]:
    """Says that the worker stops, as it does where it lets its children finish."""
    yield lambda: set_worker_stops(True)
    set_worker_stops(False)


def counted(bench: Bench) -> str:
    return str(bench.client.hget(f"{KEY}:attempts", ROLLOUT))


def lose_first_attempts(count: int) -> None:
    """So many attempts fail before the endpoint is called for the first time."""

    def lose(world: watched.WatchedEnvironment) -> None:
        if world.context.attempt <= count:
            raise RuntimeError("it broke")

    watched.HOOKS["init"] = lose


def note_outage(bench: Bench, endpoint: Endpoint) -> None:
    """Somebody else has noticed that the endpoint is out of service."""
    url = f"http://127.0.0.1:{endpoint.server_port}/v1"
    wait_while_out(bench.client, url, suspected=True, wanted=lambda: endpoint.asked < 1)
    assert endpoint.asked == 1


def deliver(bench: Bench) -> None:
    properties = {"delivery_info": {"exchange": "", "routing_key": QUEUE}, "delivery_tag": "tag-1", "priority": 0}
    message = {"body": "", "content-encoding": "utf-8", "headers": {}, "properties": properties}
    bench.client.hset("unacked", "tag-1", json.dumps([message, "", QUEUE]))
    bench.client.zadd("unacked_index", {"tag-1": 1.0})


@pytest.mark.parametrize("lost", [0, 1])
def test_an_attempt_that_failed_in_an_outage_is_begun_anew_and_not_counted(
    submit: Any, endpoint: Endpoint, caplog: pytest.LogCaptureFixture, lost: int
) -> None:
    """Of as many attempts as there may be, none is left for what the endpoint has spoilt."""
    bench = submit({"needs_vm": False}, agent="answering", model=endpoint.model, max_attempts=1 + lost)
    lose_first_attempts(lost)
    seen: list[str] = []
    watched.HOOKS["reset"] = lambda _world: seen.append(counted(bench))
    endpoint.waiting = lambda: seen.append(f"waits with {counted(bench)}")

    assert bench.execute() == "completed"

    attempt = str(lost + 1)
    assert seen == [attempt, f"waits with {lost}", attempt]
    assert [ended.failure_class for ended in bench.folder.attempts(ROLLOUT)][lost:] == ["model_overload", None]
    assert (bench.verdict().answer, bench.verdict().attempt) == ("4", lost + 2)
    assert endpoint.calls == 2
    place = f"run {RUN}: the model endpoint {endpoint.model['base_url']}"
    said = [line for line in caplog.messages if line.startswith(place)]
    assert [line.removeprefix(place).split("(")[0].strip() for line in said] == ["answers HTTP 503", "answers again"]


def test_no_attempt_is_begun_while_the_endpoint_is_known_to_be_out(
    submit: Any, endpoint: Endpoint, calls: list[tuple[str, int]]
) -> None:
    bench = submit({"needs_vm": False}, agent="answering", model=endpoint.model, max_attempts=1)
    note_outage(bench, endpoint)
    seen: list[object] = []
    endpoint.waiting = lambda: seen.append((counted(bench), list(calls)))
    watched.HOOKS["reset"] = lambda _world: seen.append(counted(bench))

    assert bench.execute() == "completed"

    assert seen == [("0", []), "1"]
    assert endpoint.calls == 1
    assert [ended.attempt for ended in bench.folder.attempts(ROLLOUT)] == [1]


@pytest.mark.parametrize("keys", ["", "grounder:sk-grounder"])
def test_an_outage_of_a_further_model_is_waited_for_as_well(
    submit: Any, endpoint: Endpoint, keys: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-own")
    monkeypatch.setenv("ROLLOUT_ROLE_KEYS", keys)
    settings.cache_clear()
    own = Endpoint()
    own.status = 200
    roles = [{"role": "grounder", "model": endpoint.model}]
    try:
        bench = submit({"needs_vm": False}, agent="answering", model=own.model, model_roles=roles, max_attempts=1)
        note_outage(bench, endpoint)
        endpoint.keys.clear()
        seen: list[object] = []
        endpoint.waiting = lambda: seen.append((counted(bench), own.calls))

        assert bench.execute() == "completed"
    finally:
        own.shutdown()
        own.server_close()

    assert seen == [("0", 0)]
    assert set(endpoint.keys) == {"Bearer sk-grounder" if keys else None}
    assert (own.calls, endpoint.calls) == (1, 0)
    assert [ended.attempt for ended in bench.folder.attempts(ROLLOUT)] == [1]


@pytest.mark.parametrize("known", [True, False], ids=["before its attempt", "after its attempt"])
def test_a_run_cancelled_in_an_outage_is_not_waited_for(
    submit: Any, endpoint: Endpoint, calls: list[tuple[str, int]], known: bool
) -> None:
    bench = submit({"needs_vm": False}, agent="answering", model=endpoint.model)
    if known:
        note_outage(bench, endpoint)

    def cancel() -> None:
        bench.store.cancel(RUN)
        beats = heartbeat.heartbeat(settings().beat_seconds)
        assert beats.pulse is not None
        beats.beat(beats.pulse)

    endpoint.waiting, endpoint.for_long = cancel, True

    assert bench.execute() == "cancelled"

    verdict = bench.verdict()
    assert (verdict.status, verdict.failure_class, verdict.error) == ("cancelled", "cancelled", "the run was cancelled")
    assert verdict.attempt == 1
    assert bench.folder.settled(ROLLOUT) == verdict
    assert [name for name, _ in calls].count("reset") == int(not known)
    assert endpoint.calls == int(not known)


def test_a_worker_that_stops_hands_a_waiting_rollout_back_and_nothing_of_it_counts(
    submit: Any, endpoint: Endpoint, stops: Callable[[], None]
) -> None:
    bench = submit({"needs_vm": False}, agent="answering", model=endpoint.model, max_attempts=3)
    lose_first_attempts(1)
    deliver(bench)
    endpoint.waiting, endpoint.for_long = stops, True

    assert run_rollout(RUN, ROLLOUT, DELIVERED) == HANDED_BACK

    assert counted(bench) == "1", "the first attempt counts, the second does not, and is not taken off twice"
    assert bench.client.hgetall(f"{KEY}:holders") == {}
    assert (bench.client.hkeys("unacked"), bench.client.llen(QUEUE)) == ([], 1)
    assert list(bench.store.verdicts(RUN)) == []


def test_an_attempt_after_an_outage_is_given_back_like_any_other(
    submit: Any, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(common, "_should_have_exited", [False])
    before = signal.signal(signal.SIGQUIT, ends_child)
    bench = submit({"needs_vm": False}, agent="answering", model=endpoint.model, max_attempts=3)
    deliver(bench)

    def stop(world: watched.WatchedEnvironment) -> None:
        if world.context.attempt == 2:
            assert counted(bench) == "1"
            os.kill(os.getpid(), signal.SIGQUIT)

    watched.HOOKS["reset"] = stop
    try:
        with pytest.raises(SystemExit):
            run_rollout(RUN, ROLLOUT, DELIVERED)
    finally:
        signal.signal(signal.SIGQUIT, before)

    assert counted(bench) == "0"
    assert bench.client.llen(QUEUE) == 1


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_claim_without_an_attempt_takes_none_away_when_it_is_handed_back(submit: Any, cancelled: bool) -> None:
    bench = submit({}, max_attempts=1)
    ended = RolloutClaim(bench.store, RUN, ROLLOUT, DELIVERY)
    assert ended.take().status == "claimed"
    bench.client.zadd(f"{KEY}:alive", {ROLLOUT: 0})  # its process died
    if cancelled:
        bench.client.hset(KEY, "state", "cancelling")

    claim = RolloutClaim(bench.store, RUN, ROLLOUT, DELIVERY)
    assert claim.take().status == ("cancelled" if cancelled else "exhausted")
    claim.hand_back()

    assert counted(bench) == "1"
    assert RolloutClaim(bench.store, RUN, ROLLOUT, DELIVERY).take().status == (
        "cancelled" if cancelled else "exhausted"
    )


@pytest.mark.parametrize("attempt", [1, 2])
def test_an_attempt_is_counted_again_once_however_often_that_is_asked_for(submit: Any, attempt: int) -> None:
    """As after a reply that was lost."""
    bench = submit({}, max_attempts=3)
    claim = RolloutClaim(bench.store, RUN, ROLLOUT, DELIVERY)
    claimed = claim.take()
    if attempt == 2:
        claimed = claim.next_attempt(1)
    assert (claimed.attempt, claim.counted, counted(bench)) == (attempt, True, str(attempt))

    claim.uncount(claimed.attempt)
    assert (claim.counted, counted(bench)) == (False, str(attempt - 1))

    for _ in range(2):
        again = claim.count_again(claimed)
        assert (again.status, again.attempt, claim.counted) == ("claimed", attempt, True)
    assert counted(bench) == str(attempt)
