"""Cancelling a run: what nobody has begun is over at once, what a dead worker has left is taken from the folder, the rest is told.

A worker may have died after it wrote its attempt's result and before it committed that. So a rollout that was begun and that nobody
holds any more is claimed and brought to its verdict as any worker would: the folder decides, and only where it has no result is the
rollout cancelled.
"""

from __future__ import annotations

import socket
import uuid
from pathlib import Path

from rollout_tasks.execution.rollout import Delivery, Execution
from rollout_tasks.runs.states import Cancellation
from rollout_tasks.runs.store import RunStore


def cancel_run(store: RunStore, run_id: str) -> Cancellation:
    """Cancels a run, as far as that can be done from here; workers do the rest at their next beat or look.

    Returns:
        How it stands now. Rollouts that were begun are left to the workers where the run's folder cannot be seen.
    """
    done = store.cancel(run_id)
    if not done.begun or not Path(store.config(run_id)[1]).is_dir():
        return done
    delivery = Delivery(uuid.uuid4().hex, None, f"cancelling on {socket.gethostname()}")
    ended = [Execution(store, run_id, rollout_id, delivery).run() for rollout_id in done.begun]
    progress = store.progress(run_id)
    left = progress.pending if progress is not None else 0
    return Cancellation(done.found, done.cancelled + ended.count("cancelled"), left)
