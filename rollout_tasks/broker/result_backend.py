"""Celery's Redis result backend without subscriptions to results.

Celery subscribes to the result of every task of a chord as it is sent, in case the caller waits for it. Here no caller
does: the run store has the results. Without subscriptions a run is submitted faster, and a submitting process can
outlive its Redis.
"""

from __future__ import annotations

from typing import Any

from celery.backends.redis import RedisBackend
from celery.backends.redis import ResultConsumer as RedisResultConsumer
from celery.states import SUCCESS

from rollout_tasks.redis_client import celery_retry_options
from rollout_tasks.redis_connections import connection_class


class NoSubscriptions(RedisResultConsumer):  # type: ignore[misc]
    """Subscribes to nothing."""

    def consume_from(self, task_id: str) -> None:
        """Does not subscribe."""

    def cancel_for(self, task_id: str) -> None:
        """Does nothing: there is no subscription."""


class UnwatchedRedisBackend(RedisBackend):  # type: ignore[misc]
    """Keeps chords' counts; delivers no results. In a worker's child it waits while Redis is unavailable or refuses."""

    ResultConsumer = NoSubscriptions

    def on_chord_part_return(self, request: Any, state: str, result: Any, *args: Any, **more: Any) -> None:
        """Counts a task of a chord. What it returned is for Flower, which learns it from the task's event; it is not kept."""
        super().on_chord_part_return(request, state, None if state == SUCCESS else result, *args, **more)

    def _create_client(self, **parameters: Any) -> Any:
        parameters |= {"connection_class": connection_class(self.url), **celery_retry_options()}
        return super()._create_client(**parameters)
