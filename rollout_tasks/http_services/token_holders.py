"""Who comes with a token: an operator of the service (a token of the environment), or a user with a quota (one of Redis)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass

import redis

from rollout_tasks.http_services.token_store import StoredToken, TokenStore, digest_of
from rollout_tasks.http_services.tokens import ServiceTokens

logger = logging.getLogger(__name__)

_OPERATOR = "operator:"
_DIGEST_CHARACTERS = 16
READ_SECONDS = 1.0
"""How often the tokens are read anew: for so long a revoked one still works."""


@dataclass(frozen=True, slots=True)
class TokenHolder:
    """Who a token belongs to."""

    name: str
    quota: int | None
    """The most leases at a time; None for an operator, who has no quota."""
    operator: bool = False
    """Whether the holder sees and ends everybody's leases, and sets quotas."""
    digest: str = ""
    """The token's, if it is one of Redis."""

    @property
    def owner(self) -> str:
        """What leases are marked with. An operator and a user may have the same name, and so may two users, one after the other."""
        return f"{_OPERATOR}{self.name}" if self.operator else f"{self.name}#{self.digest[:_DIGEST_CHARACTERS]}"


def name_in(owner: str) -> str:
    """Returns the name of an owner, for those who may see it."""
    return owner.partition("#")[0]


def is_operator(owner: str) -> bool:
    """Whether an owner is an operator."""
    return owner.startswith(_OPERATOR)


class TokenHolders:
    """Everybody who may use a service. Threads may share it; it knows what Redis said last while that is away."""

    def __init__(self, operators: ServiceTokens | None, store: TokenStore) -> None:
        """Reads nothing yet.

        Args:
            operators: The tokens of the environment, if there are any.
            store: Those of Redis.
        """
        self._operators = operators
        self._store = store
        self._users: dict[str, StoredToken] = {}
        self._reading = threading.Lock()
        self.when_read: Callable[[Collection[str]], object] | None = None
        """Told the owners of all users' tokens whenever they were read; operators are not among them."""
        self._stop = threading.Event()

    def start(self) -> None:
        """Reads the tokens, and keeps reading them until `close`.

        Raises:
            redis.RedisError: Redis does not answer.
        """
        self.read()
        threading.Thread(target=self._keep_reading, name="tokens", daemon=True).start()

    def close(self) -> None:
        """Stops reading."""
        self._stop.set()

    def read(self) -> None:
        """Reads the tokens now.

        Raises:
            redis.RedisError: Redis does not answer.
        """
        with self._reading:
            self._users = {one.digest: one for one in self._store.all()}
            if self.when_read is not None:
                self.when_read({one.owner for one in self.users()})

    def holder(self, token: bytes) -> TokenHolder | None:
        """Returns who a token belongs to; None if it is nobody's. The digest is looked up, so timing tells nothing of a token."""
        if self._operators is not None and (name := self._operators.name_of(token)):
            return TokenHolder(name, None, operator=True)
        stored = self._users.get(digest_of(token))
        return None if stored is None else _user(stored)

    def knows(self, holder: TokenHolder) -> bool:
        """Returns whether a holder's token still works; for whoever must not keep the token to ask again."""
        return holder.operator or holder.digest in self._users

    def users(self) -> list[TokenHolder]:
        """Returns the users, by name."""
        return sorted(map(_user, self._users.values()), key=lambda one: one.name)

    def set_quota(self, name: str, quota: int) -> None:
        """Changes the quota of a user.

        Raises:
            UserError: There is no such user, or the quota is wrong.
            redis.RedisError: Redis does not answer.
        """
        self._store.set_quota(name, quota)
        self.read()

    def _keep_reading(self) -> None:
        failing = False
        while not self._stop.wait(READ_SECONDS):
            try:
                self.read()
                failing = False
            except Exception as error:  # whatever it is: without this thread, revoked tokens would go on working
                if not failing:
                    unexpected = None if isinstance(error, redis.RedisError) else error
                    logger.warning("the tokens cannot be read; those read last go on: %s", error, exc_info=unexpected)
                failing = True


def _user(stored: StoredToken) -> TokenHolder:
    return TokenHolder(stored.name, stored.quota, digest=stored.digest)
