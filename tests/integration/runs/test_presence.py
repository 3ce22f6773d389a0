"""What a run is told about workers that serve its queues, start, or are not there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from rollout_tasks.runs import presence
from tests.conftest import REPOSITORY
from tests.wrong_clock import HOUR, WrongClock

QUEUE = "rollout.osworld"
NOBODY = f"no worker serves {QUEUE}: start one with `celery -A rollout_tasks worker`"


@pytest.fixture(name="client")
def _client(redis_url: str) -> Iterator[redis.Redis]:
    client = redis.Redis.from_url(redis_url, decode_responses=True)
    yield client
    client.close()


def test_a_worker_is_missed_then_starts_then_serves_then_leaves(client: redis.Redis) -> None:
    presence.announce(client, "other@here", ["rollout.light"])
    assert presence.unserved(client, [QUEUE]) == NOBODY

    presence.announce_start(client, "one@here", [QUEUE, "finalize"])
    starting = presence.unserved(client, [QUEUE])
    assert re.fullmatch(rf"a worker for {re.escape(QUEUE)} has been starting for \d+ s", starting)
    assert presence.unserved(client, [QUEUE, "rollout.py"]) == NOBODY.replace(QUEUE, f"{QUEUE}, rollout.py")

    presence.announce(client, "one@here", [QUEUE, "finalize"])
    assert presence.unserved(client, [QUEUE]) == ""

    presence.leave(client, "one@here")
    assert presence.unserved(client, [QUEUE]) == NOBODY


@pytest.mark.parametrize("patience", ["SILENT_SECONDS", "STARTING_SECONDS"])
def test_one_that_says_nothing_any_more_is_forgotten(
    client: redis.Redis, monkeypatch: pytest.MonkeyPatch, patience: str
) -> None:
    (presence.announce if patience == "SILENT_SECONDS" else presence.announce_start)(client, "one@here", [QUEUE])
    assert presence.unserved(client, [QUEUE]) != NOBODY
    monkeypatch.setattr(presence, patience, 0.0)
    assert presence.unserved(client, [QUEUE]) == NOBODY
    assert client.hlen("workers") == 0


def test_one_of_before_the_servers_clock_was_set_back_is_forgotten(
    client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as ahead:
        ahead.setattr(presence, "server_time", lambda _client: time.time() + HOUR)
        presence.announce(client, "one@here", [QUEUE])
    assert presence.unserved(client, [QUEUE]) == NOBODY


@pytest.mark.parametrize("seconds", [HOUR, -HOUR], ids=["ahead", "behind"])
def test_a_worker_whose_clock_is_wrong_is_there_as_long_as_any_other(
    client: redis.Redis, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: int
) -> None:
    script = (
        "import sys, redis; from rollout_tasks.runs import presence;"
        "presence.announce(redis.Redis.from_url(sys.argv[1]), 'one@there', [sys.argv[2]])"
    )
    clock = WrongClock(tmp_path, seconds)
    subprocess.run(
        [sys.executable, "-c", script, redis_url, QUEUE],
        env={**os.environ, **clock.environment},
        cwd=REPOSITORY,
        check=True,
    )

    assert presence.unserved(client, [QUEUE]) == ""
    monkeypatch.setattr(presence, "SILENT_SECONDS", 0)
    assert presence.unserved(client, [QUEUE]) == NOBODY
