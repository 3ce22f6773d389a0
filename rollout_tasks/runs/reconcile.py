"""Finds work that got lost between broker, chord and workers, and sends it again.

Messages sent twice are harmless: only one execution can claim a rollout. The chord triggers finalising and may be lost;
the run store says what is still to be done.
A rollout is lost when it has no verdict, nobody holds it, and no message for it waits or is being delivered, in two
passes in a row (while a message is delivered, it is nowhere for a moment). Runs are checked one by one: an error in one
does not stop the others.

The messages are compared with the run store on the server itself (lua/note_messages.lua, lua/find_lost.lua), so that a
pass reads very little however many messages wait.
"""

from __future__ import annotations

import base64
import json
import logging
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress

import redis

from benchmark.items import Item
from rollout_tasks.errors import UserError
from rollout_tasks.queues import finalize_task
from rollout_tasks.runs.enqueue import rollout_queues, send_rollouts
from rollout_tasks.runs.store import RunStore, run_store
from rollout_tasks.runs.store_format import SCRIPTS, run_key

logger = logging.getLogger(__name__)

_LOCK = "reconcile:lock"
_LOCK_SECONDS = 30
"""How long a killed reconciler blocks the others; a running one extends the lock at each step."""
_NOTES = "reconcile:messages"
_NOTES_SECONDS = 600
_CHUNK = 1_000
_AT_ONCE = 2_000
"""Lost rollouts of each run that one pass sends again; the next pass sends more."""
_BROKEN = (UserError, KeyError, ValueError, TypeError, OSError, redis.ResponseError)
"""Errors from reading a run that is broken, was stored by a newer version, or whose folder cannot be used."""
_HOLD_LOCK = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('EXPIRE', KEYS[1], ARGV[2])
"""
_RELEASE_LOCK = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
"""


class LockLost(Exception):
    """Another process has taken over reconciling."""


Cancel = Callable[[RunStore, str], object]
"""Continues cancelling a run. Passed in by the caller, because `execution.cancellation` is in a higher layer."""


def reconcile_runs(cancel: Cancel) -> dict[str, int]:
    """Checks every active run once; only one process does so at a time.

    Args:
        cancel: Called for each run that is being cancelled.

    Returns:
        How many rollouts and finalisations were sent again.
    """
    store = run_store()
    token = uuid.uuid4().hex
    if not store.client.set(_LOCK, token, nx=True, ex=_LOCK_SECONDS) and store.client.get(_LOCK) != token:
        return {}
    try:
        return Reconciliation(store, token, cancel).run()
    except LockLost:
        logger.warning("another process has taken over the search for lost work; leaving it to that one")
        return {}
    finally:
        store.client.eval(_RELEASE_LOCK, 1, _LOCK, token)


class Reconciliation:
    """One pass over every active run."""

    def __init__(self, store: RunStore, token: str, cancel: Cancel) -> None:
        self.store = store
        self.client: redis.Redis = store.client
        self.token = token
        self._cancel = cancel
        self.done = {"rollouts": 0, "finalized": 0}
        self._queues: set[str] = set()

    def run(self) -> dict[str, int]:
        """Checks all runs; returns how many rollouts and finalisations were sent again."""
        waiting: list[str] = []
        for run_id in self.store.active():
            self._still_locked()
            try:
                if self._look_at(run_id):
                    waiting.append(run_id)
            except _BROKEN as error:
                logger.error("run %s: cannot be checked: %s", run_id, error)
        if waiting:
            self._note_messages()
            for run_id in waiting:
                try:
                    self._send_lost(run_id)
                except _BROKEN as error:
                    logger.error("run %s: its lost rollouts cannot be sent again: %s", run_id, error)
            self.client.delete(_NOTES)
        return self.done

    def _still_locked(self) -> None:
        if not self.client.eval(_HOLD_LOCK, 1, _LOCK, self.token, _LOCK_SECONDS):
            raise LockLost

    def _look_at(self, run_id: str) -> int:
        """Moves a run on if its submitter or finaliser is gone; returns how many rollouts nobody holds."""
        before = self.store.state(run_id)
        state = self.store.adopt(run_id)
        if state is not None and state != before:
            logger.warning("run %s: its submitter is gone; the run is %s now", run_id, state.replace("_", "-"))
        if state == "cancelling":
            self._cancel(self.store, run_id)
        progress = self.store.progress(run_id)
        if progress is None or progress.state in {"done", "cancelled"}:
            self.store.retire(run_id)
            return 0
        if progress.state in {"submitting", "half_submitted"}:
            return 0
        if progress.committed == progress.total and self.store.finalizer_silent(run_id) >= self.store.silent_seconds:
            finalize_task(run_id).apply_async()
            self.done["finalized"] += 1
        self._queues.update(progress.queues)
        return progress.pending - progress.running if progress.state == "running" else 0

    def _note_messages(self) -> None:
        """Has the server note which rollouts have messages: first waiting ones, then delivered ones."""
        self.client.delete(_NOTES)
        for key in (*sorted({*rollout_queues(), *self._queues}), "unacked"):
            place = "0"
            while True:
                self._still_locked()
                place, bodies = SCRIPTS.run(
                    self.client, "note_messages", [key, _NOTES], [place, _CHUNK, _NOTES_SECONDS]
                )
                names = [f"{run_id} {rollout_id}" for body in bodies for run_id, rollout_id in _ids(body)]
                if names:
                    self.client.sadd(_NOTES, *names)
                if place == "0":
                    break

    def _send_lost(self, run_id: str) -> None:
        """Sends a run's rollouts that have no message, neither now nor in the last pass."""
        suspects, suspects_now = f"{run_key(run_id)}:suspects", f"{run_key(run_id)}:suspects_now"
        self.client.delete(suspects_now)
        cursor = "0"
        while True:
            self._still_locked()
            arguments = [run_id, self.store.silent_seconds, cursor, _CHUNK]
            cursor = SCRIPTS.run(self.client, "find_lost", [run_key(run_id), _NOTES, suspects_now], arguments)
            if cursor == "0":
                break
        lost_key = f"{run_key(run_id)}:lost"
        with self.client.pipeline() as pipe:  # at once, so that a process that dies leaves no key behind
            pipe.sinterstore(lost_key, [suspects, suspects_now])
            pipe.srandmember(lost_key, _AT_ONCE)
            pipe.delete(lost_key, suspects)
            _, lost, _ = pipe.execute()
        if self.client.exists(suspects_now):
            self.client.rename(suspects_now, suspects)
        if lost:
            self.done["rollouts"] += self._send_again(run_id, sorted(lost))

    def _send_again(self, run_id: str, names: list[str]) -> int:
        """Sends rollouts without a chord; the last of them to commit asks for the run to be finalised."""
        logger.warning("run %s: %d rollouts had no message and no holder; sending them again", run_id, len(names))
        config, _ = self.store.config(run_id)
        self.store.finalize_by_last_commit(run_id)
        items: dict[str, Item] = {item.id: item for item in self.store.items_of(run_id, names)}
        return send_rollouts(run_id, config, items, names)


def _ids(body: str) -> Iterator[tuple[str, str]]:
    """Yields (run, rollout) of a message of an older version, whose headers do not name them; nothing of another program's."""
    with suppress(ValueError, LookupError, TypeError):
        arguments = json.loads(base64.b64decode(body))[0]
        yield str(arguments[0]), str(arguments[1])
