"""A fast Redis client for the pool's scripts: its own connections, no hidden retries, a deadline for every reply.

`redis.Redis.execute_command` costs several times as much as one of the pool's scripts, and its retries can block a
caller for many seconds. The connections here take address, TLS and password from the given client.
"""

from __future__ import annotations

import os
import select
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, cast

import hiredis
import redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from vm_pool.errors import PoolError, PoolRefused, PoolRefusedForNow, PoolUnreachable
from vm_pool.redis_refusals import passing_refusal, refused_login, untrusted

REPLY_SECONDS = 5.0
"""How long connecting, or a reply, may take unless the caller says otherwise."""

packed = cast("Callable[[tuple[str | int, ...]], bytes]", hiredis.pack_command)
"""Encodes a command for sending. (The stub only knows tuples of one word.)"""


class RedisConnection:
    """Connections to one Redis, shared by threads; a forked child makes new ones."""

    def __init__(self, client: redis.Redis) -> None:
        self._source = client.connection_pool
        self._idle: deque[Any] = deque()
        self._process = os.getpid()
        self._breaks = 0
        self.where = place_of(self._source.connection_kwargs)

    def call(self, *command: str | int, seconds: float = REPLY_SECONDS) -> Any:
        """Sends one command and returns its reply; never sends it twice.

        Args:
            command: The command's words.
            seconds: How long the reply may take.

        Raises:
            PoolUnreachable: No reply came; the command may or may not have been executed.
            PoolRefused: The reply is an error.
            NoScriptError: The server does not have the script.
        """
        if self._process != os.getpid():
            self._idle, self._process = deque(), os.getpid()
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._connect(seconds)
        try:
            return self._exchange(connection, command, seconds)
        except PoolUnreachable:
            self._breaks += 1
            self.close()  # the other idle connections have most likely ended, too
            raise

    @property
    def password(self) -> str | None:
        """The password for Redis; None where it needs none."""
        source = self._source.connection_kwargs
        if (provider := source.get("credential_provider")) is not None:
            return str(provider.get_credentials()[-1])
        said = source.get("password")
        return str(said) if said else None

    def breaks(self) -> int:
        """Returns how many connections have ended unexpectedly, including an idle one that has ended since.

        When it has grown, Redis may have been restarted. Sends nothing.
        """
        try:
            connection = self._idle.pop() if self._process == os.getpid() else None
        except IndexError:
            connection = None
        if connection is not None:
            if _has_ended(connection):
                connection.disconnect()
                self._breaks += 1
            else:
                self._idle.append(connection)
        return self._breaks

    def close(self) -> None:
        """Closes the idle connections; a later call opens new ones."""
        while self._idle:
            self._idle.pop().disconnect()

    def _exchange(self, connection: Any, command: tuple[str | int, ...], seconds: float) -> Any:
        try:
            connection.send_packed_command((packed(command),), check_health=False)
            reply = connection.read_response(**({} if seconds == REPLY_SECONDS else {"timeout": seconds}))
        except BaseException as error:
            if isinstance(error, ResponseError) and connection._sock is not None:
                self._idle.append(connection)  # an error reply leaves the connection usable
            else:
                connection.disconnect()
            if (known := as_pool_error(error, self.where)) is not None:
                raise known from error
            raise
        self._idle.append(connection)
        return reply

    def _connect(self, seconds: float) -> Any:
        return self._source.connection_class(**connection_options(self._source.connection_kwargs, seconds))


def _has_ended(connection: Any) -> bool:
    """Whether the other side has closed an idle connection: nothing else makes it readable."""
    look = select.poll()
    look.register(connection._sock, select.POLLIN)
    return bool(look.poll(0))


def connection_options(client: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """Returns a client's options, changed so that a connection never retries, never blocks forever, and returns text.

    Args:
        client: The options of its connection pool.
        seconds: How long connecting may take.
    """
    options = {key: value for key, value in client.items() if not key.startswith(("maint", "oss_cluster"))}
    return options | {
        "decode_responses": True,
        "protocol": 2,
        "driver_info": None,  # to tell Redis its version, redis-py reads its package's metadata for each connection
        "health_check_interval": 0,
        "retry": None,
        "retry_on_timeout": False,
        "retry_on_error": [],
        "socket_timeout": REPLY_SECONDS,
        "socket_connect_timeout": min(seconds, REPLY_SECONDS),
    }


def place_of(client: Mapping[str, Any]) -> str:
    """Returns the address of a client's connections, without its password."""
    return str(client.get("path") or f"{client.get('host', 'localhost')}:{client.get('port', 6379)}")


def as_pool_error(error: BaseException, where: str) -> PoolError | None:
    """Converts a connection's error into a pool error; None if it is not about Redis, and for a missing script."""
    if isinstance(error, NoScriptError):
        return None
    if sentence := refused_login(error, where) or untrusted(error, where):
        return PoolRefused(sentence)
    if isinstance(error, (RedisConnectionError, RedisTimeoutError, OSError)):
        return PoolUnreachable(f"Redis at {where} does not answer: {error}")
    if isinstance(error, ResponseError) and (sentence := passing_refusal(error)):
        return PoolRefusedForNow(f"Redis at {where} refuses: {sentence}")
    return PoolRefused(f"Redis at {where} refuses: {error}") if isinstance(error, RedisError) else None
