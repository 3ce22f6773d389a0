"""Redis connections with the right patience for each use: work waits out a restart, heartbeats and commands do not."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import redis
from redis.exceptions import NoScriptError

from rollout_tasks.errors import UserError
from rollout_tasks.per_process import per_process
from rollout_tasks.redis_connections import PatientRetry, connection_class
from rollout_tasks.settings import settings
from vm_pool.lua_scripts import scripts
from vm_pool.redis_refusals import refused_login, untrusted

PATIENT_TRIES = 240
"""With 2 s between tries after the first few: about eight minutes, longer than a Redis server's restart."""
REFUSED_SECONDS = 3600.0
"""How long work waits for a Redis that is up but refuses: its operator may have to be woken first."""

_PROOF_SECONDS = 5.0
"""How long Redis may take to answer a check."""
_DURABLE_MILLISECONDS = 3_000
"""How long to wait until the server has written to disk: three times what everysec takes."""
_WORKS = threading.Event()


def connect(
    *, tries: int, refused_seconds: float = 0.0, socket_timeout: float = 10.0, url: str | None = None
) -> redis.Redis:
    """Returns a client for this process's Redis.

    Args:
        tries: How often a command is sent again after a lost connection; every script here may be repeated safely.
        refused_seconds: How long it is sent again while Redis is up but refuses; when 0, `tries` times.
        socket_timeout: Seconds one reply may take.
        url: Another address than the configured one.
    """
    address = url or settings().redis_address
    return redis.Redis.from_url(
        address,
        decode_responses=True,
        connection_class=connection_class(address),
        retry=PatientRetry(tries, refused_seconds),
        socket_timeout=socket_timeout,
        socket_connect_timeout=5,
        socket_keepalive=True,
        health_check_interval=25,
        driver_info=None,  # to tell Redis its version, redis-py reads its package's metadata for each connection
    )


def let_celery_wait() -> None:
    """Marks this process as carrying out tasks: Celery's connections in it wait for Redis like ours."""
    _WORKS.set()


def let_celery_not_wait() -> None:
    """Marks this process as about to end: connections that Celery makes from now on no longer wait."""
    _WORKS.clear()


def celery_retry_options() -> dict[str, Any]:
    """Returns the option that makes Celery's connections wait for Redis, in a process that carries out tasks."""
    return {"retry": PatientRetry(PATIENT_TRIES, REFUSED_SECONDS)} if _WORKS.is_set() else {}


@per_process
def worker_client() -> redis.Redis:
    """Returns this process's patient client; made after the fork, never shared across one."""
    return connect(tries=PATIENT_TRIES, refused_seconds=REFUSED_SECONDS)


def checked_client(url: str | None = None) -> redis.Redis:
    """Returns an impatient client for commands, after checking that Redis answers.

    Args:
        url: Another address than the configured one.

    Raises:
        UserError: Redis cannot be reached, is not trusted, or refuses the password; names the address without its password.
    """
    address = url or settings().redis_address
    try:
        _prove(address, "--redis-url" if url else "REDIS_URL")
    except redis.RedisError as error:
        hint = "" if url or settings().broker_configured else "; set REDIS_URL to where it is"
        why = str(error).rstrip(".")
        raise UserError(f"Redis at {address_without_secret(address)} cannot be reached: {why}{hint}") from error
    return connect(tries=1, socket_timeout=10, url=address)


def check_login() -> None:
    """Checks that Redis is trusted and accepts the login, for a program that waits for a Redis which is away.

    Raises:
        UserError: It is not, or does not; names the address without its password.
    """
    with suppress(redis.RedisError):
        _prove(settings().redis_address, "REDIS_URL")


def _prove(address: str, named_by: str) -> None:
    """Has Redis answer once.

    Args:
        address: Where it is.
        named_by: The option or variable that says so.

    Raises:
        UserError: It refuses the login, is not trusted, or its address is wrong.
    """
    place = address_without_secret(address)
    try:
        with connect(tries=0, socket_timeout=_PROOF_SECONDS, url=address) as probe:
            probe.ping()
    except redis.RedisError as error:
        if sentence := refused_login(error, place) or untrusted(error, place):
            raise UserError(sentence) from error
        raise
    except ValueError as error:
        raise UserError(f"{named_by}: must look like redis://:password@host:6379/0, got {place}") from error


def address_without_secret(url: str) -> str:
    """Returns host:port/db of a Redis URL, for messages."""
    return url.split("?", 1)[0].rsplit("@", 1)[-1].rsplit("://", 1)[-1]


def server_time(client: redis.Redis) -> float:
    """Returns the time of Redis's clock, in seconds since 1970: the only clock that all machines share."""
    answer: Any = client.time()
    return float(answer[0]) + float(answer[1]) / 1e6


def wait_until_durable(client: redis.Redis) -> None:
    """Waits a few seconds at most until the server's disk has what this client wrote, if it keeps an append-only file."""
    with suppress(redis.ResponseError):  # an older server, or one without such a file
        client.waitaof(1, 0, _DURABLE_MILLISECONDS)


class LuaScripts:
    """A folder of Lua scripts, called by name: ``LuaScripts(folder).run(client, "commit", keys, args)``."""

    def __init__(self, folder: Path) -> None:
        self._scripts = scripts(folder)

    def run(self, client: redis.Redis, name: str, keys: list[str], args: list[Any]) -> Any:
        """Runs one script; sends its source if the server does not have it."""
        script = self._scripts[name]
        try:
            return client.evalsha(script.sha, len(keys), *keys, *args)
        except NoScriptError:
            return client.eval(script.source, len(keys), *keys, *args)
