"""The parts by which a worker's child is told to stop, and puts its message back."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest
from billiard import common

from rollout_tasks.app import app
from rollout_tasks.execution import shutdown
from rollout_tasks.execution.claim import Delivery
from rollout_tasks.execution.rollout import NOT_HANDED_BACK, Execution, run_rollout
from rollout_tasks.execution.shutdown import (
    ShutdownSignals,
    WorkerShutdown,
    ends_child,
    set_worker_stops,
    worker_stops,
)
from rollout_tasks.interruption import Interruption
from rollout_tasks.redis_client import celery_retry_options, let_celery_not_wait, let_celery_wait
from tests.conftest import free_port
from tests.unit.execution import watched
from tests.unit.execution.conftest import DELIVERY, ROLLOUT, RUN, Bench

DELIVERED = Delivery("task-1", "tag-1", "worker@here")
ENDING = (signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP)


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every signal that ends a worker's child ends this process as it does such a child."""
    monkeypatch.setattr(common, "_should_have_exited", [False])
    before = {number: signal.signal(number, ends_child) for number in ENDING}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def put_back(bench: Bench, delivery: Delivery = DELIVERED) -> bool:
    return Execution(bench.store, RUN, ROLLOUT, delivery).put_message_back()


@pytest.mark.usefixtures("child")
def test_the_signals_that_end_a_child_are_its_own_again_afterwards() -> None:
    with ShutdownSignals():
        assert not [number for number in ENDING if signal.getsignal(number) is ends_child]

    assert [number for number in ENDING if signal.getsignal(number) is ends_child] == list(ENDING)


@pytest.mark.usefixtures("child")
def test_a_signal_interrupts_the_episode_that_runs_and_no_earlier_one() -> None:
    earlier, episode = Interruption(), Interruption()
    with ShutdownSignals() as stopping:
        with stopping.interrupting(earlier):
            pass
        with stopping.interrupting(episode):
            os.kill(os.getpid(), signal.SIGTERM)
            assert episode.requested
    assert not earlier.requested

    with ShutdownSignals() as stopping:
        with stopping.interrupting(earlier):
            pass
        with pytest.raises(WorkerShutdown):
            os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(WorkerShutdown), stopping.interrupting(Interruption()):
            raise AssertionError("another episode was begun")
    assert not earlier.requested


def test_a_child_sees_that_its_worker_stops_and_that_it_does_not() -> None:
    set_worker_stops(False)
    assert not worker_stops()
    deadline = time.monotonic() + 30
    child = os.fork()
    if child == 0:
        while not worker_stops() and time.monotonic() < deadline:
            time.sleep(0.01)
        os._exit(0 if worker_stops() else 1)
    set_worker_stops(True)
    assert worker_stops()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    set_worker_stops(False)
    assert status == 0
    assert not worker_stops()


def test_a_message_whose_broker_is_away_is_soon_left_to_come_back_by_itself(
    submit: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bench = submit({})
    monkeypatch.setitem(app.conf, "broker_url", f"redis://127.0.0.1:{free_port()}/0")
    pauses: list[float] = []
    monkeypatch.setattr("kombu.utils.functional.sleep", pauses.append)
    let_celery_wait()
    try:
        assert not put_back(bench)
        assert celery_retry_options() == {}, "it would wait for minutes"
    finally:
        let_celery_not_wait()

    assert pauses == pytest.approx([0.2, 0.4, 0.6])
    assert [line for line in caplog.messages if line.startswith(f"{ROLLOUT}: its message comes back later: ")]


def test_a_message_that_its_broker_does_not_give_is_left_to_come_back_by_itself(
    submit: Any, caplog: pytest.LogCaptureFixture
) -> None:
    bench = submit({})
    bench.client.set("unacked", "no hash")

    assert not put_back(bench)

    assert f"{ROLLOUT}: its message comes back later: " in caplog.text
    assert "WRONGTYPE" in caplog.text


def test_a_message_is_put_back_once_and_only_one_that_was_delivered(submit: Any) -> None:
    bench = submit({})
    properties = {"delivery_info": {"exchange": "", "routing_key": "q"}, "delivery_tag": "tag-1", "priority": 0}
    message = {"body": "", "content-encoding": "utf-8", "headers": {}, "properties": properties}
    bench.client.hset("unacked", "tag-1", json.dumps([message, "", "q"]))
    bench.client.zadd("unacked_index", {"tag-1": 1.0})

    assert not put_back(bench, DELIVERY)
    assert bench.client.hkeys("unacked") == ["tag-1"]
    assert put_back(bench)
    assert (bench.client.hkeys("unacked"), bench.client.llen("q")) == ([], 1)


def test_how_an_execution_ended_is_told_with_its_failure(submit: Any) -> None:
    bench = submit({"at": "execute", "fails_as": "parse", "needs_vm": False})

    assert run_rollout(RUN, ROLLOUT, DELIVERY) == "failed: parse"

    assert bench.verdict().failure_class == "parse"
    assert run_rollout(RUN, ROLLOUT, DELIVERY) == "committed"


def test_a_rollout_whose_message_cannot_be_put_back_is_told_as_such(
    submit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = submit({"needs_vm": False})
    ended: list[int] = []
    monkeypatch.setattr(shutdown, "ends_child", lambda number, _frame: ended.append(number))
    before = signal.signal(signal.SIGQUIT, shutdown.ends_child)
    watched.HOOKS["execute"] = lambda _world: os.kill(os.getpid(), signal.SIGQUIT)
    try:
        assert run_rollout(RUN, ROLLOUT, DELIVERY) == NOT_HANDED_BACK
    finally:
        signal.signal(signal.SIGQUIT, before)

    assert ended == [signal.SIGQUIT]
    assert bench.client.hgetall(f"{{run:{RUN}}}:holders") == {}
