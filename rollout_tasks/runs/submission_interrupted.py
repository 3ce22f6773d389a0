"""What becomes of a run whose submission ends with Ctrl-C, and what is said of it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from redis import RedisError

from rollout_tasks.errors import UserError
from rollout_tasks.runs.store import RunStore
from rollout_tasks.runs.submission import Submission
from rollout_tasks.runs.submission_store import StoredSubmission
from rollout_tasks.runs.submit import discard


def undo(submission: Submission, store: RunStore, token: str) -> str:
    """Removes a run of which no message was sent.

    Args:
        submission: The run.
        store: The run store.
        token: The submission's.

    Returns:
        A sentence that says what there is of the run now; empty if there is nothing.
    """
    run_id, again = submission.run_id, f"rollouts resume {submission.folder.path}"
    with _undisturbed(store):
        try:
            with suppress(UserError):  # the store has no run of this submission
                StoredSubmission(store.client, run_id, token).everything_stored()
                store.forget(run_id, "submitting", "half_submitted")
        except RedisError as error:
            return (
                f"Stopped while run {run_id} was being stored, and Redis does not answer now ({error}); none of its rollouts was"
                f" sent: once Redis is back, complete the run with {again}, or end it with rollouts cancel {run_id}"
            )
        discard(submission)
    if submission.resumed:
        return f"Stopped before any rollout of run {run_id} was sent; roll out what it lacks with: {again}"
    return ""


def hand_over(submission: Submission, store: RunStore, token: str) -> str:
    """Leaves a run of which messages were sent to the workers, which send those that are missing.

    Args:
        submission: The run.
        store: The run store.
        token: The submission's.

    Returns:
        A sentence that says what there is of the run now.
    """
    run_id = submission.run_id
    with _undisturbed(store):
        try:
            whole = StoredSubmission(store.client, run_id, token).everything_sent()
            if whole:  # no chord counts messages that were not sent
                store.finalize_by_last_commit(run_id)
        except UserError as error:
            return f"Stopped: {error}"
        except RedisError as error:
            return (
                f"Stopped while run {run_id} was being sent, and Redis does not answer now ({error}); it has all rollouts, so the"
                f" workers go on with them once it is back: see rollouts status {run_id}, or end it with rollouts cancel {run_id}"
            )
    if not whole:
        return (
            f"Stopped: Redis has lost a part of run {run_id}; complete it with rollouts resume {submission.folder.path}, or end"
            f" it with rollouts cancel {run_id}"
        )
    return (
        f"Stopped sending, but run {run_id} is stored with all its rollouts, and the workers go on with them: follow it with"
        f" rollouts watch {run_id}, or end it with rollouts cancel {run_id}"
    )


@contextmanager
def _undisturbed(store: RunStore) -> Iterator[None]:
    """Ignores further Ctrl-C; no connection is used again whose last reply may not have been read."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        store.client.connection_pool.disconnect()
        yield
    finally:
        signal.signal(signal.SIGINT, before)
