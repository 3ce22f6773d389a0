"""Looking for lost work: what is sent again, what is left alone, and how little is read for it."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import time

import pytest
import redis

from benchmark.items import Item
from rollout_tasks.config import RunConfig
from rollout_tasks.runs.store import RunStore
from rollout_tasks.runs.store_format import ACTIVE_RUNS
from rollout_tasks.runs.submission_store import reserve
from rollout_tasks.runs.verdict import Verdict
from tests.conftest import REPOSITORY

QUEUE = "rollout.simulated"
LOCK = "reconcile:lock"
SILENT = 15.0
"""Of holders; a test that needs somebody to be silent makes him so."""


LOOK = """
import json, sys
from rollout_tasks.execution.cancellation import cancel_run
from rollout_tasks.runs.reconcile import reconcile_runs
print(json.dumps([reconcile_runs(cancel_run) for _ in range(int(sys.argv[1]))]))
"""


@pytest.fixture
def store(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> RunStore:
    monkeypatch.setenv("ROLLOUT_REDIS_URL", redis_url)
    monkeypatch.setenv("ROLLOUT_LEASE_TTL", str(SILENT))
    return RunStore(redis.Redis.from_url(redis_url, decode_responses=True), silent_seconds=SILENT)


def submit(store: RunStore, run_id: str, names: list[str], queue: str = QUEUE) -> None:
    config = RunConfig.model_validate({"env_mode": "simulated"})
    stored = reserve(store.client, run_id, config, "/nowhere", len(names), [queue])
    stored.add_items([Item(name, "?") for name in names], [f"{name}#0" for name in names])
    assert stored.everything_sent()


def message(run_id: str, name: str, *, old: bool = False) -> str:
    arguments = [[run_id, f"{name}#0"], {}, {"chord": {"task": "finalize_run", "args": [run_id]}}]
    headers = {"task": "rollout", "id": f"{run_id}-{name}"}
    if not old:
        headers |= {"run": run_id, "rollout": f"{name}#0"}
    return json.dumps({"body": base64.b64encode(json.dumps(arguments).encode()).decode(), "headers": headers})


def look(times: int = 2) -> list[dict[str, int]]:
    """Looks so often, in a process of its own: a Celery application has one broker for life."""
    done = subprocess.run(
        [sys.executable, "-c", LOOK, str(times)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    looks: list[dict[str, int]] = json.loads(done.stdout)
    return looks


def rollouts(looks: list[dict[str, int]]) -> list[int]:
    return [done["rollouts"] for done in looks]


def test_only_what_has_no_message_no_holder_and_no_verdict_is_sent_again_and_only_when_seen_twice(
    store: RunStore,
) -> None:
    names = ["waits", "waits-old", "delivered", "held", "done", "lost"]
    submit(store, "r-1", names)
    store.client.lpush(QUEUE, message("r-1", "waits"), message("r-1", "waits-old", old=True))
    store.client.hset("unacked", "tag", json.dumps([json.loads(message("r-1", "delivered")), "", QUEUE]))
    store.claim("r-1", "held#0", {"token": "one"})
    store.claim("r-1", "done#0", {"token": "two"})
    store.commit("r-1", Verdict("done#0", 1, "completed"), "two")
    before = store.client.llen(QUEUE)

    assert rollouts(look(1)) == [0]
    store.claim("r-1", "held#0", {"token": "one"})
    assert rollouts(look(1)) == [1]

    [added] = store.client.lrange(QUEUE, 0, store.client.llen(QUEUE) - before - 1)
    headers = json.loads(added)["headers"]
    assert (headers["run"], headers["rollout"]) == ("r-1", "lost#0")
    store.claim("r-1", "held#0", {"token": "one"})
    assert rollouts(look(2)) == [0, 0], "its new message was not seen"
    assert store.client.hget("{run:r-1}", "chord_spent") == "1"
    assert store.client.keys("reconcile:*") == []


def test_messages_in_the_queue_of_an_environment_that_is_unknown_here_are_seen(store: RunStore) -> None:
    submit(store, "r-1", ["waits"], queue="rollout.of-another-package")
    store.client.lpush("rollout.of-another-package", message("r-1", "waits"))

    assert rollouts(look(2)) == [0, 0]
    assert store.client.hget("{run:r-1}", "chord_spent") is None


def test_a_run_that_cannot_be_read_keeps_nobody_from_the_others(store: RunStore) -> None:
    for run_id in ("r-1", "r-2", "r-3", "r-4", "r-00"):
        submit(store, run_id, ["lost"])
    store.client.hset("{run:r-00}", "folder", "/" + "x" * 300)  # no name that a folder can have
    store.claim("r-00", "lost#0", {"token": "dead"})
    store.cancel("r-00")
    store.client.zadd("{run:r-00}:alive", {"lost#0": 1.0})
    store.client.hset("{run:r-1}", mapping={"min_version": 99})
    store.client.hset("{run:r-2}", "config", "{")
    store.client.delete("{run:r-3}:counts")
    store.client.set("{run:r-3}:counts", "of the wrong type")
    store.client.sadd(ACTIVE_RUNS, "r-0")  # of which nothing is left

    assert rollouts(look(2)) == [0, 1]

    [sent] = store.client.lrange(QUEUE, 0, -1)
    assert json.loads(sent)["headers"]["run"] == "r-4"
    assert "r-0" not in store.active()


def test_a_complete_run_is_finalised_and_a_half_submitted_one_is_not(store: RunStore) -> None:
    submit(store, "complete", ["a"])
    store.claim("complete", "a#0", {"token": "one"})
    store.commit("complete", Verdict("a#0", 1, "completed"), "one")
    stored = reserve(store.client, "half", RunConfig(), "/nowhere", 2)
    stored.add_items([Item("a", "?"), Item("b", "?")], ["a#0"])
    store.client.hset("{run:half}", "submitter_beat", time.time() - 5 * SILENT)

    assert look(1) == [{"rollouts": 0, "finalized": 1}]

    assert store.state("half") == "half_submitted"
    [asked] = store.client.lrange("finalize", 0, -1)
    assert json.loads(base64.b64decode(json.loads(asked)["body"]))[0] == ["complete"]


def test_the_lock_of_a_killed_reconciler_ends_within_half_a_minute(store: RunStore) -> None:
    submit(store, "r-1", ["lost"])
    store.client.set(LOCK, "somebody else", nx=True, ex=30)

    assert look() == [{}, {}]

    assert 0 < store.client.ttl(LOCK) <= 30
    store.client.delete(LOCK)
    assert rollouts(look()) == [0, 1]


def test_a_look_at_a_long_queue_reads_next_to_nothing(store: RunStore) -> None:
    names = [f"item-{number}" for number in range(5_000)]
    submit(store, "r-1", names)
    with store.client.pipeline(transaction=False) as pipe:
        for name in names[:-1]:
            pipe.lpush(QUEUE, message("r-1", name))
        pipe.execute()
    look(1)
    before = store.client.info("stats")["total_net_output_bytes"]

    assert rollouts(look(1)) == [1]

    read = store.client.info("stats")["total_net_output_bytes"] - before
    assert read < 50_000, f"{read} bytes for a queue of 5,000 messages"


def test_messages_that_nobody_takes_hide_no_loss_of_another_run(store: RunStore) -> None:
    """As of a cancelled run whose workers are gone, or of many rollouts that are being worked on."""
    submit(store, "r-1", ["lost"])
    others = [message("cancelled", f"item-{number}") for number in range(100)]
    store.client.lpush("rollout.osworld", *others)

    assert rollouts(look(2)) == [0, 1]


ODD = [
    "x",
    "7",
    "[]",
    '{"headers": 7}',
    '{"headers": {"task": "rollout"}, "body": 7}',
    '{"headers": {"task": "rollout"}, "body": "W10="}',
    '{"headers": {"task": "rollout", "run": null, "rollout": "a#0"}, "body": "W10="}',
    '{"headers": {"task": "rollout", "run": "r-1", "rollout": null}, "body": "W10="}',
    '{"headers": {"task": "rollout", "run": {}, "rollout": ["a#0"]}, "body": "W10="}',
    '{"headers": {"task": "rollout", "run": true, "rollout": 7}, "body": "W10="}',
]


def test_another_programs_messages_hide_no_loss(store: RunStore) -> None:
    submit(store, "r-1", ["lost"])
    store.client.lpush("rollout.osworld", *ODD)
    store.client.hset("unacked", mapping=dict(zip("abcdef", ["x", "7", "[]", '["y"]', "[7]", "{}"], strict=True)))

    assert rollouts(look(2)) == [0, 1]


def test_many_rollouts_at_work_hide_no_loss(store: RunStore) -> None:
    names = [f"held-{number}" for number in range(100)]
    submit(store, "r-1", [*names, "lost"])
    for name in names:
        store.claim("r-1", f"{name}#0", {"token": name})
        store.client.hset("unacked", name, json.dumps([json.loads(message("r-1", name)), "", QUEUE]))

    assert rollouts(look(2)) == [0, 1]
