"""Redis connections that recognise a server which is up but refuses for now, and how long trouble is retried.

vm_pool/redis_refusals.py knows which answers mean that. Such a server is like one that cannot be reached, so these
connections raise `RedisRefuses`, which is a connection error. A command is sent again over a new connection, because
the name may lead to another server by then.
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
    """Redis is up, but refuses what it is asked for now."""


def as_refusal(error: ResponseError) -> RedisRefuses | None:
    """Returns the refusal in an answer, with its code; None if the answer says that the command was wrong."""
    sentence = passing_refusal(error)
    return RedisRefuses(f"Redis refuses: {sentence}") if sentence else None


class _Connection:
    """The common part of all kinds of connections."""

    def read_response(self, *args: Any, **options: Any) -> Any:
        """Reads an answer.

        Raises:
            RedisRefuses: The answer says that Redis refuses for now.
        """
        try:
            return super().read_response(*args, **options)  # type: ignore[misc]
        except ResponseError as error:
            refusal = as_refusal(error)
            if refusal is None:
                raise
            raise refusal from error


class TCPConnection(_Connection, redis.Connection):
    """A connection over TCP."""


class TLSConnection(_Connection, redis.SSLConnection):
    """A connection over TLS."""


def connection_class(url: str) -> type[redis.Connection]:
    """Returns the class of connections to a Redis URL."""
    return TLSConnection if url.startswith("rediss://") else TCPConnection


_LONGEST_AFTER = 10
"""Failures after which a pause is the longest; `redis` computes no more than 1,023 powers of two."""


class PatientRetry(Retry):
    """Sends a command again after a failure: `tries` times if Redis is away, for `refused_seconds` if it refuses.

    Logs when it begins to wait and when that is over, if it may wait for long.
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
        """Calls `do` until it works, or until the tries or seconds are used up."""
        if self._trying:  # connecting, as a part of a command: the command itself is tried again
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
                time.sleep(self._backoff.compute(min(failures, _LONGEST_AFTER)))
            else:
                if said:
                    logger.warning("Redis works again; waited %.1f s for it", time.monotonic() - began)
                return answer
