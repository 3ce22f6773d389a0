"""The asyncio client of a pool: the same scripts and steps as `VMPool.acquire`, but without a `Lease` object."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import Any

import redis.asyncio
from redis.exceptions import NoScriptError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from vm_pool.lua_scripts import PoolKeys
from vm_pool.pool import POP_GRACE_SECONDS
from vm_pool.redis_connection import REPLY_SECONDS, as_pool_error, connection_options, packed, place_of
from vm_pool.waiting import Ask, Grant, Leave, Pop, Request, Step, acquisition


class AsyncVMPool:
    """A pool for the coroutines of one event loop. The caller renews each grant itself, every third of its TTL.

    Args:
        client: Says where Redis is and how to log in.
        name: The pool's name.
    """

    def __init__(self, client: redis.asyncio.Redis, name: str = "default") -> None:
        self.name = name
        self.keys = PoolKeys(name)
        self._source = client.connection_pool
        self._where = place_of(self._source.connection_kwargs)
        self._idle: deque[Any] = deque()

    async def acquire(
        self,
        holder: str,
        *,
        priority: int = 0,
        timeout: float = 1800.0,
        ttl: float = 60.0,
        max_age: float = 6 * 3600.0,
        token: str | None = None,
        should_stop: Callable[[], bool] | None = None,
        wait_while_empty: bool = False,
    ) -> Grant:
        """Waits for a VM; arguments and errors are those of `VMPool.acquire`. A cancelled wait leaves the queue."""
        who = Request(holder, priority, timeout, ttl, max_age, should_stop, token, wait_while_empty)
        return await self._drive(acquisition(who, self.name))

    async def renew(self, grants: Sequence[tuple[str, int]]) -> list[float | None]:
        """Moves deadlines; see `VMPool.renew`."""
        requested_at = time.monotonic()
        now, *deadlines = await self._run("renew", *[word for grant in grants for word in grant])
        return [requested_at + (deadline - now) / 1_000_000 if deadline else None for deadline in deadlines]

    async def release(self, vm_id: str, fence: int) -> bool:
        """Ends a lease; see `VMPool.release`."""
        return bool(await self._run("release", vm_id, fence))

    async def close(self) -> None:
        """Closes idle connections."""
        while self._idle:
            await self._idle.pop().disconnect()

    async def _drive(self, steps: Generator[Step, Any, Grant]) -> Grant:
        """Performs an acquisition's steps in this coroutine."""
        task = asyncio.current_task()
        cancelled = task.cancelling() if task is not None else 0
        try:
            step = next(steps)
            while True:
                try:
                    outcome = await self._perform(step)
                    if task is not None and task.cancelling() > cancelled:
                        raise asyncio.CancelledError  # `wait_for` of Python 3.11 can swallow one
                except BaseException as error:  # noqa: BLE001 (the steps decide what an error means)
                    step = steps.throw(error)
                else:
                    step = steps.send(outcome)
        except StopIteration as done:
            grant: Grant = done.value
            return grant

    async def _perform(self, step: Step) -> Any:
        if isinstance(step, Ask):
            return await self._run("acquire", *step.args)
        if isinstance(step, Pop):
            words = ("BLPOP", self.keys.inbox(step.token), f"{step.seconds:.3f}")
            message = await self._call(words, step.seconds + POP_GRACE_SECONDS)
            return message[1] if message else None
        if isinstance(step, Leave):
            return await self._run("leave", *step.args)
        await asyncio.sleep(step.seconds)
        return None

    async def _run(self, script: str, *args: str | int) -> Any:
        try:
            return await self._call(self.keys.command(script, *args))
        except NoScriptError:
            return await self._call(self.keys.command_with_source(script, *args))

    async def _call(self, command: tuple[str | int, ...], seconds: float = REPLY_SECONDS) -> Any:
        connection = self._idle.pop() if self._idle else self._connect()
        try:
            await connection.send_packed_command(packed(command), check_health=False)
            reply = await _reply(connection, seconds)
        except BaseException as error:
            if isinstance(error, ResponseError):
                self._idle.append(connection)
            else:
                await connection.disconnect(nowait=True)
            if (known := as_pool_error(error, self._where)) is not None:
                raise known from error
            raise
        self._idle.append(connection)
        return reply

    def _connect(self) -> Any:
        return self._source.connection_class(**connection_options(self._source.connection_kwargs, REPLY_SECONDS))


async def _reply(connection: Any, seconds: float) -> Any:
    """Returns the next reply. A connection's own timeout would return None and leave a late reply to the next call."""
    try:
        async with asyncio.timeout(seconds):
            return await connection.read_response(timeout=math.inf)
    except TimeoutError as late:
        raise RedisTimeoutError(f"no reply within {seconds:g} s") from late
