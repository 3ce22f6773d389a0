"""Which workers are there and which queues they serve, as they themselves say: so that nobody waits for nobody unknowingly."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import redis

from rollout_tasks.redis_client import server_time

_WORKERS = "workers"
ANNOUNCE_SECONDS = 10.0
SILENT_SECONDS = 35.0
"""A worker that has not announced itself for this long is taken to be gone."""
STARTING_SECONDS = 180.0
"""A worker that said it starts, and nothing for this long, is taken to be gone."""


def announce_start(client: redis.Redis, worker: str, queues: Iterable[str]) -> None:
    """Says that a worker is starting, which takes seconds where it has much to import."""
    client.hset(_WORKERS, worker, json.dumps({"queues": [], "starting": sorted(queues), "at": server_time(client)}))


def announce(client: redis.Redis, worker: str, queues: Iterable[str]) -> None:
    """Says that a worker is there."""
    client.hset(_WORKERS, worker, json.dumps({"queues": sorted(queues), "at": server_time(client)}))


def leave(client: redis.Redis, worker: str) -> None:
    """Says that a worker is going."""
    client.hdel(_WORKERS, worker)


def unserved(client: redis.Redis, queues: Iterable[str]) -> str:
    """A sentence about queues that no worker serves, empty when each has one."""
    workers = _workers(client)
    missing = sorted(set(queues) - {queue for said in workers for queue in said["queues"]})
    if not missing:
        return ""
    starting = [said for said in workers if set(missing) <= set(said.get("starting", ()))]
    if starting:
        seconds = max(0.0, server_time(client) - min(said["at"] for said in starting))
        return f"a worker for {', '.join(missing)} has been starting for {seconds:.0f} s"
    return f"no worker serves {', '.join(missing)}: start one with `celery -A rollout_tasks worker`"


def _workers(client: redis.Redis) -> list[dict[str, Any]]:
    """What each worker said last; forgets those that are gone."""
    now = server_time(client)
    there = []
    workers: Any = client.hgetall(_WORKERS)
    for worker, text in workers.items():
        said = json.loads(text)
        if now - said["at"] < (STARTING_SECONDS if "starting" in said else SILENT_SECONDS):
            there.append(said)
        else:
            client.hdel(_WORKERS, worker)
    return there
