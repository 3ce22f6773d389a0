"""Finds what got lost between broker, chord and workers, and sends it again. Doubles are harmless: a claim admits one holder.

The chord is a trigger and may be lost; the run store is the truth. A rollout is lost when it has no verdict, nobody holds it,
and no message for it waits or is being delivered, seen twice in a row (a message is in nobody's hands for a moment while it is
delivered).
"""

from __future__ import annotations

import base64
import json
import logging
import uuid
from collections.abc import Iterator
from typing import Any

import redis

from benchmark.items import Item
from rollout_tasks.rollout import run_store
from rollout_tasks.runs.enqueue import rollout_queues, send_rollouts
from rollout_tasks.runs.store import RunStore

logger = logging.getLogger(__name__)

_LOCK = "reconcile:lock"
_LOCK_SECONDS = 300
_SUBMITTER_SILENT_SECONDS = 120
"""A run still being submitted after this long without a sign of its submitter is taken over."""
_SPARE_MESSAGES = 50
"""Messages that may belong to no rollout (finalising, reconciling, doubles) when deciding whether to look closely."""
_CHUNK = 1_000


def reconcile_runs() -> dict[str, int]:
    """Looks at every active run once; one process at a time.

    Returns:
        How many rollouts and finalisations were sent again.
    """
    store = run_store()
    client = store.client
    token = uuid.uuid4().hex
    if not client.set(_LOCK, token, nx=True, ex=_LOCK_SECONDS):
        return {}
    try:
        return _reconcile(store)
    finally:
        if client.get(_LOCK) == token:
            client.delete(_LOCK)


def _reconcile(store: RunStore) -> dict[str, int]:
    from rollout_tasks.tasks import finalize_run

    done = {"rollouts": 0, "finalized": 0}
    waiting: dict[str, list[str]] = {}
    for run_id in store.active():
        progress = store.progress(run_id)
        if progress is None or progress.state in {"done", "cancelled"}:
            store.client.srem("runs:active", run_id)
            continue
        if progress.state == "submitting" and store.submitter_silent(run_id) < _SUBMITTER_SILENT_SECONDS:
            continue
        if progress.state == "submitting":
            logger.warning("run %s: its submitter is gone; taking the run over", run_id)
            store.mark_submitted(run_id)
        if progress.state == "cancelling":
            store.cancel(run_id)
        if store.finalizer_silent(run_id) < store.silent_seconds:
            continue
        if progress.pending == 0:
            finalize_run.apply_async((run_id,))
            done["finalized"] += 1
        elif progress.state in {"running", "submitting"}:
            waiting[run_id] = store.unheld(run_id)
    if _may_miss_messages(store.client, sum(len(names) for names in waiting.values())):
        for run_id, names in _lost(store.client, waiting).items():
            done["rollouts"] += _send_again(store, run_id, names)
    return done


def _may_miss_messages(client: redis.Redis, unheld: int) -> bool:
    """Whether fewer messages are about than rollouts wait for one; if not, none is missing and nothing need be read."""
    if unheld == 0:
        return False
    queued: Any = sum(int(client.llen(queue)) for queue in rollout_queues())
    delivered: Any = client.hlen("unacked")
    return bool(queued + delivered < unheld + _SPARE_MESSAGES)


def _lost(client: redis.Redis, waiting: dict[str, list[str]]) -> dict[str, list[str]]:
    """Rollouts of each run for which no message exists, now and at the last look."""
    messages = set(_messages(client))
    lost: dict[str, list[str]] = {}
    for run_id, names in waiting.items():
        missing = {name for name in names if (run_id, name) not in messages}
        suspects_key = f"{{run:{run_id}}}:suspects"
        before: Any = client.smembers(suspects_key)
        client.delete(suspects_key)
        if missing:
            client.sadd(suspects_key, *missing)
            client.expire(suspects_key, 3600)
        if missing & set(before):
            lost[run_id] = sorted(missing & set(before))
    return lost


def _messages(client: redis.Redis) -> Iterator[tuple[str, str]]:
    """(run, rollout) of every rollout message that waits in a queue or is delivered and not yet acknowledged."""
    for queue in rollout_queues():
        at = 0
        while True:
            chunk: Any = client.lrange(queue, at, at + _CHUNK - 1)
            for document in chunk:
                yield from _ids(json.loads(document))
            if len(chunk) < _CHUNK:
                break
            at += _CHUNK
    for _, document in client.hscan_iter("unacked", count=_CHUNK):
        yield from _ids(json.loads(document)[0])


def _ids(message: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if message.get("headers", {}).get("task") == "rollout":
        arguments = json.loads(base64.b64decode(message["body"]))[0]
        yield str(arguments[0]), str(arguments[1])


def _send_again(store: RunStore, run_id: str, names: list[str]) -> int:
    """Sends rollouts without a chord; the last of them to commit asks for the run to be finalised."""
    logger.warning("run %s: %d rollouts had no message and nobody held them; sending them again", run_id, len(names))
    store.spend_chord(run_id)
    config, _ = store.config(run_id)
    wanted = set(names)
    items: dict[str, Item] = {item.id: item for item in store.items_of(run_id, wanted)}
    return send_rollouts(run_id, config, items, sorted(wanted))
