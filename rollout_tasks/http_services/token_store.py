"""Tokens of a service's users, in Redis: only their digests, each with a name and a quota. Not the tokens of the environment.

HASH rollouts:service_tokens   name -> {"digest": SHA-256 in hexadecimal, "quota": 4, "made": seconds since 1970}
"""

from __future__ import annotations

import hashlib
import json
import secrets
from dataclasses import dataclass
from typing import Any

import redis
from redis.client import Pipeline

from rollout_tasks.config_fields import check_name
from rollout_tasks.errors import UserError
from rollout_tasks.redis_client import server_time

KEY = "rollouts:service_tokens"
LONGEST_NAME = 64
LARGEST_QUOTA = 100_000
PREFIX = "rt-"
"""Begins every token, so that people and secret scanners recognise one."""
_TOKEN_BYTES = 24


@dataclass(frozen=True, slots=True)
class StoredToken:
    """What is kept of one token."""

    name: str
    digest: str
    """SHA-256 in hexadecimal."""
    quota: int
    """The most leases that its holder may have at a time."""
    made: float
    """Seconds since 1970, by Redis's clock."""


class TokenStore:
    """The tokens. Programs on all machines share them."""

    def __init__(self, client: redis.Redis) -> None:
        """Takes a client; whoever made it closes it."""
        self._client = client

    def make(self, name: str, quota: int) -> str:
        """Makes a token, and returns it: it cannot be read again.

        Args:
            name: Whose it is.
            quota: The most leases that its holder may have at a time.

        Raises:
            UserError: The name or the quota is wrong, or the name has a token already.
        """
        token = PREFIX + secrets.token_hex(_TOKEN_BYTES)
        stored = StoredToken(
            _checked(name), digest_of(token.encode()), _checked_quota(quota), server_time(self._client)
        )
        if not self._client.hsetnx(KEY, name, _as_json(stored)):
            raise UserError(f"{name!r} has a token already: revoke it first (rollouts desktops token revoke {name})")
        return token

    def all(self) -> list[StoredToken]:
        """Returns what is kept of all tokens, by name; leaves out what cannot be read."""
        found: Any = self._client.hgetall(KEY)
        read = (_from_json(name, text) for name, text in sorted(found.items()))
        return [one for one in read if one is not None]

    def set_quota(self, name: str, quota: int) -> None:
        """Changes the quota of a token; leases beyond it go on.

        Raises:
            UserError: There is no such token, or the quota is wrong.
        """
        _checked_quota(quota)

        def change(pipeline: Pipeline) -> None:  # a token that is revoked meanwhile must not come back
            text: Any = pipeline.hget(KEY, name)
            known = None if text is None else _from_json(name, text)
            if known is None:
                raise UserError(f"there is no token of {name[:LONGEST_NAME]!r}")
            pipeline.multi()
            pipeline.hset(KEY, name, _as_json(StoredToken(name, known.digest, quota, known.made)))

        self._client.transaction(change, KEY)

    def revoke(self, name: str) -> None:
        """Makes a token worthless.

        Raises:
            UserError: There is no such token.
        """
        if not self._client.hdel(KEY, name):
            raise UserError(f"there is no token of {name[:LONGEST_NAME]!r}")


def digest_of(token: bytes) -> str:
    """Returns what is kept of a token."""
    return hashlib.sha256(token).hexdigest()


def _checked(name: str) -> str:
    try:
        return check_name(name, LONGEST_NAME)
    except ValueError as error:
        raise UserError(f"NAME: {error}") from error


def _checked_quota(quota: int) -> int:
    if not 0 <= quota <= LARGEST_QUOTA:
        raise UserError(f"a quota is a whole number from 0 to {LARGEST_QUOTA:,}, got {quota}")
    return quota


def _as_json(stored: StoredToken) -> str:
    return json.dumps({"digest": stored.digest, "quota": stored.quota, "made": stored.made})


def _from_json(name: str, text: str) -> StoredToken | None:
    try:
        values = json.loads(text)
        return StoredToken(name, str(values["digest"]), int(values["quota"]), float(values["made"]))
    except (ValueError, TypeError, KeyError):
        return None
