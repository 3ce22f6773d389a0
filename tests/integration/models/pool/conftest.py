"""A model pool on the Valkey that all tests share, and replicas whose process is the test itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import redis

from rollout_tasks.models.pool.balancing import Balancer
from rollout_tasks.models.pool.replicas import Replica, Replicas, ReplicaState
from tests.integration.models.pool.balancing_model import MARGIN

Register = Callable[..., Replica]


@pytest.fixture
def client(redis_url: str) -> Iterator[redis.Redis]:
    client = redis.Redis.from_url(redis_url, decode_responses=True)
    yield client
    client.close()


@pytest.fixture
def replicas(client: redis.Redis) -> Replicas:
    return Replicas(client, "p")


@pytest.fixture
def balancer(client: redis.Redis) -> Balancer:
    return Balancer(client, "p", margin=MARGIN)


@pytest.fixture
def register(replicas: Replicas) -> Register:
    """Registers a replica that is ready, unless something else is said."""

    def register(replica_id: str = "r1", instance: str = "", **options: object) -> Replica:
        values = {
            "base_url": f"http://{replica_id}:8000/v1",
            "model": "policy",
            "weight_version": "step-1",
            "host": "box",
            "state": ReplicaState.READY,
        }
        return replicas.register(replica_id, instance or f"{replica_id}-first", **(values | options))

    return register
