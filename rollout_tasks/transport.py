"""kombu's Redis transport, changed where a Redis that goes away would end the worker or run rollouts twice.

1. When its connection is lost, kombu puts every delivered message back, though the tasks go on: each would be started again at
   once. Here they stay delivered: the heartbeat keeps them fresh while their rollout runs, and the visibility timeout sends them
   on when it does not.
2. A task that ends after that acknowledges on a channel whose connection is gone. kombu then fails with an error that Celery does
   not expect, and the worker ends. Here it is the connection error that it is: the message is delivered again later, and its
   rollout turns out to be committed.
"""

from __future__ import annotations

from typing import Any

from kombu import transport
from kombu.transport import redis as kombu_redis
from redis.exceptions import ConnectionError


class Channel(kombu_redis.Channel):
    """A channel that may outlive its connection."""

    do_restore = False

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
