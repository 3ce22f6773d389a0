"""Which workers are running and which queues they serve; warns when no worker serves a run's queue."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import redis

from rollout_tasks.redis_client import server_time

_WORKERS = "workers"
ANNOUNCE_SECONDS = 10.0
SILENT_SECONDS = 35.0
"""A worker that has not announced itself for this long counts as gone."""
STARTING_SECONDS = 180.0
"""A worker that announced its start, and nothing since, counts as gone after this long."""


def announce_start(client: redis.Redis, worker: str, queues: Iterable[str]) -> None:
    """Announces that a worker is starting, which takes seconds when it has much to import; forgets those that are gone."""
    _workers(client)
    client.hset(_WORKERS, worker, json.dumps({"queues": [], "starting": sorted(queues), "at": server_time(client)}))


def announce(client: redis.Redis, worker: str, queues: Iterable[str]) -> None:
    """Announces a running worker and its queues."""
    client.hset(_WORKERS, worker, json.dumps({"queues": sorted(queues), "at": server_time(client)}))


def leave(client: redis.Redis, worker: str) -> None:
    """Removes a worker's announcement."""
    client.hdel(_WORKERS, worker)


def someone_serves(client: redis.Redis) -> bool:
    """Whether any worker is running, and not just starting."""
    return any(said["queues"] for said in _workers(client))


def unserved(client: redis.Redis, queues: Iterable[str]) -> str:
    """Returns a sentence about queues that no worker serves; empty when each has one."""
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
    """Returns each worker's last announcement; deletes those of workers that are gone."""
    now = server_time(client)
    there = []
    workers: Any = client.hgetall(_WORKERS)
    for worker, text in workers.items():
        said = json.loads(text)
        longest = STARTING_SECONDS if "starting" in said else SILENT_SECONDS
        if abs(now - said["at"]) < longest:  # one of much later is of before the server's clock was set back
            there.append(said)
        else:
            client.hdel(_WORKERS, worker)
    return there
