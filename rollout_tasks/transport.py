"""kombu's Redis transport, changed where a Redis that goes away would end the worker or run rollouts twice.

1. When its connection is lost, kombu puts every delivered message back, though the tasks go on: each would be started again at
   once. Here they stay delivered: the heartbeat keeps them fresh while their rollout runs, and the visibility timeout sends them
   on when it does not.
2. A task that ends after that acknowledges on a channel whose connection is gone. kombu then fails with an error that Celery does
   not expect, and the worker ends. Here it is the connection error that it is: the message is delivered again later, and its
   rollout turns out to be committed.

And where it is slow: it makes a client object for every command, which costs a tenth of a worker's main process.
"""

from __future__ import annotations

from typing import Any

import redis
from kombu import transport
from kombu.transport import redis as kombu_redis
from redis.exceptions import ConnectionError


class Channel(kombu_redis.Channel):
    """A channel that may outlive its connection."""

    do_restore = False
    _kept_client: redis.Redis | None = None

    def _create_client(self, asynchronous: bool = False) -> redis.Redis:
        """The client for commands, kept as long as its connection pool is the channel's."""
        if asynchronous:
            return super()._create_client(asynchronous=True)  # type: ignore[no-any-return, no-untyped-call]
        if self._kept_client is None or self._kept_client.connection_pool is not self.pool:
            self._kept_client = super()._create_client()  # type: ignore[no-untyped-call]
        return self._kept_client

    def _connparams(self, asynchronous: bool = False) -> dict[str, Any]:
        if self.connection is None or self.connection.client is None:
            raise ConnectionError("the connection that this message came by is closed")
        parameters: dict[str, Any] = super()._connparams(asynchronous=asynchronous)  # type: ignore[no-untyped-call]
        return parameters


class Transport(kombu_redis.Transport):
    """Redis, with the channels above."""

    Channel = Channel


def install() -> None:
    """Makes ``redis://`` mean this transport in this process."""
    for scheme in ("redis", "rediss"):
        transport.TRANSPORT_ALIASES[scheme] = f"{__name__}:Transport"
