"""Every reply of Redis has a deadline of its own, and every connection an end: looked at where they reach the socket's layer."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import redis
import redis.asyncio

from vm_pool import Endpoint, PoolUnreachable, VMPool, VMState, aio
from vm_pool import pool as pool_module
from vm_pool.aio import AsyncVMPool
from vm_pool.host_client import HostClient
from vm_pool.lua_scripts import PoolKeys
from vm_pool.redis_connection import REPLY_SECONDS
from vm_pool.waiting import Ask, Leave, Pop, Sleep, Step

OWN = "the connection's own"
NOTES: list[Any] = []
"""The connections that were made, and how long each answer could take."""


class Noted(redis.Connection):
    """Notes how long each answer may take."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        NOTES.append(self)
        self.limits: list[Any] = []
        self.options = options

    def read_response(self, *args: Any, **options: Any) -> Any:
        self.limits.append(options.get("timeout", OWN))
        return super().read_response(*args, **options)


class NotedByCoroutines(redis.asyncio.Connection):
    """One of coroutines."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        NOTES.append(self)


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    NOTES.clear()
    yield
    NOTES.clear()


@pytest.fixture
def pool(redis_url: str) -> Iterator[VMPool]:
    source = redis.ConnectionPool.from_url(redis_url, connection_class=Noted)
    pool = VMPool(redis.Redis(connection_pool=source), "test")
    yield pool
    pool.close()


@pytest.fixture
def limits(pool: VMPool) -> list[Any]:
    """How long each answer on the pool's one connection could take, from now on."""
    pool.status()  # its scripts are loaded, and the connection is made
    pool.renew([])
    (connection,) = NOTES
    connection.limits.clear()
    return connection.limits


def test_an_answer_may_take_five_seconds_unless_the_caller_says_otherwise(pool: VMPool, limits: list[Any]) -> None:
    pool.status()
    pool.renew([("a", 1)])
    pool.renew([("a", 1)], 2.5)
    assert limits == [OWN, OWN, 2.5]
    assert NOTES[0].options["socket_timeout"] == NOTES[0].options["socket_connect_timeout"] == REPLY_SECONDS == 5.0


def test_the_callers_time_holds_for_a_server_that_has_lost_its_scripts_too(
    pool: VMPool, limits: list[Any], redis_url: str
) -> None:
    with redis.Redis.from_url(redis_url) as client:
        client.script_flush()
    assert pool.renew([("a", 1)], 2.5) == [None]
    assert limits == [2.5, 2.5]


def test_a_block_may_be_answered_two_seconds_late(pool: VMPool, limits: list[Any]) -> None:
    assert pool._perform(Pop("t", 0.05)) is None
    assert HostClient(pool, "h", silent_after=1).wait_for_work(0.05) is False
    assert limits == [2.05, 2.05]


def test_a_new_connection_is_made_within_the_callers_time(pool: VMPool) -> None:
    pool.renew([], 2.5)
    assert [connection.options["socket_connect_timeout"] for connection in NOTES] == [2.5]


def test_a_pool_that_is_closed_leaves_no_connection_and_opens_one_when_used_again(pool: VMPool) -> None:
    pool.redis.call("PING")
    connection = pool.redis._connect(1.0)
    connection.connect()
    pool.redis._idle.append(connection)
    assert [one.is_connected for one in NOTES] == [True, True]

    pool.close()
    pool.close()

    assert [one.is_connected for one in NOTES] == [False, False]
    assert pool.status().vms == ()
    assert [one.is_connected for one in NOTES] == [False, False, True]


def test_a_connection_that_ended_unnoticed_is_closed(pool: VMPool, redis_url: str) -> None:
    number = pool.redis.call("CLIENT", "ID")
    with redis.Redis.from_url(redis_url) as client:
        client.client_kill_filter(_id=str(number))
    assert pool.breaks() == 1
    assert [one.is_connected for one in NOTES] == [False]


# Coroutines


def in_coroutines(redis_url: str, work: Callable[[AsyncVMPool], Awaitable[None]], kind: type = AsyncVMPool) -> None:
    async def main() -> None:
        source = redis.asyncio.ConnectionPool.from_url(redis_url, connection_class=NotedByCoroutines)
        pool = kind(redis.asyncio.Redis(connection_pool=source), "test")
        try:
            await work(pool)
        finally:
            await pool.close()
            assert not any(one.is_connected for one in NOTES if isinstance(one, NotedByCoroutines))

    asyncio.run(main())


def test_coroutines_give_every_answer_the_same_deadlines(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[float] = []
    limit = asyncio.timeout

    def noted(seconds: float) -> asyncio.Timeout:
        limits.append(seconds)
        return limit(seconds)

    async def work(pool: AsyncVMPool) -> None:
        await pool._call(("PING",))
        monkeypatch.setattr(asyncio, "timeout", noted)
        assert await pool.renew([("a", 1)]) == [None]  # by its source at first
        assert await pool._perform(Pop("t", 0.05)) is None
        assert await pool._call(("PING",), 2.5) == "PONG"
        assert limits[-3:] == [5.0, 2.05, 2.5]
        assert set(limits[:-3]) <= {5.0}

    in_coroutines(redis_url, work)


def test_a_server_that_says_nothing_to_a_coroutine_is_given_up(redis_url: str) -> None:
    async def work(pool: AsyncVMPool) -> None:
        with pytest.raises(PoolUnreachable, match=r"^Redis at \S+ does not answer: no reply within 0\.05 s$"):
            await pool._call(("BLPOP", "nothing", "30"), 0.05)
        assert not NOTES[0].is_connected
        assert await pool._call(("PING",)) == "PONG"
        assert len(NOTES) == 2, "a late answer is never taken for another"

    in_coroutines(redis_url, work)


def test_a_pool_of_coroutines_closes_every_idle_connection(redis_url: str) -> None:
    async def work(pool: AsyncVMPool) -> None:
        await asyncio.gather(*(pool._call(("PING",)) for _ in range(3)))
        assert [one.is_connected for one in NOTES] == [True] * 3
        await pool.close()
        assert [one.is_connected for one in NOTES] == [False] * 3
        await pool.close()

    in_coroutines(redis_url, work)


@pytest.mark.parametrize(("reply", "deadlines"), [([7_000_000, 9_500_000, 0, 7_250_000], [102.5, None, 100.25])])
def test_a_renewed_lease_lives_from_before_the_question(
    pool: VMPool, redis_url: str, reply: list[int], deadlines: list[float | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    clock = SimpleNamespace(now=100.0, monotonic=lambda: clock.now)

    def run(script: str, *args: str | int, **options: float) -> list[int]:
        asked.append((script, args, options))
        clock.now += 50
        return reply

    async def run_later(script: str, *args: str | int) -> list[int]:
        return run(script, *args)

    async def work(coroutines: AsyncVMPool) -> None:
        monkeypatch.setattr(coroutines, "_run", run_later)
        assert await coroutines.renew([("a", 1), ("b", 2), ("c", 3)]) == deadlines

    monkeypatch.setattr(pool_module, "time", clock)
    monkeypatch.setattr(aio, "time", clock)
    monkeypatch.setattr(pool, "_run", run)
    assert pool.renew([("a", 1), ("b", 2), ("c", 3)]) == deadlines
    clock.now = 100.0
    in_coroutines(redis_url, work)

    words = ("a", 1, "b", 2, "c", 3)
    assert asked == [("renew", words, {"seconds": 5.0}), ("renew", words, {})]


def test_coroutines_and_threads_borrow_on_the_same_terms() -> None:
    terms = {"priority": 0, "timeout": 1800.0, "ttl": 60.0, "max_age": 21600.0, "token": None, "should_stop": None}
    terms["wait_while_empty"] = False
    for acquire, more in ((VMPool.acquire, {"heartbeat": True}), (AsyncVMPool.acquire, {})):
        parameters = inspect.signature(acquire).parameters.values()
        assert {one.name: one.default for one in parameters if one.default is not one.empty} == terms | more
    assert VMPool.__init__.__kwdefaults__ == {"events_kept": 100_000}
    assert PoolKeys("p").events_kept == 100_000


TERMS = {"priority": 3, "timeout": 7.5, "ttl": 40.0, "max_age": 50.0, "token": "t", "should_stop": bool}


@pytest.fixture
def wanted(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What acquisitions were begun for; none goes on."""
    seen: list[Any] = []

    def begun(request: Any, name: str) -> Any:
        seen.append(({key: getattr(request, key) for key in (*TERMS, "holder")}, name))
        raise ZeroDivisionError

    monkeypatch.setattr(pool_module, "acquisition", begun)
    monkeypatch.setattr(aio, "acquisition", begun)
    return seen


def test_every_term_reaches_the_request(pool: VMPool, redis_url: str, wanted: list[Any]) -> None:
    async def work(coroutines: AsyncVMPool) -> None:
        with pytest.raises(ZeroDivisionError):
            await coroutines.acquire("me", **TERMS)  # type: ignore[arg-type]

    with pytest.raises(ZeroDivisionError):
        pool.acquire("me", **TERMS)  # type: ignore[arg-type]
    in_coroutines(redis_url, work)
    assert wanted == [({**TERMS, "holder": "me"}, "test")] * 2


class Swallowing(AsyncVMPool):
    """A cancellation that comes with an answer is swallowed, as `wait_for` of Python 3.11 can."""

    async def _perform(self, step: Step) -> Any:
        outcome = await super()._perform(step)
        if isinstance(step, Ask):
            await cancelled_earlier()
        return outcome


async def cancelled_earlier() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    try:
        await asyncio.sleep(0)
    except asyncio.CancelledError:
        return


def test_a_cancellation_that_was_swallowed_gives_the_vm_back(pool: VMPool, redis_url: str) -> None:
    pool.register("vm-0", Endpoint("127.0.0.1"))

    async def work(coroutines: AsyncVMPool) -> None:
        with pytest.raises(asyncio.CancelledError):
            await coroutines.acquire("me", timeout=20)

    in_coroutines(redis_url, work, Swallowing)
    assert [vm.state for vm in pool.status().vms] == [VMState.FREE]


def test_an_earlier_cancellation_is_no_reason_to_stop(pool: VMPool, redis_url: str) -> None:
    pool.register("vm-0", Endpoint("127.0.0.1"))

    async def work(coroutines: AsyncVMPool) -> None:
        await cancelled_earlier()
        grant = await coroutines.acquire("me", timeout=20)
        assert grant.vm_id == "vm-0"

    in_coroutines(redis_url, work)


def test_each_step_does_what_it_says(pool: VMPool, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async def work(coroutines: AsyncVMPool) -> None:
        pool.redis.call("RPUSH", coroutines.keys.inbox("t"), "a message")
        assert await coroutines._perform(Pop("t", 20)) == "a message"
        assert (await coroutines._perform(Leave(("t", "0"))))[:2] == [0, 0]
        with monkeypatch.context() as patched:
            patched.setattr(asyncio, "sleep", sleep)
            assert await coroutines._perform(Sleep(3.5)) is None

    pool.redis.call("RPUSH", pool.keys.inbox("t"), "a message")
    assert pool._perform(Pop("t", 20)) == "a message"
    assert pool._perform(Leave(("t", "0")))[:2] == [0, 0]
    with monkeypatch.context() as patched:
        patched.setattr(pool_module, "time", SimpleNamespace(sleep=slept.append))
        assert pool._perform(Sleep(2.5)) is None
    in_coroutines(redis_url, work)
    assert slept == [2.5, 3.5]
