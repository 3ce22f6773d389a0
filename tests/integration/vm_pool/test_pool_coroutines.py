"""Coroutines and threads borrow from one pool."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
import redis.asyncio

from vm_pool import AcquireTimeout, Endpoint, VMPool, VMState
from vm_pool.aio import AsyncVMPool


def in_loop(redis_url: str, work: Callable) -> None:
    async def main() -> None:
        client = redis.asyncio.Redis.from_url(redis_url)
        pool = AsyncVMPool(client, "test")
        try:
            await work(pool)
        finally:
            await pool.close()
            await client.aclose()

    asyncio.run(main())


def test_many_coroutines_share_few_vms(pool: VMPool, redis_url: str) -> None:
    for number in range(3):
        pool.register(f"vm-{number}", Endpoint("127.0.0.1"))
    using: set[str] = set()

    async def work(pool: AsyncVMPool) -> None:
        async def client(number: int) -> None:
            for _ in range(3):
                grant = await pool.acquire(f"coroutine {number}", timeout=60)
                assert grant.vm_id not in using
                using.add(grant.vm_id)
                assert (await pool.renew([(grant.vm_id, grant.fence)]))[0] is not None
                using.discard(grant.vm_id)
                assert await pool.release(grant.vm_id, grant.fence)
                assert not await pool.release(grant.vm_id, grant.fence)

        await asyncio.gather(*(client(number) for number in range(40)))

    in_loop(redis_url, work)
    assert pool.status().counters["released"] == 120


def test_a_cancelled_wait_leaves_the_queue(pool: VMPool, redis_url: str, hand_host: Callable) -> None:
    hand_host(1)
    held = pool.acquire("thread", timeout=1)

    async def work(pool_of_coroutines: AsyncVMPool) -> None:
        waiting = asyncio.create_task(pool_of_coroutines.acquire("coroutine", timeout=60))
        while not pool.status().waiters:
            await asyncio.sleep(0.01)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    in_loop(redis_url, work)
    assert pool.status().waiters == ()
    held.check()


def test_a_wait_ends_at_its_timeout(pool: VMPool, redis_url: str, hand_host: Callable) -> None:
    hand_host(1)
    pool.acquire("thread", timeout=1)

    async def work(pool: AsyncVMPool) -> None:
        with pytest.raises(AcquireTimeout, match=r"coroutine got no VM of pool 'test' within 0\.1 s"):
            await pool.acquire("coroutine", timeout=0.1)

    in_loop(redis_url, work)
    assert pool.status().counts() == {VMState.LEASED: 1}
