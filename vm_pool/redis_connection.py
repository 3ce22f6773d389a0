"""Short ways to Redis for small scripts: own connections, no retry hidden beneath ours, every reply with a deadline.

`redis.Redis.execute_command` costs several times what a script of the pool does, and its retries can hold a caller for
many seconds. The connections here take address, TLS and password from the given client.
"""

from __future__ import annotations

import os
import select
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, cast

import hiredis
import redis
from redis.exceptions import AuthenticationError, AuthorizationError, NoScriptError, RedisError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from vm_pool.errors import PoolError, PoolRefused, PoolRefusedForNow, PoolUnreachable
from vm_pool.redis_refusals import passing_refusal

REPLY_SECONDS = 5.0
"""How long a connection, or a reply, may take unless the caller says otherwise."""

packed = cast("Callable[[tuple[str | int, ...]], bytes]", hiredis.pack_command)
"""A command as it travels. (The stub knows tuples of one word only.)"""


class RedisConnection:
    """Connections to one Redis, shared by threads, made anew in a forked child."""

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
            PoolUnreachable: Nothing came back; the command may or may not have been carried out.
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
            self.close()  # the other idle connections are no better
            raise

    @property
    def password(self) -> str | None:
        """What Redis is told by who connects; None where it asks for nothing."""
        source = self._source.connection_kwargs
        if (provider := source.get("credential_provider")) is not None:
            return str(provider.get_credentials()[-1])
        said = source.get("password")
        return str(said) if said else None

    def breaks(self) -> int:
        """How many connections have ended that should not have, an idle one that ended unnoticed among them.

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
                self._idle.append(connection)  # an answer, if not the wanted one
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
    """Whether an idle connection's other side has closed it: nothing else makes it readable."""
    look = select.poll()
    look.register(connection._sock, select.POLLIN)
    return bool(look.poll(0))


def connection_options(client: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """A client's own options, changed so that a connection never retries, never blocks for ever, and speaks text.

    Args:
        client: The options of its connection pool.
        seconds: How long connecting may take.
    """
    options = {key: value for key, value in client.items() if not key.startswith(("maint", "oss_cluster"))}
    return options | {
        "decode_responses": True,
        "protocol": 2,
        "health_check_interval": 0,
        "retry": None,
        "retry_on_timeout": False,
        "retry_on_error": [],
        "socket_timeout": REPLY_SECONDS,
        "socket_connect_timeout": min(seconds, REPLY_SECONDS),
    }


def place_of(client: Mapping[str, Any]) -> str:
    """Where a client's connections lead, without its password."""
    return str(client.get("path") or f"{client.get('host', 'localhost')}:{client.get('port', 6379)}")


def as_pool_error(error: BaseException, where: str) -> PoolError | None:
    """What a connection raised, in the pool's words; None for what is not about Redis, and for a script it lacks."""
    if isinstance(error, NoScriptError):
        return None
    if isinstance(error, (AuthenticationError, AuthorizationError)):
        return PoolRefused(f"Redis at {where} refuses access: {error}")
    if isinstance(error, (RedisConnectionError, RedisTimeoutError, OSError)):
        return PoolUnreachable(f"Redis at {where} does not answer: {error}")
    if isinstance(error, ResponseError) and (sentence := passing_refusal(error)):
        return PoolRefusedForNow(f"Redis at {where} refuses: {sentence}")
    return PoolRefused(f"Redis at {where} refuses: {error}") if isinstance(error, RedisError) else None
