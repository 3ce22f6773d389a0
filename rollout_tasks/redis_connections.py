"""Connections that tell a Redis which is there but does nothing now, and how long each kind of trouble is waited out.

Which answers say so is in vm_pool/redis_refusals.py. Such a server is like one that cannot be reached, so these connections
raise `RedisRefuses`, which is a connection error. A command is sent again over a new connection: the name may lead to another
server by then.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable
from typing import Any, TypeVar

import redis
from redis.backoff import ExponentialWithJitterBackoff
from redis.exceptions import BusyLoadingError, ConnectionError, ResponseError, TimeoutError
from redis.retry import Retry

from vm_pool.redis_refusals import passing_refusal

logger = logging.getLogger(__name__)

_Answer = TypeVar("_Answer")


class RedisRefuses(ConnectionError):
    """Redis is there, but does not do what it is asked for now."""


def as_refusal(error: ResponseError) -> RedisRefuses | None:
    """The refusal that an answer is, with its code; None for an answer that says the command was wrong."""
    sentence = passing_refusal(error)
    return RedisRefuses(f"Redis refuses: {sentence}") if sentence else None


class _Connection:
    """What is the same for each kind of connection."""

    def read_response(self, *args: Any, **options: Any) -> Any:
        """Reads an answer.

        Raises:
            RedisRefuses: It says that Redis does nothing now.
        """
        try:
            return super().read_response(*args, **options)  # type: ignore[misc]
        except ResponseError as error:
            refusal = as_refusal(error)
            if refusal is None:
                raise
            raise refusal from error


class TCPConnection(_Connection, redis.Connection):
    """Over TCP."""


class TLSConnection(_Connection, redis.SSLConnection):
    """Over TLS."""


class SocketConnection(_Connection, redis.UnixDomainSocketConnection):
    """Over a Unix socket."""


def connection_class(url: str) -> type[redis.Connection]:
    """The class of connections to a Redis URL."""
    by_scheme: dict[str, Any] = {"rediss": TLSConnection, "unix": SocketConnection}
    return by_scheme.get(url.split("://", 1)[0], TCPConnection)  # type: ignore[no-any-return]


class Patience(Retry):
    """Sends a command again after a failure: so many times where Redis is away, for so many seconds where it refuses.

    Says when it begins to wait and when that is over, if it may wait for long.
    """

    __hash__ = Retry.__hash__

    def __init__(self, tries: int, refused_seconds: float = 0.0) -> None:
        backoff = ExponentialWithJitterBackoff(base=0.05, cap=2.0)
        super().__init__(backoff, tries, (ConnectionError, TimeoutError, socket.timeout))
        self.refused_seconds = refused_seconds
        self._trying = False

    def call_with_retry(
        self,
        do: Callable[[], _Answer],
        fail: Callable[..., Any],
        is_retryable: Callable[[Exception], bool] | None = None,
        with_failure_count: bool = False,
    ) -> _Answer:
        """Does it until it works, or until patience is at an end."""
        if self._trying:  # connecting, as a part of a command: the command is what is tried again
            return self._once(do, fail, with_failure_count)
        self._trying = True
        try:
            return self._repeatedly(do, fail, is_retryable, with_failure_count)
        finally:
            self._trying = False

    def _once(self, do: Callable[[], _Answer], fail: Callable[..., Any], with_failure_count: bool) -> _Answer:
        try:
            return do()
        except self._supported_errors as error:
            fail(*((error, 1) if with_failure_count else (error,)))
            raise

    def _repeatedly(
        self,
        do: Callable[[], _Answer],
        fail: Callable[..., Any],
        is_retryable: Callable[[Exception], bool] | None,
        with_failure_count: bool,
    ) -> _Answer:
        began = time.monotonic()
        failures, lost, said = 0, 0, False
        while True:
            try:
                answer = do()
            except self._supported_errors as error:
                if is_retryable and not is_retryable(error):
                    raise
                refused = isinstance(error, (RedisRefuses, BusyLoadingError))
                failures += 1
                lost += not (refused and self.refused_seconds)
                fail(*((error, failures) if with_failure_count else (error,)))
                if 0 <= self._retries < lost or (refused and time.monotonic() - began > self.refused_seconds > 0):
                    raise
                if self.refused_seconds and not said and failures > 1:
                    logger.warning("waiting for Redis: %s", error)
                    said = True
                time.sleep(self._backoff.compute(failures))
            else:
                if said:
                    logger.warning("Redis works again; waited %.1f s for it", time.monotonic() - began)
                return answer
