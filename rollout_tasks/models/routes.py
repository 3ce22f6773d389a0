"""Where a session's calls go: to one endpoint, or to the replicas of a model pool, each call to one that is picked for it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

import redis

from rollout_tasks.errors import FailureClass
from rollout_tasks.model_config import ModelConfig
from rollout_tasks.models.endpoint import endpoint_of
from rollout_tasks.models.pool.balancing import Balancer, NoReplica, Pick
from rollout_tasks.models.pool.replicas import Replicas
from rollout_tasks.models.retries import FailedTry
from rollout_tasks.models.served import Served
from rollout_tasks.redis_client import worker_client

_MARGIN_SECONDS = 60.0
"""How long a call may outlast its timeout before it no longer counts as in flight."""


@dataclass(frozen=True, slots=True)
class Destination:
    """Where one try of a call goes."""

    base_url: str
    pick: Pick | None = None

    @property
    def replica_id(self) -> str:
        """The replica of a model pool; empty for an endpoint."""
        return "" if self.pick is None else self.pick.replica.replica_id


class Route(Protocol):
    """Decides where one session's calls go."""

    def begin(self, failed: Collection[str]) -> Destination | FailedTry:
        """Returns where a try goes, or why it can go nowhere now.

        Args:
            failed: Ids of the replicas that have failed this call.
        """

    def end(self, destination: Destination) -> Served:
        """Says that a try is over; returns what is known of who answered."""

    def another(self, failed: Collection[str]) -> bool:
        """Returns whether there is a replica that takes calls and has not failed this one."""


@dataclass(frozen=True, slots=True)
class OneEndpoint:
    """The `Route` to an endpoint."""

    base_url: str

    def begin(self, failed: Collection[str]) -> Destination:
        """See `Route`."""
        del failed
        return Destination(self.base_url)

    def end(self, destination: Destination) -> Served:
        """See `Route`."""
        del destination
        return Served()

    def another(self, failed: Collection[str]) -> bool:
        """See `Route`."""
        del failed
        return False


class PoolRoute:
    """The `Route` to the replicas of a model pool: the session's own, as long as that takes calls."""

    def __init__(self, pool: str, session_id: str, timeout: float, client: redis.Redis | None = None) -> None:
        client = client or worker_client()
        self._balancer = Balancer(client, pool)
        self._replicas = Replicas(client, pool)
        self._session_id = session_id
        self._seconds = timeout + _MARGIN_SECONDS

    def begin(self, failed: Collection[str]) -> Destination | FailedTry:
        """See `Route`."""
        pick = self._balancer.pick(self._session_id, failed=failed, seconds=self._seconds)
        if isinstance(pick, NoReplica) and failed:  # one that has failed is better than none
            pick = self._balancer.pick(self._session_id, seconds=self._seconds)
        if isinstance(pick, NoReplica):
            return FailedTry(str(pick), FailureClass.MODEL_OVERLOAD)
        return Destination(pick.replica.base_url, pick)

    def end(self, destination: Destination) -> Served:
        """See `Route`."""
        if destination.pick is None:
            return Served()
        return self._balancer.release(destination.pick)

    def another(self, failed: Collection[str]) -> bool:
        """See `Route`."""
        return any(replica.replica_id not in failed for replica in self._replicas.ready())


def route_of(
    config: ModelConfig, session_id: str, base_url: str | None = None, client: redis.Redis | None = None
) -> Route:
    """Returns the route of a session's calls.

    Args:
        config: The run's model options.
        session_id: The session.
        base_url: The endpoint; default: that of `endpoint_of`.
        client: Of the Redis that has the pool; default: this process's patient one.
    """
    if base_url is None and config.pool is not None:
        return PoolRoute(config.pool, session_id, config.timeout, client)
    return OneEndpoint((base_url or endpoint_of(config)).rstrip("/"))
