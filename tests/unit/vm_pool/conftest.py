"""What tests of the pool share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from vm_pool.pool import VMPool


@pytest.fixture
def pool(redis_url: str) -> Iterator[VMPool]:
    """An empty pool on a real server."""
    pool = VMPool(redis.Redis.from_url(redis_url), "test")
    yield pool
    pool.close()
