"""A worker's timers: they ask for lost work to be looked for, announce the worker, and send its events."""

from __future__ import annotations

import contextlib
import json
import logging
import os
from typing import Any

import redis
from celery import bootsteps
from kombu.exceptions import OperationalError

from rollout_tasks.queues import FINALIZE_QUEUE, RECONCILE, reconcile_task
from rollout_tasks.redis_client import connect
from rollout_tasks.runs import presence
from rollout_tasks.settings import settings

logger = logging.getLogger(__name__)

_RECONCILE_TICK = "reconcile:tick"
_EVENTS_WAIT_SECONDS = 0.5
_SHORTEST_PAUSE_SECONDS = 0.05
_MESSAGES_LOOKED_AT = 100


class _Regularly(bootsteps.StartStopStep):  # type: ignore[misc]
    """Repeats a small action on the worker's own timer, even after errors."""

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def __init__(self, consumer: Any, **options: Any) -> None:
        super().__init__(consumer, **options)
        self.timer: Any = None
        self.client: redis.Redis | None = None
        self.failing = False

    def interval(self) -> float:
        """Returns the seconds between two actions, at most."""
        raise NotImplementedError

    def act(self, client: redis.Redis, consumer: Any) -> float:
        """Acts once; returns the seconds until the next time."""
        raise NotImplementedError

    def start(self, consumer: Any) -> None:
        """Acts now, and starts the timer."""
        self.client = connect(tries=0, socket_timeout=2)
        self._try(consumer)

    def stop(self, _consumer: Any) -> None:
        """Stops the timer."""
        client, self.client = self.client, None
        if self.timer is not None:
            self.timer.cancel()
        if client is not None:
            client.close()

    def _try(self, consumer: Any) -> None:
        client, pause = self.client, self.interval()
        if client is None:
            return
        try:
            pause = self.act(client, consumer)
            self._say(None)
        except (redis.RedisError, OperationalError) as error:
            self._say(error)
        except Exception:  # a worker without its timers looks healthy but does not work
            logger.exception("%s failed; it is tried again in %.0f s", type(self).__name__, pause)
        finally:
            if self.client is not None:
                self.timer = consumer.timer.call_after(pause, self._try, (consumer,))

    def _say(self, error: Exception | None) -> None:
        """Logs when Redis begins to fail, and when it works again."""
        if error is not None and not self.failing:
            logger.warning("%s: Redis failed: %s; trying again", type(self).__name__, error)
        elif error is None and self.failing:
            logger.info("%s: Redis works again", type(self).__name__)
        self.failing = error is not None


class LostWork(_Regularly):
    """At each interval, one of all workers asks for lost work to be looked for."""

    def interval(self) -> float:
        """Returns the configured interval."""
        return settings().reconcile_every

    def act(self, client: redis.Redis, consumer: Any) -> float:  # noqa: ARG002
        """Sends `reconcile`, unless another worker has within the interval; then returns what is left of that."""
        every = self.interval()
        if client.set(_RECONCILE_TICK, os.getpid(), nx=True, px=int(every * 1000)):
            if not _waits_for_a_worker(client, RECONCILE):
                reconcile_task().apply_async(retry=False)
            return every
        left: Any = client.pttl(_RECONCILE_TICK)
        return float(min(max(left / 1000, _SHORTEST_PAUSE_SECONDS), every))


def _waits_for_a_worker(client: redis.Redis, task: str) -> bool:
    """Returns whether a message for a task is among the next in the queue of small tasks."""
    documents: Any = client.lrange(FINALIZE_QUEUE, -_MESSAGES_LOOKED_AT, -1)
    return any(json.loads(document)["headers"].get("task") == task for document in documents)


class Presence(_Regularly):
    """Announces the worker and the queues it serves."""

    def interval(self) -> float:
        """Returns a time well below that after which the worker counts as gone."""
        return presence.ANNOUNCE_SECONDS

    def act(self, client: redis.Redis, consumer: Any) -> float:
        """Announces the worker."""
        presence.announce(client, consumer.hostname, list(consumer.app.amqp.queues.consume_from))
        return self.interval()

    def stop(self, consumer: Any) -> None:
        """Removes the announcement."""
        if self.client is not None:
            with contextlib.suppress(redis.RedisError):
                presence.leave(self.client, consumer.hostname)
        super().stop(consumer)


class EventBatches(bootsteps.StartStopStep):  # type: ignore[misc]
    """Sends the events for Flower in batches: one by one they take half of the main process's time."""

    requires = ("celery.worker.consumer.events:Events",)

    def __init__(self, consumer: Any, **options: Any) -> None:
        super().__init__(consumer, **options)
        self.timer: Any = None

    def start(self, consumer: Any) -> None:
        """Sends full batches at once, others twice a second."""
        events = consumer.event_dispatcher
        if events is not None and events.buffer_group:
            events.on_send_buffered = None
            self.timer = consumer.timer.call_repeatedly(_EVENTS_WAIT_SECONDS, events.flush)

    def stop(self, _consumer: Any) -> None:
        """Stops the timer; Celery itself stops the dispatcher."""
        if self.timer is not None:
            self.timer.cancel()
