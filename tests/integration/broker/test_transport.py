"""The broker's transport, against a real Valkey: what is delivered, put back, and taken out when Redis refuses."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from queue import Empty
from typing import Any

import pytest
import redis
from kombu import Connection, Exchange, Queue
from kombu.asynchronous import Hub
from kombu.transport.virtual import Message

from rollout_tasks.broker import transport
from rollout_tasks.execution.heartbeat import UNACKED_INDEX
from rollout_tasks.redis_connections import RedisRefuses
from tests.conftest import ValkeyServer

QUEUE = "rollout.simulated"
TIMEOUT = 30


@pytest.fixture
def client(redis_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(redis_url, decode_responses=True) as client:
        yield client


@pytest.fixture
def connection(redis_url: str) -> Iterator[Connection]:
    with connect(redis_url) as connection:
        yield connection


def connect(url: str) -> Connection:
    return Connection(url, transport=transport.Transport, transport_options={"visibility_timeout": TIMEOUT})


def deliver(connection: Connection, text: str = "work") -> Message:
    """Sends a message and takes it out of its queue."""
    with connection.Producer(serializer="json") as producer:
        producer.publish(text, routing_key=QUEUE, headers={"task": "rollout"})
    message = connection.default_channel.basic_get(QUEUE)
    assert message is not None
    return message


def age(client: redis.Redis, message: Message, seconds: float) -> None:
    """As if nobody had worked on a message for so long."""
    client.zadd(UNACKED_INDEX, {message.delivery_tag: client.time()[0] - seconds})


def waiting(client: redis.Redis) -> list[dict[str, Any]]:
    return [json.loads(document) for document in client.lrange(QUEUE, 0, -1)]


def test_only_a_message_that_nobody_has_worked_on_is_put_back(connection: Connection, client: redis.Redis) -> None:
    forgotten, fresh = deliver(connection, "forgotten"), deliver(connection, "fresh")
    age(client, forgotten, TIMEOUT + 1)
    age(client, fresh, TIMEOUT - 10)

    connection.default_channel.qos.restore_visible()

    (back,) = waiting(client)
    assert back["headers"]["redelivered"] is True
    assert list(client.hgetall("unacked")) == client.zrange(UNACKED_INDEX, 0, -1) == [fresh.delivery_tag]


def test_one_that_somebody_worked_on_since_it_was_found_stays(connection: Connection, client: redis.Redis) -> None:
    message = deliver(connection)

    connection.default_channel.qos._redeliver(message.delivery_tag, "RPUSH", TIMEOUT)

    assert waiting(client) == []
    assert client.hexists("unacked", message.delivery_tag)


def test_whoever_had_it_first_cannot_forget_it_for_who_has_it_next(connection: Connection, client: redis.Redis) -> None:
    first = deliver(connection)
    age(client, first, TIMEOUT + 1)
    connection.default_channel.qos.restore_visible()
    second = connection.default_channel.basic_get(QUEUE)
    assert second is not None

    first.ack()
    first.channel.qos.restore_by_tag(first.delivery_tag)

    assert list(client.hgetall("unacked")) == client.zrange(UNACKED_INDEX, 0, -1) == [second.delivery_tag]
    assert waiting(client) == []


def test_a_message_that_cannot_be_read_keeps_no_other_from_being_put_back(
    connection: Connection, client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    message = deliver(connection)
    age(client, message, TIMEOUT + 1)
    client.hset("unacked", "broken", "{")
    client.zadd(UNACKED_INDEX, {"broken": 1.0, "noted nowhere else": 2.0})

    connection.default_channel.qos.restore_visible()

    assert len(waiting(client)) == 1
    assert client.zcard(UNACKED_INDEX) == 0
    assert "cannot be read" in caplog.text


def test_a_rejected_message_is_the_last_of_its_queue_and_one_handed_back_the_next(
    connection: Connection, client: redis.Redis
) -> None:
    rejected, handed_back = deliver(connection, "rejected"), deliver(connection, "handed back")
    with connection.Producer(serializer="json") as producer:
        producer.publish("waits", routing_key=QUEUE, headers={"task": "rollout"})

    rejected.requeue()
    connection.default_channel.qos.restore_by_tag(handed_back.delivery_tag)

    order = [connection.default_channel.basic_get(QUEUE).payload for _ in range(3)]
    assert order == ["handed back", "waits", "rejected"]


def test_a_message_taken_out_when_redis_refused_is_put_back_once_it_does_not(valkey: ValkeyServer) -> None:
    with redis.Redis.from_url(valkey.url, decode_responses=True) as client, connect(valkey.url) as connection:
        with connection.Producer(serializer="json") as producer:
            producer.publish("work", routing_key=QUEUE, headers={"task": "rollout"})
        client.config_set("maxmemory", 1)
        with pytest.raises(RedisRefuses, match="OOM"):
            connection.default_channel.basic_get(QUEUE)
        assert waiting(client) == []

        with pytest.raises(RedisRefuses, match="OOM"), connect(valkey.url) as second:
            second.connect()
        client.config_set("maxmemory", 0)
        with connect(valkey.url) as third:
            third.connect()

        assert len(waiting(client)) == 1
        assert client.hlen("unacked") == client.zcard(UNACKED_INDEX) == 0


@pytest.mark.parametrize(
    "end", [Message.ack, Message.reject, Message.requeue], ids=["acknowledged", "rejected", "put back"]
)
def test_a_message_that_redis_does_not_forget_keeps_no_other_from_being_taken(valkey: ValkeyServer, end: Any) -> None:
    """Otherwise a worker asks for nothing any more once that has happened to as many messages as it takes at a time."""
    with redis.Redis.from_url(valkey.url, decode_responses=True) as client, connect(valkey.url) as connection:
        connection.default_channel.basic_qos(prefetch_count=1)
        message = deliver(connection)
        assert not connection.default_channel.qos.can_consume()
        client.config_set("maxmemory", 1)
        client.config_set("maxmemory-policy", "noeviction")
        client.config_set("min-replicas-to-write", 1)

        with pytest.raises(RedisRefuses):
            end(message)

        assert connection.default_channel.qos.can_consume()
        client.config_set("min-replicas-to-write", 0)
        client.config_set("maxmemory", 0)
        assert client.hkeys("unacked") == [message.delivery_tag], "it comes back when nobody has worked on it for long"


def test_a_connection_that_ended_leaves_nothing_in_the_event_loop(redis_url: str) -> None:
    """Otherwise a worker keeps every connection that it ever had, and looks at all of them at every step."""
    loop = Hub()
    for _ in range(3):
        with connect(redis_url) as connection:
            connection.connect()
            connection.register_with_event_loop(loop)
            assert len(loop.on_tick) == 1
    assert not loop.on_tick
    assert all(scheduled.entry.canceled for scheduled in loop.timer.queue)


def test_a_subscription_without_news_holds_nobody_up(connection: Connection) -> None:
    """The event loop may name a descriptor that belongs to another connection by then: there is nothing to read."""
    channel = connection.default_channel
    with connection.Consumer(Queue("commands", Exchange("commands", type="fanout")), accept=["json"]):
        connection.transport.cycle.on_poll_start()
        assert channel.subclient.get_message(timeout=5), "the subscription is confirmed"
        while channel.subclient.get_message(timeout=0.5):
            pass  # as often as it was asked for

        def read() -> None:
            with suppress(Empty):
                channel.handlers["LISTEN"]()

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        reader.join(5)
        held_up = reader.is_alive()
        if held_up:
            channel.subclient.connection.disconnect()
            reader.join(5)
    assert not held_up
