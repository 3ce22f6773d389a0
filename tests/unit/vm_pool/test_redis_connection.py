"""How the pool speaks to Redis: its connections' options, its words for what goes wrong, and what it does with connections."""

from __future__ import annotations

import asyncio
import os

import pytest
import redis
import redis.asyncio
from redis import exceptions

from vm_pool.aio import AsyncVMPool
from vm_pool.errors import PoolError, PoolRefused, PoolRefusedForNow, PoolUnreachable
from vm_pool.redis_connection import REPLY_SECONDS, RedisConnection, as_pool_error, connection_options, place_of


def test_connections_never_try_again_by_themselves_and_speak_text() -> None:
    client = {"host": "h", "password": "s", "maint_notifications_config": 1, "oss_cluster_x": 2, "retry": 3, "db": 4}

    assert connection_options(client, 2.0) == {
        "host": "h",
        "password": "s",
        "db": 4,
        "decode_responses": True,
        "protocol": 2,
        "driver_info": None,
        "health_check_interval": 0,
        "retry": None,
        "retry_on_timeout": False,
        "retry_on_error": [],
        "socket_timeout": REPLY_SECONDS,
        "socket_connect_timeout": 2.0,
    }
    assert connection_options({}, 1e9)["socket_connect_timeout"] == REPLY_SECONDS


def test_a_place_is_named_without_its_password() -> None:
    assert place_of({}) == "localhost:6379"
    assert place_of({"host": "h", "port": 1, "password": "s"}) == "h:1"
    assert place_of({"path": "/run/redis.sock", "host": "h"}) == "/run/redis.sock"


@pytest.mark.parametrize(
    ("error", "kind", "sentence"),
    [
        (exceptions.NoScriptError("x"), None, ""),
        (ValueError("x"), None, ""),
        (
            exceptions.AuthenticationError("x"),
            PoolRefused,
            "Redis at h refuses the login: check the user and the password in its URL, REDIS_URL by default (x)",
        ),
        (
            exceptions.AuthorizationError("x"),
            PoolRefused,
            "Redis at h refuses the login: check the user and the password in its URL, REDIS_URL by default (x)",
        ),
        (
            exceptions.ResponseError("NOAUTH x"),
            PoolRefused,
            "Redis at h refuses the login: check the user and the password in its URL, REDIS_URL by default (NOAUTH x)",
        ),
        (exceptions.ConnectionError("x"), PoolUnreachable, "Redis at h does not answer: x"),
        (exceptions.TimeoutError("x"), PoolUnreachable, "Redis at h does not answer: x"),
        (OSError("x"), PoolUnreachable, "Redis at h does not answer: x"),
        (exceptions.ResponseError("OOM no memory"), PoolRefusedForNow, "Redis at h refuses: OOM no memory"),
        (exceptions.ReadOnlyError("READONLY a replica"), PoolRefusedForNow, "Redis at h refuses: READONLY a replica"),
        (exceptions.ResponseError("ERR wrong"), PoolRefused, "Redis at h refuses: ERR wrong"),
        (exceptions.DataError("x"), PoolRefused, "Redis at h refuses: x"),
    ],
)
def test_what_goes_wrong_is_said_in_the_pools_words(
    error: Exception, kind: type[PoolError] | None, sentence: str
) -> None:
    found = as_pool_error(error, "h")

    assert (type(found) if found else None) is kind
    assert str(found or "") == sentence


@pytest.fixture
def client(redis_url: str) -> redis.Redis:
    return redis.Redis.from_url(redis_url)


@pytest.fixture
def connection(client: redis.Redis) -> RedisConnection:
    return RedisConnection(client)


def number(connection: RedisConnection) -> int:
    """The server's number of the connection that is used next."""
    return int(connection.call("CLIENT", "ID"))


def test_one_connection_serves_calls_in_a_row(connection: RedisConnection) -> None:
    first = number(connection)

    assert connection.call("PING") == "PONG"
    with pytest.raises(PoolRefused, match="refuses: unknown command"):
        connection.call("NONSENSE")
    with pytest.raises(exceptions.NoScriptError):
        connection.call("EVALSHA", "0" * 40, 0)
    assert number(connection) == first
    assert connection.breaks() == 0
    assert number(connection) == first
    connection.close()
    assert number(connection) != first
    assert connection.breaks() == 0


def test_coroutines_keep_a_connection_that_was_refused_something_and_drop_a_broken_one(
    redis_url: str, client: redis.Redis
) -> None:
    async def work() -> None:
        async with redis.asyncio.Redis.from_url(redis_url) as own:
            pool = AsyncVMPool(own, "test")
            first = await pool._call(("CLIENT", "ID"))
            with pytest.raises(PoolRefused, match="refuses: unknown command"):
                await pool._call(("NONSENSE",))
            assert await pool._call(("CLIENT", "ID")) == first
            client.client_kill_filter(_id=str(first))
            with pytest.raises(PoolUnreachable, match="does not answer"):
                await pool._call(("PING",))
            assert await pool._call(("CLIENT", "ID")) != first
            await pool.close()

    asyncio.run(work())


def test_coroutines_bring_scripts_to_a_server_that_has_lost_them(redis_url: str, client: redis.Redis) -> None:
    async def work() -> None:
        async with redis.asyncio.Redis.from_url(redis_url) as own:
            pool = AsyncVMPool(own, "test")
            for _ in range(2):
                client.script_flush()
                assert await pool.release("nobody", 1) is False
            await pool.close()

    asyncio.run(work())


def test_a_connection_that_ended_unnoticed_is_counted_once(connection: RedisConnection, client: redis.Redis) -> None:
    ended = number(connection)
    client.client_kill_filter(_id=str(ended))

    assert [connection.breaks(), connection.breaks()] == [1, 1]
    assert number(connection) != ended


def test_a_call_that_is_not_answered_counts_and_closes_all_connections(
    connection: RedisConnection, client: redis.Redis
) -> None:
    others = [connection._connect(1.0) for _ in range(3)]
    for other in others:
        other.connect()
        connection._idle.append(other)
    ended = number(connection)
    client.client_kill_filter(_id=str(ended))

    with pytest.raises(PoolUnreachable, match=r"^Redis at 127\.0\.0\.1:\d+ does not answer: "):
        connection.call("PING")

    assert connection.breaks() == 1
    assert not any(connection.is_connected for connection in others)
    assert connection.call("PING") == "PONG"


def test_a_late_reply_is_not_waited_for_longer_than_asked_and_never_taken_for_another(
    connection: RedisConnection,
) -> None:
    with pytest.raises(PoolUnreachable, match="does not answer"):
        connection.call("BLPOP", "nothing", "30", seconds=0.2)
    assert connection.call("PING") == "PONG"
    assert connection.breaks() == 1


def test_a_forked_child_makes_its_own_connections(connection: RedisConnection) -> None:
    first = number(connection)
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        try:
            os.write(writing, f"{number(connection)} {connection.breaks()}".encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)

    own, breaks = os.read(reading, 100).decode().split()
    os.close(reading)
    os.close(writing)
    assert int(own) != first
    assert breaks == "0"
    assert number(connection) == first
