"""A worker's child that is told to stop while it has a rollout: what it gives back, and what counts."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from billiard import common

from rollout_tasks.execution.claim import Delivery
from rollout_tasks.execution.rollout import run_rollout
from rollout_tasks.execution.shutdown import ShutdownSignals, WorkerShutdown, ends_child
from rollout_tasks.settings import settings
from tests.conftest import free_port
from tests.unit.execution import watched
from tests.unit.execution.conftest import ROLLOUT, RUN, Bench

KEY = f"{{run:{RUN}}}"
DELIVERED = Delivery("task-1", "tag-1", "worker@here")
QUEUE = "rollout.watched"


@pytest.fixture(autouse=True)
def child(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process ends at SIGQUIT as a worker's child does: by SystemExit, once."""
    monkeypatch.setattr(common, "_should_have_exited", [False])
    before = {number: signal.signal(number, ends_child) for number in (signal.SIGQUIT, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def stop(_world: object = None) -> None:
    os.kill(os.getpid(), signal.SIGQUIT)


def hang_up(_world: object = None) -> None:
    """As when the terminal of a worker is closed."""
    os.kill(os.getpid(), signal.SIGHUP)


def deliver(bench: Bench) -> None:
    """The rollout's message is this worker's."""
    properties = {"delivery_info": {"exchange": "", "routing_key": QUEUE}, "delivery_tag": "tag-1", "priority": 0}
    message = {"body": "", "content-encoding": "utf-8", "headers": {}, "properties": properties}
    bench.client.hset("unacked", "tag-1", json.dumps([message, "", QUEUE]))
    bench.client.zadd("unacked_index", {"tag-1": 1.0})


def run_until_it_ends(bench: Bench) -> None:
    deliver(bench)
    with pytest.raises(SystemExit):
        run_rollout(RUN, ROLLOUT, DELIVERED)


def check_given_back(bench: Bench) -> None:
    assert bench.client.hgetall(f"{KEY}:holders") == {}
    assert bench.client.zrange(f"{KEY}:alive", 0, -1) == []
    assert bench.client.hkeys("unacked") == []
    assert bench.client.llen(QUEUE) == 1


@pytest.mark.parametrize("end", [stop, hang_up], ids=lambda end: end.__name__)
@pytest.mark.parametrize("at", ["reset", "execute", "evaluate"])
def test_a_running_rollout_is_given_back_and_its_attempt_does_not_count(
    submit: Any, calls: list[tuple[str, int]], at: str, end: Any
) -> None:
    bench = submit({})
    watched.HOOKS[at] = end

    run_until_it_ends(bench)

    check_given_back(bench)
    assert bench.client.hgetall(f"{KEY}:attempts") == {ROLLOUT: "0"}
    assert list(bench.store.verdicts(RUN)) == []
    assert bench.folder.finished(ROLLOUT) is None
    assert calls[-1] == ("close", 1)
    assert bench.events() == ["granted", "released"]


def test_a_rollout_that_would_be_tried_again_is_left_to_another_worker(
    submit: Any, calls: list[tuple[str, int]]
) -> None:
    bench = submit({"at": "execute", "fails_as": "env_step", "times": 9})
    watched.HOOKS["close"] = stop

    run_until_it_ends(bench)

    check_given_back(bench)
    assert calls == [("prepare", 0), ("init", 1), ("reset", 1), ("execute", 1), ("close", 1)]
    assert bench.client.hgetall(f"{KEY}:attempts") == {ROLLOUT: "0"}
    assert list(bench.store.verdicts(RUN)) == []


def test_a_rollout_that_is_over_when_its_worker_stops_is_committed_and_its_message_left_to_its_chord(
    submit: Any,
) -> None:
    bench = submit({})
    watched.HOOKS["close"] = stop

    run_until_it_ends(bench)

    check_given_back(bench)
    assert bench.verdict().status == "completed"


def test_where_redis_cannot_be_reached_the_claim_is_left_to_fall_silent(
    submit: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bench = submit({"needs_vm": False})

    def stop_without_redis(_world: object) -> None:
        monkeypatch.setenv("ROLLOUT_REDIS_URL", f"redis://127.0.0.1:{free_port()}/0")
        settings.cache_clear()
        stop()

    watched.HOOKS["execute"] = stop_without_redis

    run_until_it_ends(bench)

    assert bench.client.hlen(f"{KEY}:holders") == 1
    assert "Redis does not take its claim back" in caplog.text


def test_whoever_is_no_child_keeps_its_own_signals() -> None:
    signal.signal(signal.SIGQUIT, signal.SIG_IGN)
    with ShutdownSignals() as stopping:
        assert signal.getsignal(signal.SIGQUIT) is signal.SIG_IGN
        stop()
    assert not stopping.requested


def test_nothing_is_begun_once_the_child_was_told_to_stop() -> None:
    with ShutdownSignals() as stopping:
        with pytest.raises(WorkerShutdown):
            stop()
        stop()  # once is enough
        with pytest.raises(WorkerShutdown):
            stopping.raise_if_requested()
    assert stopping.requested
