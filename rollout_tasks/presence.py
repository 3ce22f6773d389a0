"""Which workers are there and which queues they serve, as they themselves say: so that nobody waits for nobody unknowingly."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from typing import Any

import redis

_WORKERS = "workers"
ANNOUNCE_SECONDS = 10.0
SILENT_SECONDS = 35.0
"""A worker that has not announced itself for this long is taken to be gone."""


def announce(client: redis.Redis, worker: str, queues: Iterable[str]) -> None:
    """Says that a worker is there."""
    client.hset(_WORKERS, worker, json.dumps({"queues": sorted(queues), "at": time.time()}))


def leave(client: redis.Redis, worker: str) -> None:
    """Says that a worker is going."""
    client.hdel(_WORKERS, worker)


def served_queues(client: redis.Redis) -> set[str]:
    """The queues that some worker serves now; forgets workers that are gone."""
    served: set[str] = set()
    now = time.time()
    workers: Any = client.hgetall(_WORKERS)
    for worker, text in workers.items():
        said = json.loads(text)
        if now - said["at"] < SILENT_SECONDS:
            served.update(said["queues"])
        else:
            client.hdel(_WORKERS, worker)
    return served


def unserved(client: redis.Redis, queues: Iterable[str]) -> str:
    """A sentence about queues that no worker serves, empty when each has one."""
    missing = sorted(set(queues) - served_queues(client))
    if not missing:
        return ""
    return f"no worker serves {', '.join(missing)}: start one with `celery -A rollout_tasks worker`"
