"""The Celery tasks: a few lines each. What they do is in `execution` and `runs`."""

from __future__ import annotations

import logging
import time
from typing import Any

from celery import Task
from celery.exceptions import Ignore, Reject

from rollout_tasks.app import app
from rollout_tasks.queues import FINALIZE_QUEUE, FINALIZE_RUN, RECONCILE, ROLLOUT

logger = logging.getLogger(__name__)

_NEWER_PAUSE_SECONDS = 2.0
"""How long a worker keeps a message that is too new for it before it puts it back behind the others."""


@app.task(bind=True, name=ROLLOUT, ignore_result=True)
def rollout(self: Task, run_id: str, rollout_id: str, *_later: Any, **_more: Any) -> str:
    """Brings one rollout to its verdict. Returns how it ended, for Flower and the log.

    Arguments that a newer version adds to the message are ignored, so that the message is not lost.
    """
    from rollout_tasks.execution.claim import Delivery  # here, because Flower imports this module and runs nothing
    from rollout_tasks.execution.rollout import HANDED_BACK, NOT_HANDED_BACK, UNREADABLE, run_rollout
    from rollout_tasks.runs.store_format import VERSION, too_new

    properties: dict[str, Any] = self.request.properties or {}
    delivery = Delivery(
        task_id=str(self.request.id),
        delivery_tag=properties.get("delivery_tag"),
        worker=str(self.request.hostname),
    )
    newer = int(getattr(self.request, "min_version", None) or 1) > VERSION
    if newer:
        logger.warning("%s: left to another worker: %s", rollout_id, too_new(run_id))
    outcome = UNREADABLE if newer else run_rollout(run_id, rollout_id, delivery)
    if outcome == UNREADABLE:
        time.sleep(_NEWER_PAUSE_SECONDS)
        # Unchanged, with its place in the chord, which counts it once another worker has done it.
        headers = {"run": run_id, "rollout": rollout_id, "min_version": getattr(self.request, "min_version", None) or 1}
        self.signature_from_request(self.request, headers=headers).apply_async()
        raise Ignore
    if outcome == HANDED_BACK:
        raise Ignore
    if outcome == NOT_HANDED_BACK:
        raise Reject(outcome, requeue=True)
    return outcome


@app.task(name=FINALIZE_RUN, ignore_result=True, queue=FINALIZE_QUEUE)
def finalize_run(run_id: str) -> str:
    """Scores a complete run and writes its report, once."""
    from rollout_tasks.runs.finalize import finalize  # here, because only finalising needs it

    return finalize(run_id)


@app.task(name=RECONCILE, ignore_result=True, queue=FINALIZE_QUEUE)
def reconcile() -> dict[str, int]:
    """Finds what got lost between broker, chord and workers, and sends it again."""
    from rollout_tasks.execution.cancellation import cancel_run  # here, as in rollout
    from rollout_tasks.runs.reconcile import reconcile_runs

    return reconcile_runs(cancel_run)
