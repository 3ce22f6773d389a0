"""The messages of a run are those of Celery's own chord, though they are not all made before the first is sent."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
from typing import Any

import pytest
import redis

from tests.conftest import REPOSITORY

ROLLOUTS = [f"item-{number}#0" for number in range(5)]
_CELERYS = """
callback = finalize_task("run-1")
callback.on_error(finalize_task("run-1"))
chord(list(enqueue._signatures("run-1", config, items, rollouts)), callback).apply_async()
"""
_OURS = """
enqueue.send_chord("run-1", config, items, rollouts)
"""


def sent_by(statements: str, client: redis.Redis, url: str) -> tuple[list[str], list[str]]:
    """The messages that a program sends, and the chord's keys with their values, without what is unique about their ids."""
    program = (
        "import json, sys\n"
        "from celery import chord\n"
        "from benchmark.items import Item\n"
        "from rollout_tasks.config import RunConfig\n"
        "from rollout_tasks.runs import enqueue\n"
        "from rollout_tasks.queues import finalize_task\n"
        "config = RunConfig.model_validate({'env_mode': 'simulated'})\n"
        "rollouts = json.loads(sys.argv[1])\n"
        "items = {name.split('#')[0]: Item(name.split('#')[0], '?') for name in rollouts}\n"
    )
    environment = {**os.environ, "ROLLOUT_REDIS_URL": url, "REDIS_URL": url}
    command = [sys.executable, "-c", program + statements, json.dumps(ROLLOUTS)]
    subprocess.run(command, env=environment, cwd=REPOSITORY, check=True, timeout=120)
    messages = [_plain(json.loads(message)) for message in client.lrange("rollout.simulated", 0, -1)]
    keys = [f"{key}={client.get(key)}" for key in sorted(client.scan_iter("celery-taskset-meta-*"))]
    client.flushall()
    return messages, [_without_ids(key) for key in keys]


def _plain(message: dict[str, Any]) -> str:
    message["body"] = json.loads(base64.b64decode(message["body"]))
    message["headers"]["origin"] = "the submitter"
    return _without_ids(json.dumps(message, indent=1, sort_keys=True))


def _without_ids(text: str) -> str:
    """Ids in the order in which they occur: which are the same stays to be seen."""
    seen: dict[str, str] = {}
    return re.sub(
        r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", lambda id_: seen.setdefault(id_[0], f"id {len(seen)}"), text
    )


@pytest.fixture
def client(redis_url: str) -> redis.Redis:
    return redis.Redis.from_url(redis_url, decode_responses=True)


def test_the_messages_are_those_of_celerys_chord(client: redis.Redis, redis_url: str) -> None:
    celerys = sent_by(_CELERYS, client, redis_url)
    ours = sent_by(_OURS, client, redis_url)

    assert len(celerys[0]) == len(ROLLOUTS)
    assert celerys[1] == ["celery-taskset-meta-id 0.s=5"]
    assert ours == celerys
