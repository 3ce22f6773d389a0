"""kombu's Redis transport, changed so that losing Redis neither ends the worker nor runs rollouts twice.

1. When its connection is lost, kombu puts every delivered message back, though the tasks go on: each would be started
   again at once. Here they stay delivered: the heartbeat keeps them fresh while their rollout runs, and if it stops, they
   go to another worker after the visibility timeout. Only a worker that is told to stop now puts back what it still has.
2. A task that ends after that acknowledges on a channel whose connection is gone. kombu then raises an error that Celery
   does not expect, and the worker ends. Here it is a connection error: the message is delivered again later, and its
   rollout turns out to be committed.
3. kombu stamps delivered messages with the worker's time. Those of a killed worker whose clock was ahead would stay, and
   those of one whose clock is behind would be delivered twice. Here every stamp and comparison uses Redis's time.
4. A Redis that is up but refuses (redis_connections.py) ends the worker. Here that is a connection error, and connecting
   succeeds only if Redis can be written to: no message is taken out of a queue that cannot be recorded as delivered.
   A message taken when the refusal began is put back when it has ended.
5. kombu reads what is said to all workers (`inspect`, `control`) without a deadline when its event loop names the
   descriptor, which may belong to another connection by then: the worker would stand still. Here such a read waits for
   nothing and has a deadline.
6. kombu leaves every lost connection in the event loop. Here it goes when it is closed.

It is also faster: kombu makes a client object for every command, and a transaction of several commands for every message
that is delivered or acknowledged. Here one client is kept, and one script does each (lua/). Together that was a quarter of
the time of a worker's main process.
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections import deque
from collections.abc import Callable
from functools import cached_property
from typing import Any

import redis
from celery.worker import state
from kombu import transport
from kombu.transport import redis as kombu_redis
from kombu.transport import virtual
from redis.exceptions import ConnectionError, TimeoutError

from rollout_tasks.broker.lua_scripts import SCRIPTS
from rollout_tasks.redis_client import celery_retry_options
from rollout_tasks.redis_connections import RedisRefuses, TCPConnection, TLSConnection

logger = logging.getLogger(__name__)

_PROBE = "broker:writable"
_TAKEN: deque[tuple[str, str]] = deque()
"""Messages that are in no queue and not recorded as delivered: delivery tag and record."""


class QoS(kombu_redis.QoS):
    """The messages that are delivered and not yet acknowledged; Redis stores them in kombu's format."""

    def append(self, message: Any, delivery_tag: str) -> None:
        """Records a message as delivered."""
        route = message.delivery_info
        record = json.dumps([message._raw, route["exchange"], route["routing_key"]])
        try:
            self._run("deliver", [delivery_tag, record])
        except (ConnectionError, TimeoutError):
            _TAKEN.append((delivery_tag, record))
            raise
        virtual.QoS.append(self, message, delivery_tag)  # type: ignore[no-untyped-call]

    def ack(self, delivery_tag: str) -> None:
        """Removes an acknowledged message.

        If Redis fails to remove it, it comes back when nobody has worked on it for the visibility timeout. This worker forgets
        it in any case: else each such message would reduce how many it takes at a time, in the end to none.
        """
        try:
            self._run("acknowledge", [delivery_tag])
        finally:
            virtual.QoS.ack(self, delivery_tag)  # type: ignore[no-untyped-call]

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Removes a message, or puts it back as the last of its queue."""
        if not requeue:
            self.ack(delivery_tag)
            return
        try:
            self.restore_by_tag(delivery_tag, leftmost=True)
        finally:
            virtual.QoS.ack(self, delivery_tag)  # type: ignore[no-untyped-call]

    def restore_visible(self, start: int = 0, num: int | None = None, interval: int = 1) -> None:  # noqa: ARG002
        """Puts back every message not worked on for the visibility timeout; needs no lock, as each goes back once."""
        for tag in self._run("overdue", [self.visibility_timeout, num or -1]):
            self._redeliver(tag.decode(), "RPUSH", self.visibility_timeout)

    def restore_by_tag(self, tag: str, client: Any = None, leftmost: bool = False) -> None:  # noqa: ARG002
        """Puts one message back, as the last or the next of its queue."""
        self._redeliver(tag, "LPUSH" if leftmost else "RPUSH", 0)

    def put_back_taken(self) -> None:
        """Puts back messages taken out of their queue whose delivery could not be recorded."""
        while _TAKEN:
            tag, record = _TAKEN[0]
            self._run("deliver", [tag, record])
            self.restore_by_tag(tag)
            _TAKEN.popleft()

    def _redeliver(self, tag: str, push: str, unless_worked_on_for: float) -> None:
        with self.channel.conn_or_acquire() as client:
            record: Any = client.hget(self.unacked_key, tag)
        queues, document = [], ""
        if record is not None:
            try:
                message, exchange, routing_key = json.loads(record)
                message["headers"]["redelivered"] = True
                message["properties"]["delivery_info"]["redelivered"] = True
                # With its old tag, its earlier worker could still acknowledge what another worker has by then.
                message["properties"]["delivery_tag"] = str(uuid.uuid4())
            except (ValueError, LookupError, TypeError):
                logger.critical("a delivered message cannot be read and is not put back: %r", record[:1000])
                self._run("acknowledge", [tag])
                return
            priority = self.channel._get_message_priority(message, reverse=False)
            queues = [self.channel._q_for_pri(name, priority) for name in self.channel._lookup(exchange, routing_key)]
            document = json.dumps(message)
        self._run("redeliver", [tag, document, push, unless_worked_on_for], queues)

    def _run(self, script: str, arguments: list[Any], queues: list[str] | None = None) -> Any:
        keys = [self.unacked_index_key, self.unacked_key, *(queues or ())]
        with self.channel.conn_or_acquire() as client:
            return SCRIPTS.run(client, script, keys, arguments)


class Subscription(redis.client.PubSub):
    """What is said to all workers, read without holding up the event loop."""

    def parse_response(self, block: bool = True, timeout: float = 0) -> Any:
        """Returns the next message; None if none has arrived. What has begun to arrive must be there in time."""
        connection = self.connection
        if block and connection is not None:
            try:
                if not connection.can_read(timeout=0):
                    return None
            except ConnectionError:
                connection.disconnect()
                raise
            timeout = connection.socket_timeout
        return super().parse_response(block=False, timeout=timeout)  # type: ignore[no-untyped-call]


class Channel(kombu_redis.Channel):
    """A channel that may outlive its connection."""

    QoS = QoS
    connection_class = TCPConnection
    connection_class_ssl = TLSConnection
    _kept_client: redis.Redis | None = None

    @property
    def do_restore(self) -> bool:  # type: ignore[override]
        """Whether delivered messages go back when this is closed: at the end of a worker that has stopped its tasks."""
        return state.should_terminate not in (None, False)

    def _create_client(self, asynchronous: bool = False) -> redis.Redis:
        """Returns the client for commands, kept as long as its connection pool is the channel's."""
        if asynchronous:
            return super()._create_client(asynchronous=True)  # type: ignore[no-any-return, no-untyped-call]
        if self._kept_client is None or self._kept_client.connection_pool is not self.pool:
            self._kept_client = super()._create_client()  # type: ignore[no-untyped-call]
        return self._kept_client

    @cached_property
    def subclient(self) -> Subscription:
        """The connection for what is said to all workers."""
        return Subscription(self.async_pool)

    def _connparams(self, asynchronous: bool = False) -> dict[str, Any]:
        if self.connection is None or self.connection.client is None:
            raise ConnectionError("the connection that this message came by is closed")
        parameters: dict[str, Any] = super()._connparams(asynchronous=asynchronous)  # type: ignore[no-untyped-call]
        return parameters if asynchronous else parameters | celery_retry_options()

    def prove_writable(self) -> None:
        """Checks that Redis can be written to.

        Raises:
            RedisRefuses: It cannot be written to now.
        """
        with self.conn_or_acquire() as client:
            client.set(_PROBE, "", px=1)


class Transport(kombu_redis.Transport):
    """kombu's Redis transport with the channel above."""

    Channel = Channel
    _refused_since: float | None = None
    _leave_loop: Callable[[], None] | None = None

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        """Has the loop look at this connection at every step, until it is closed."""
        before = set(loop.on_tick)
        super().register_with_event_loop(connection, loop)  # type: ignore[no-untyped-call]
        added = loop.on_tick - before
        timers = [value for name, value in vars(self.cycle).items() if name.endswith("_tref")]

        def leave() -> None:
            loop.on_tick.difference_update(added)
            for timer in timers:
                timer.cancel()

        self._leave_loop = leave

    def close_connection(self, connection: Any) -> None:
        """Closes its channels, and takes it out of the event loop."""
        if self._leave_loop is not None:
            self._leave_loop()
            self._leave_loop = None
        super().close_connection(connection)  # type: ignore[no-untyped-call]

    def establish_connection(self) -> Transport:
        """Connects, if Redis can be written to."""
        connection: Transport = super().establish_connection()  # type: ignore[no-untyped-call]
        channel = self._avail_channels[-1]
        try:
            channel.prove_writable()
            channel.qos.put_back_taken()
        except BaseException as error:
            if isinstance(error, RedisRefuses) and self._refused_since is None:
                self._refused_since = time.monotonic()
                logger.warning("%s: no task is taken or sent until it accepts commands again", error)
            self.close_connection(self)
            raise
        if self._refused_since is not None:
            waited, self._refused_since = time.monotonic() - self._refused_since, None
            logger.warning("Redis accepts commands again, after %.0f s", waited)
        return connection


def install() -> None:
    """Makes ``redis://`` and ``rediss://`` mean this transport in this process."""
    for scheme in ("redis", "rediss"):
        transport.TRANSPORT_ALIASES[scheme] = f"{__name__}:Transport"
