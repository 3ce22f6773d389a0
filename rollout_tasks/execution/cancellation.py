"""Cancels a run: ends rollouts that nobody has begun, takes dead workers' results from the folder, tells running ones.

A worker may have died after it wrote its attempt's result and before it committed that. So a rollout that was begun and
that nobody holds now is claimed and brought to its verdict as a worker would do: it is cancelled only if the folder has
no result.
"""

from __future__ import annotations

import os
import socket
import uuid
from contextlib import suppress
from pathlib import Path

from rollout_tasks.execution.claim import Delivery
from rollout_tasks.execution.rollout import Execution
from rollout_tasks.runs import ending
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.runs.states import Cancellation
from rollout_tasks.runs.store import RunStore
from rollout_tasks.runs.store_format import UnreadableRun


def cancel_run(store: RunStore, run_id: str) -> Cancellation:
    """Cancels a run as far as possible from here; workers do the rest at their next heartbeat or reconciliation.

    Returns:
        The result. Rollouts that were begun are left to the workers if the run's folder cannot be written here, or theirs
        cannot be read.
    """
    folder = _folder_here(store, run_id)
    done = store.cancel(run_id, None if folder is None else folder.may_have_begun)
    if done.found != "cancelled" and store.state(run_id) == "cancelled":
        _record_end(store, run_id)
    if not done.begun or folder is None:
        return done
    delivery = Delivery(uuid.uuid4().hex, None, f"cancelling on {socket.gethostname()}")
    begun = [rollout_id for rollout_id in done.begun if _can_be_read(folder, rollout_id)]
    ended = [Execution(store, run_id, rollout_id, delivery).run(begins=False) for rollout_id in begun]
    progress = store.progress(run_id)
    left = progress.pending if progress is not None else 0
    return Cancellation(done.found, done.cancelled + ended.count("cancelled"), left)


def _folder_here(store: RunStore, run_id: str) -> RunFolder | None:
    """Returns the run's folder if it can be used here: it may be another machine's, or the run a newer version's."""
    try:
        path = store.config(run_id)[1]
    except (KeyError, UnreadableRun):
        return None
    return RunFolder(Path(path)) if os.access(path, os.R_OK | os.W_OK | os.X_OK) else None


def _can_be_read(folder: RunFolder, rollout_id: str) -> bool:
    try:
        folder.was_begun(rollout_id)
    except OSError:  # made by a worker that is another user, or on a disk that fails: the workers see to it
        return False
    return True


def _record_end(store: RunStore, run_id: str) -> None:
    """Records in the folder that the run is over: one that was half-submitted ends without a finaliser."""
    with suppress(OSError, KeyError, UnreadableRun):  # the folder may be another machine's
        folder = RunFolder(Path(store.config(run_id)[1]))
        ending.record_end(folder)
        if store.state(run_id) != "cancelled":  # it was resumed just now
            ending.record_beginning(folder)
