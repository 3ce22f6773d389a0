"""The heartbeat thread of a worker child, against a real Valkey and in real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
import redis

from benchmark.items import Item
from rollout_tasks.config import RunConfig
from rollout_tasks.errors import FailureClass
from rollout_tasks.execution.heartbeat import UNACKED_INDEX, Heartbeat, Pulse
from rollout_tasks.interruption import Interruption
from rollout_tasks.runs.store import RunStore
from rollout_tasks.runs.submission_store import reserve
from rollout_tasks.settings import settings
from vm_pool.pool import VMPool
from vm_pool.states import Endpoint

STUCK = """
import signal, time
from rollout_tasks.errors import FailureClass
from rollout_tasks.execution.heartbeat import Heartbeat, Pulse
from rollout_tasks.interruption import Interruption
heartbeat = Heartbeat(0.1)
interruption = Interruption()
heartbeat.pulse = Pulse("run", "item#0", "token", interruption, delivery_tag=None)
print(time.monotonic(), flush=True)
with interruption.scope(3.0, FailureClass.TIMEOUT, "too slow", grace=0.3):
    signal.signal(signal.SIGALRM, signal.SIG_IGN)  # like a library that never returns to Python
    time.sleep(60)
"""


@pytest.fixture
def store(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> RunStore:
    monkeypatch.setenv("ROLLOUT_REDIS_URL", redis_url)
    settings.cache_clear()
    store = RunStore(redis.Redis.from_url(redis_url, decode_responses=True), silent_seconds=5)
    stored = reserve(store.client, "run", RunConfig(), "/nowhere", 1)
    stored.add_items([Item("item", "?")], ["item#0"])
    assert stored.everything_sent()
    store.claim("run", "item#0", {"token": "token"})
    return store


def pulse(**options: object) -> Pulse:
    return Pulse("run", "item#0", "token", Interruption(), delivery_tag="tag", **options)  # type: ignore[arg-type]


def test_a_process_stuck_past_its_hard_deadline_is_killed(redis_url: str) -> None:
    environment = {**os.environ, "ROLLOUT_REDIS_URL": redis_url}

    done = subprocess.run([sys.executable, "-c", STUCK], env=environment, capture_output=True, check=False, timeout=50)

    assert done.returncode == -signal.SIGKILL, done.stderr
    assert 3.3 <= time.monotonic() - float(done.stdout) < 45


def test_a_beat_keeps_message_claim_and_lease_fresh(store: RunStore) -> None:
    store.client.zadd(UNACKED_INDEX, {"tag": 1.0, "other": 1.0})
    pool = VMPool(store.client)
    pool.register("vm-1", Endpoint("127.0.0.1"))
    lease = pool.acquire("me", ttl=5, heartbeat=False)
    deadline = lease.deadline
    alive = store.client.zscore("{run:run}:alive", "item#0")
    time.sleep(0.05)

    Heartbeat(60).beat(pulse(lease=lease))

    assert store.client.zscore(UNACKED_INDEX, "tag") > time.time() - 5
    assert store.client.zscore(UNACKED_INDEX, "other") == 1.0
    assert store.client.zscore("{run:run}:alive", "item#0") > alive
    assert lease.deadline > deadline


def test_an_acknowledged_message_is_not_brought_back(store: RunStore) -> None:
    Heartbeat(60).beat(pulse())

    assert store.client.zscore(UNACKED_INDEX, "tag") is None


def test_news_reach_the_rollout(store: RunStore) -> None:
    heartbeat = Heartbeat(60)
    for change, failure in (
        (lambda: store.cancel("run"), FailureClass.CANCELLED),
        (lambda: store.client.hset("{run:run}:holders", "item#0", '{"token":"other"}'), FailureClass.WORKER_LOST),
    ):
        heartbeat.pulse = pulse()
        change()
        heartbeat.beat(heartbeat.pulse)
        assert heartbeat.pulse.interruption._reason[0] is failure  # type: ignore[index]
    assert heartbeat.pulse.superseded


def test_a_lost_lease_stops_the_episode(store: RunStore) -> None:
    pool = VMPool(store.client)
    pool.register("vm-1", Endpoint("127.0.0.1"))
    lease = pool.acquire("me", ttl=5, heartbeat=False)
    pool.force_release("vm-1")
    beat = pulse(lease=lease)

    Heartbeat(60).beat(beat)

    assert beat.interruption._reason[0] is FailureClass.LEASE_LOST  # type: ignore[index]
