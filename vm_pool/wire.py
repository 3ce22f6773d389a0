"""Short ways to Redis for small scripts: own connections, no retry hidden beneath ours, every reply with a deadline.

`redis.Redis.execute_command` costs several times what a script of the pool does, and its retries can hold a caller for
many seconds. The connections here take address, TLS and password from the given client.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from typing import Any, cast

import hiredis
import redis
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, AuthorizationError, NoScriptError, RedisError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry

from vm_pool.errors import PoolRefused, PoolUnreachable

REPLY_SECONDS = 5.0
"""How long a connection, or a reply, may take unless the caller says otherwise."""


_pack = cast("Callable[[tuple[str | int, ...]], bytes]", hiredis.pack_command)  # its stub knows tuples of one word


class Wire:
    """Connections to one Redis, shared by threads, made anew in a forked child."""

    def __init__(self, client: redis.Redis) -> None:
        self._source = client.connection_pool
        self._idle: deque[Any] = deque()
        self._process = os.getpid()
        kwargs = self._source.connection_kwargs
        self.where = str(kwargs.get("path") or f"{kwargs.get('host', 'localhost')}:{kwargs.get('port', 6379)}")

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
            self.close()  # the other idle connections are no better
            raise

    def close(self) -> None:
        """Closes the idle connections; a later call opens new ones."""
        while self._idle:
            self._idle.pop().disconnect()

    def _exchange(self, connection: Any, command: tuple[str | int, ...], seconds: float) -> Any:
        try:
            connection.send_packed_command((_pack(command),), check_health=False)
            reply = connection.read_response(**({} if seconds == REPLY_SECONDS else {"timeout": seconds}))
        except (AuthenticationError, AuthorizationError) as error:
            connection.disconnect()
            raise PoolRefused(f"Redis at {self.where} refuses access: {error}") from error
        except NoScriptError:
            self._idle.append(connection)
            raise
        except (RedisConnectionError, RedisTimeoutError, OSError) as error:
            connection.disconnect()
            raise PoolUnreachable(f"Redis at {self.where} does not answer: {error}") from error
        except RedisError as error:
            self._idle.append(connection)
            raise PoolRefused(f"Redis at {self.where} refuses: {error}") from error
        except BaseException:
            connection.disconnect()
            raise
        self._idle.append(connection)
        return reply

    def _connect(self, seconds: float) -> Any:
        taken = self._source.connection_kwargs
        kwargs = {key: value for key, value in taken.items() if not key.startswith(("maint", "oss_cluster"))}
        kwargs |= {
            "decode_responses": True,
            "protocol": 2,
            "health_check_interval": 0,
            "retry": Retry(NoBackoff(), 0),
            "retry_on_timeout": False,
            "retry_on_error": [],
            "socket_timeout": REPLY_SECONDS,
            "socket_connect_timeout": min(seconds, REPLY_SECONDS),
        }
        return self._source.connection_class(**kwargs)
