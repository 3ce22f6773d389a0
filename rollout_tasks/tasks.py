"""The Celery tasks: a few lines each. What they do is in rollout.py and runs/."""

from __future__ import annotations

from typing import Any

from celery import Task

from rollout_tasks.app import app

FINALIZE_QUEUE = "finalize"


@app.task(bind=True, name="rollout", ignore_result=True)
def rollout(self: Task, run_id: str, rollout_id: str) -> None:
    """Brings one rollout to its verdict. Returns nothing: a chord's callback message would carry it."""
    from rollout_tasks.rollout import Delivery, run_rollout

    properties: dict[str, Any] = self.request.properties or {}
    delivery = Delivery(
        task_id=str(self.request.id),
        delivery_tag=properties.get("delivery_tag"),
        worker=str(self.request.hostname),
    )
    run_rollout(run_id, rollout_id, delivery)


@app.task(name="finalize_run", ignore_result=True, queue=FINALIZE_QUEUE)
def finalize_run(run_id: str) -> str:
    """Scores a complete run and writes its report, once."""
    from rollout_tasks.runs.finalize import finalize

    return finalize(run_id)


@app.task(name="reconcile", ignore_result=True, queue=FINALIZE_QUEUE)
def reconcile() -> dict[str, int]:
    """Finds what got lost between broker, chord and workers, and sends it again."""
    from rollout_tasks.runs.reconcile import reconcile_runs

    return reconcile_runs()
