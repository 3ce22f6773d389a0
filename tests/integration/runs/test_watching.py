"""Watching a run while Redis goes away and comes back."""

from __future__ import annotations

import io
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import redis
from rich.console import Console

from benchmark.items import Item
from rollout_tasks.config import RunConfig
from rollout_tasks.errors import UserError
from rollout_tasks.redis_client import connect
from rollout_tasks.runs import watch
from rollout_tasks.runs.store import RunStore
from rollout_tasks.runs.submission_store import reserve
from rollout_tasks.settings import settings
from tests.conftest import ValkeyServer

RUN = "run-1"


@pytest.fixture
def store(valkey: ValkeyServer, monkeypatch: pytest.MonkeyPatch) -> RunStore:
    monkeypatch.setenv("ROLLOUT_REDIS_URL", valkey.url)
    settings.cache_clear()
    monkeypatch.setattr(watch, "_LOOK_SECONDS", 0.05)
    store = RunStore(connect(tries=1, socket_timeout=10))
    stored = reserve(store.client, RUN, RunConfig(), "/nowhere", 1)
    stored.add_items([Item("a", "?")], ["a#0"])
    assert stored.everything_sent()
    return store


def test_a_redis_that_comes_back_is_waited_for(store: RunStore, valkey: ValkeyServer) -> None:
    console = Console(file=io.StringIO(), width=200)
    looked, gone = threading.Event(), threading.Event()

    def alive() -> None:
        looked.set()
        if "does not answer" in console.file.getvalue():  # type: ignore[attr-defined]
            gone.set()

    with ThreadPoolExecutor(1) as executor:
        watching = executor.submit(watch.watch, store, RUN, console, pool=None, alive=alive)
        assert looked.wait(30)
        valkey.kill()
        assert gone.wait(30)
        assert not watching.done()
        valkey.start()
        redis.Redis.from_url(valkey.url).hset(f"{{run:{RUN}}}", "state", "done")
        assert watching.result(30).state == "done"

    assert console.file.getvalue().count("Redis does not answer; still trying: ") == 1  # type: ignore[attr-defined]


def test_a_redis_that_stays_away_ends_the_watching_and_says_how_to_come_back(
    store: RunStore, valkey: ValkeyServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(watch, "_AWAY_SECONDS", 0.5)
    valkey.kill()

    with pytest.raises(UserError, match=r"^Redis has not answered for 0 s .*: see rollouts watch run-1$"):
        watch.watch(store, RUN, Console(file=io.StringIO()), pool=None)
