"""Outages of model endpoints: one process asks whether the endpoint answers again, the others wait, and no rollout is lost.

An outage is recorded in Redis, so that all workers know of it. An endpoint has an outage if nothing answers at its address,
or only with server errors (5xx); refusing a single call is not an outage. The record expires when nobody asks any more.

    model:outage:<endpoint>            {since, problem}, seconds by Redis's clock
    model:outage:<endpoint>:asked      exists while nobody else is to ask
    model:outage:<endpoint>:answered   when it answered last, seconds by Redis's clock

`<endpoint>` is the first 16 hexadecimal digits of its SHA-256.
"""

from __future__ import annotations

import hashlib
import json
import logging
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import redis

from rollout_tasks.model_config import POOL_SCHEME
from rollout_tasks.models.endpoint_check import ANSWER_SECONDS, problem_of
from rollout_tasks.models.pool.replicas import Replicas
from rollout_tasks.redis_client import server_time

logger = logging.getLogger(__name__)

PATIENCE_SECONDS = 12 * 3600.0
"""How long an endpoint is waited for from when its outage was noticed: a night."""
ASK_EVERY_SECONDS = 2.0
_LOOK_SECONDS = 1.0
_NOTE_SECONDS = 60
_ASKED_AT_ONCE = 32
"""Replicas of a model pool."""
_SENTENCE = 200
"""Characters of a problem that are kept."""


@dataclass(frozen=True, slots=True)
class Outage:
    """An endpoint that does not answer."""

    endpoint: str
    seconds: float
    """Time since it was noticed."""
    problem: str

    def __str__(self) -> str:
        """Why rollouts wait."""
        return (
            f"the model endpoint {self.endpoint} {self.problem} (for {self.seconds:.0f} s so far): rollouts wait for it"
        )


def outage_of(client: redis.Redis, endpoint: str) -> Outage | None:
    """Returns what is known of an endpoint's outage; None if it has none."""
    noted: Any = client.get(_key(endpoint))
    if noted is None:
        return None
    known = json.loads(noted)
    return Outage(endpoint, max(0.0, server_time(client) - known["since"]), known["problem"])


def wait_while_out(
    client: redis.Redis,
    endpoint: str,
    *,
    suspected: bool,
    wanted: Callable[[], bool],
    before_waiting: Callable[[], object] | None = None,
    run_id: str = "",
    api: str = "chat",
    key: str | None = None,
) -> bool:
    """Waits until an endpoint answers again.

    Args:
        client: Where outages are recorded.
        endpoint: Its base URL, or its name if it is a model pool (`POOL_SCHEME`).
        suspected: Whether a call to it just failed: then it is asked even if no outage is recorded.
        before_waiting: Called once, before the first wait of an outage.
        wanted: Called about once a second: whether to go on waiting; an error that it raises ends the wait.
        run_id: The run that waits, for the log.
        api: The one in which it is asked, a key of `APIS`.
        key: What it is asked with, as in `problem_of`.

    Returns:
        Whether it had an outage, so that the call says nothing about the model. False also if that lasts for longer than
            `PATIENCE_SECONDS`.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    suspected_since = server_time(client) if suspected else 0.0
    waited, whose = False, f"run {run_id}: " if run_id else ""
    while True:
        outage = outage_of(client, endpoint)
        suspected = suspected and _answered(client, endpoint) <= suspected_since
        if outage is None and (waited or not suspected):
            if waited:
                logger.warning("%sthe model endpoint %s answers again", whose, endpoint)
            return waited
        if outage is not None and not waited:
            logger.warning("%s%s", whose, outage)
            if before_waiting is not None:
                before_waiting()
            waited = True
        too_long = time.monotonic() >= deadline or (outage is not None and outage.seconds >= PATIENCE_SECONDS)
        if not too_long and not wanted():
            return waited
        if client.set(f"{_key(endpoint)}:asked", "1", nx=True, px=int((ANSWER_SECONDS + ASK_EVERY_SECONDS) * 1000)):
            problem = _ask(client, endpoint, api, key)
            _note(client, endpoint, problem, outage)
            suspected = suspected and bool(problem)  # whatever the server's clock says of the answer
            if problem and too_long:
                return False
        elif too_long:
            return False
        elif outage is not None:
            time.sleep(_LOOK_SECONDS * random.uniform(0.5, 1.5))  # noqa: S311 - so that not all look at once
        else:
            time.sleep(ASK_EVERY_SECONDS / 10)  # somebody asks just now


def _answered(client: redis.Redis, endpoint: str) -> float:
    """Returns when an endpoint that was asked answered last, by Redis's clock; 0 if it did not lately."""
    answered: Any = client.get(f"{_key(endpoint)}:answered")
    return float(answered or 0)


def _note(client: redis.Redis, endpoint: str, problem: str, outage: Outage | None) -> None:
    key = _key(endpoint)
    with client.pipeline(transaction=True) as pipe:
        if problem:
            since = server_time(client) - (outage.seconds if outage else 0.0)
            pipe.set(key, json.dumps({"since": since, "problem": problem[:_SENTENCE]}), ex=_NOTE_SECONDS)
        else:
            pipe.delete(key)
            pipe.set(f"{key}:answered", server_time(client), ex=_NOTE_SECONDS)
        pipe.pexpire(f"{key}:asked", int(ASK_EVERY_SECONDS * 1000))
        pipe.execute()


def _ask(client: redis.Redis, endpoint: str, api: str, key: str | None) -> str:
    """Returns why the endpoint does not work, as the rest of a sentence; empty if it answers."""
    if not endpoint.startswith(POOL_SCHEME):
        return problem_of(endpoint, api, key)
    ready = Replicas(client, endpoint.removeprefix(POOL_SCHEME)).ready()
    if not ready:
        return "has no replica that takes calls"
    with ThreadPoolExecutor(min(len(ready), _ASKED_AT_ONCE)) as threads:  # they count as ready until they fall silent
        problems = list(threads.map(lambda replica: problem_of(replica.base_url, api, key), ready))
    return "" if "" in problems else f"has no replica that works: {ready[0].replica_id} {problems[0]}"


def _key(endpoint: str) -> str:
    return f"model:outage:{hashlib.sha256(endpoint.encode()).hexdigest()[:16]}"
