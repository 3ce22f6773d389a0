"""A run with one item, its folder, a pool with one VM, and executions of its rollout in this process. All against a real Valkey."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis

from benchmark.items import Item
from rollout_tasks import registry
from rollout_tasks.app import app
from rollout_tasks.config import RunConfig
from rollout_tasks.execution import heartbeat, leased_vm, rollout
from rollout_tasks.execution.claim import Delivery
from rollout_tasks.execution.rollout import Execution
from rollout_tasks.redis_client import worker_client
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.runs.store import RunStore, run_store
from rollout_tasks.runs.submission_store import reserve
from rollout_tasks.runs.verdict import Verdict
from rollout_tasks.settings import settings
from tests.unit.execution import watched
from vm_pool.pool import VMPool
from vm_pool.states import Endpoint

RUN = "run-1"
ROLLOUT = "item#0"
DELIVERY = Delivery("task-1", None, "worker@here")


@dataclass
class Bench:
    """One submitted run and what surrounds it."""

    store: RunStore
    pool: VMPool
    client: redis.Redis
    folder: RunFolder
    config: RunConfig
    rollout: str = ROLLOUT

    def execute(self, delivery: Delivery = DELIVERY) -> str:
        """The task, as a worker's child runs it."""
        return Execution(self.store, RUN, self.rollout, delivery).run()

    def verdict(self) -> Verdict:
        """What is committed."""
        (verdict,) = self.store.verdicts(RUN)
        return verdict

    def events(self) -> list[str]:
        """What happened to the VM since it was registered."""
        return [event.event for event in self.pool.events()][1:]


@pytest.fixture
def calls() -> Iterator[list[tuple[str, int]]]:
    watched.CALLS.clear()
    watched.HOOKS.clear()
    yield watched.CALLS
    watched.HOOKS.clear()


@pytest.fixture
def submit(
    redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: list[tuple[str, int]]
) -> Iterator[Any]:
    """Submits a run with one item, whose environment is the watched one."""
    offered = tmp_path / "site" / "watched-1.dist-info"
    offered.mkdir(parents=True)
    (offered / "METADATA").write_text("Metadata-Version: 2.1\nName: watched\nVersion: 1\n")
    (offered / "entry_points.txt").write_text(
        "[rollout_tasks.environments]\nwatched = tests.unit.execution.watched:WatchedEnvironment\n"
        "wrong_returns = tests.unit.execution.watched:WrongReturnsEnvironment\n"
        "unfinished = tests.unit.execution.watched:UnfinishedEnvironment\n"
        "[vm_pool.providers]\nsnapshots = tests.unit.execution.watched:SnapshotProvider\n"
        "[rollout_tasks.agents]\n"
        "answering = tests.unit.execution.watched:AnsweringAgent\n"
        "instructed = tests.unit.execution.watched:InstructedAgent\n"
        "recording = tests.unit.execution.watched:RecordingAgent\n"
        "asking = tests.unit.execution.watched:AskingAgent\n"
        "late = tests.unit.execution.watched:LateAgent\n"
        "broken = tests.unit.execution.watched:BrokenAgent\n"
        "silent = tests.unit.execution.watched:SilentAgent\n"
        "simulated = rollout_tasks.agents.simulated:SimulatedAgent\n"
    )
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.setenv("ROLLOUT_REDIS_URL", redis_url)
    caches = (
        settings,
        run_store,
        rollout._run_config,
        leased_vm._pool_named,
        heartbeat.heartbeat,
        registry._offered,
        registry.load,
    )
    for cache in caches:
        cache.cache_clear()
    monkeypatch.setitem(app.conf, "broker_url", redis_url)
    monkeypatch.setattr(app, "_pool", None)
    monkeypatch.setattr(app.amqp, "_producer_pool", None)
    client = redis.Redis.from_url(redis_url, decode_responses=True)
    pool = VMPool(client, "default")
    pool.register("vm-0", Endpoint("127.0.0.1", {"control": 1}))

    def begin(item: dict[str, Any], *, rollout: str = ROLLOUT, **options: Any) -> Bench:
        config = RunConfig.model_validate({"env_mode": "watched", "max_attempts": 2, **options})
        store = RunStore(worker_client(), silent_seconds=60)
        folder = RunFolder(tmp_path / "results" / RUN)
        items = [Item("item", "?", env_config=item)]
        folder.description.create(config, items, data_path="items.jsonl", data_name="items")
        stored = reserve(store.client, RUN, config, str(folder.path), 1)
        stored.add_items(items, [rollout])
        assert stored.everything_sent()
        return Bench(store, pool, client, folder, config, rollout)

    yield begin
    with contextlib.suppress(redis.RedisError):
        heartbeat.heartbeat(settings().beat_seconds).pulse = None
    pool.close()
    for cache in caches:
        cache.cache_clear()
