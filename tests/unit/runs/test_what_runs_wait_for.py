"""What is said of rollouts that killed workers hold, and of pools none of whose VMs is lent again by itself."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest
import redis

import celeryconfig
from rollout_tasks.runs import waits
from rollout_tasks.runs.states import Progress
from rollout_tasks.runs.store import RunStore
from rollout_tasks.settings import settings
from vm_pool.states import VM, Endpoint, PoolStatus, VMState

RUN = "night-1"
ALIVE = f"{{run:{RUN}}}:alive"
PROGRESS = Progress(
    run_id=RUN,
    state="running",
    total=3,
    pending=3,
    committed=0,
    running=0,
    completed=0,
    failed=0,
    cancelled=0,
    failures={},
    score_sum=0.0,
    created=0.0,
    queues=("rollout.light",),
)
FREE = VM(
    vm_id="vm-0",
    state=VMState.FREE,
    host="host",
    host_heard=True,
    endpoint=Endpoint("127.0.0.1"),
    needs_reset=False,
    fence=1,
    since=0.0,
    drained=False,
    grants=0,
    resets=0,
    failures=0,
    error="",
    retry_at=None,
    holder="",
    deadline=None,
)
DRAINED = "1 drained (`rollouts pool undrain all` puts them back)"
QUARANTINED = "1 quarantined (`rollouts pool reset VM` boots one anew)"
SILENT = "1 silent (start their `rollouts vm-host` again)"


@pytest.fixture
def store(redis_url: str) -> RunStore:
    return RunStore(redis.Redis.from_url(redis_url, decode_responses=True), silent_seconds=15)


def now(store: RunStore) -> float:
    seconds, microseconds = store.client.time()  # type: ignore[misc]
    return float(seconds) + float(microseconds) / 1e6


def heard(store: RunStore, *seconds_ago: float) -> float:
    """Holders were last heard so long ago; returns the server's time."""
    at = now(store)
    store.client.delete(ALIVE)
    store.client.zadd(ALIVE, {f"{number}#0": at - ago for number, ago in enumerate(seconds_ago)})
    return at


def test_what_the_silent_hold_goes_on_when_the_last_of_their_messages_is_put_back(store: RunStore) -> None:
    put_back: Any = celeryconfig.broker_transport_options
    returned = settings().visibility_timeout + put_back["unacked_restore_interval"]
    at = heard(store, 30.0, 60.0)

    said = waits.held_by_the_silent(store, PROGRESS)

    took = now(store) - at
    begins, _, rest = said.partition(" in ")
    assert begins == "2 rollouts are held by a worker that has gone silent; another worker gets them"
    seconds, _, ends = rest.partition(" ")
    assert ends == "s at the latest"
    assert returned - 30.5 - took <= int(seconds) <= returned - 29.5


def test_what_is_held_goes_on_within_a_second_at_the_soonest(store: RunStore) -> None:
    returned = settings().visibility_timeout + waits._RESTORE_SECONDS
    deadline = time.monotonic() + 20
    said = ""
    while not said:  # a machine that is busy may take longer than is left
        assert time.monotonic() < deadline
        heard(store, returned - 0.4)
        said = waits.held_by_the_silent(store, PROGRESS, served=False)

    assert said == "1 rollout is held by a worker that has gone silent, for 1 s more at most"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({}, True),
        ({"state": "submitting"}, True),
        ({"state": "draining"}, False),
        ({"state": "cancelling"}, False),
        ({"state": "half_submitted"}, False),
        ({"pending": 0}, False),
        ({"running": 1}, False),
    ],
    ids=lambda change: str(change),
)
def test_what_is_held_is_told_where_nothing_goes_on_and_something_will(
    store: RunStore, change: dict[str, Any], told: bool
) -> None:
    heard(store, 30.0)

    assert bool(waits.held_by_the_silent(store, replace(PROGRESS, **change))) is told


@pytest.mark.parametrize(
    ("vms", "said"),
    [
        ([], ""),
        ([FREE], ""),
        ([replace(FREE, drained=True)], DRAINED),
        ([replace(FREE, state=VMState.STOPPED)], DRAINED),
        ([replace(FREE, state=VMState.STOPPED, retry_at=5.0)], DRAINED),
        ([replace(FREE, drained=True, state=VMState.ERROR)], DRAINED),
        ([replace(FREE, state=VMState.ERROR)], QUARANTINED),
        ([replace(FREE, state=VMState.ERROR, host_heard=False)], QUARANTINED),
        ([replace(FREE, state=VMState.ERROR, retry_at=5.0)], ""),
        ([replace(FREE, state=VMState.ERROR, retry_at=5.0, host_heard=False)], SILENT),
        ([replace(FREE, host_heard=False)], SILENT),
        ([replace(FREE, host_heard=False), FREE], ""),
        (
            [replace(FREE, host_heard=False), replace(FREE, state=VMState.ERROR), replace(FREE, drained=True)],
            f"{DRAINED}, {QUARANTINED}, {SILENT}",
        ),
    ],
)
def test_vms_that_come_back_only_with_an_operator_are_told_with_what_to_do(vms: list[VM], said: str) -> None:
    status = PoolStatus("default", 0.0, tuple(vms), (), {})

    assert waits.none_in_service(status) == (said and f"no VM of the pool 'default' is in service: {said}")
