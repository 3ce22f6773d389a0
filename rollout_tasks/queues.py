"""The names of tasks and of their queue, and the messages that ask for them. Only a worker imports `tasks.py`."""

from __future__ import annotations

from celery.canvas import Signature

ROLLOUT, FINALIZE_RUN, RECONCILE = "rollout", "finalize_run", "reconcile"
FINALIZE_QUEUE = "finalize"
"""Small tasks have a queue of their own: a report must not wait behind rollouts."""


def rollout_task(run_id: str, rollout_id: str, queue: str) -> Signature:
    """Returns the message that asks for a rollout, for its environment's queue."""
    return _task(ROLLOUT, run_id, rollout_id).set(queue=queue)


def finalize_task(run_id: str) -> Signature:
    """Returns the message that asks for a run's report."""
    return _task(FINALIZE_RUN, run_id).set(queue=FINALIZE_QUEUE)


def reconcile_task() -> Signature:
    """Returns the message that asks for lost work to be looked for."""
    return _task(RECONCILE).set(queue=FINALIZE_QUEUE)


def _task(name: str, *arguments: str) -> Signature:
    from rollout_tasks.app import app  # here, because it reads the broker's address, which an embedded run sets first

    return app.signature(name, args=arguments, immutable=True, options={"ignore_result": True})
