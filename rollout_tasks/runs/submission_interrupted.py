"""What becomes of a run whose submission ends with Ctrl-C, and the sentence about it."""

from __future__ import annotations

from redis import RedisError

from rollout_tasks.errors import SubmissionStopped, UserError
from rollout_tasks.runs.store import RunStore
from rollout_tasks.runs.submission import Submission
from rollout_tasks.runs.submission_store import StoredSubmission
from rollout_tasks.runs.submit import SubmissionStage
from rollout_tasks.runs.withdrawal import withdraw


def stopped(submission: Submission, store: RunStore, stage: SubmissionStage) -> SubmissionStopped:
    """Removes a run of which no message was sent, and leaves any other to the workers, which send what is missing.

    Args:
        submission: The run.
        store: The run store.
        stage: How far its submission came.

    Returns:
        What to raise.
    """
    store.client.connection_pool.disconnect()  # the last reply of a connection may not have been read
    return SubmissionStopped((hand_over if stage.sending else undo)(submission, store, stage.token))


def undo(submission: Submission, store: RunStore, token: str) -> str:
    """Removes a run of which no message was sent, unless others have it by now.

    Args:
        submission: The run.
        store: The run store.
        token: The submission's.

    Returns:
        A sentence that says what there is of the run now; empty if there is nothing.
    """
    run_id, again = submission.run_id, f"rollouts resume {submission.folder.path}"
    try:
        if not withdraw(submission, store, token):
            return hand_over(submission, store, token)
    except RedisError as error:
        return (
            f"Stopped while run {run_id} was being stored, and Redis does not answer now ({error}); none of its rollouts was"
            f" sent: once Redis is back, and not before {_wait(store)} from now, complete the run with {again}, or end it with"
            f" rollouts cancel {run_id}"
        )
    if submission.resumed:
        return f"Stopped before any rollout of run {run_id} was sent; roll out what it lacks with: {again}"
    return ""


def hand_over(submission: Submission, store: RunStore, token: str) -> str:
    """Leaves a run to the workers, which send the messages that are missing.

    Args:
        submission: The run.
        store: The run store.
        token: The submission's.

    Returns:
        A sentence that says what there is of the run now.
    """
    run_id = submission.run_id
    try:
        whole = StoredSubmission(store.client, run_id, token).everything_sent()
        if whole:  # no chord counts messages that were not sent
            store.finalize_by_last_commit(run_id)
        state = store.state(run_id)
    except UserError as error:
        return f"Stopped: {error}"
    except RedisError as error:
        return (
            f"Stopped while run {run_id} was being sent, and Redis does not answer now ({error}); it has all rollouts, so the"
            f" workers go on with them once it is back: see rollouts status {run_id}, or end it with rollouts cancel {run_id}"
        )
    if not whole:
        return (
            f"Stopped: Redis has lost a part of run {run_id}; in {_wait(store)} complete it with rollouts resume"
            f" {submission.folder.path}, or end it with rollouts cancel {run_id}"
        )
    if state in {"cancelling", "cancelled"}:
        return f"Stopped: run {run_id} was cancelled meanwhile; see rollouts status {run_id}"
    if state != "running":
        return f"Stopped: run {run_id} is {state} already; see rollouts status {run_id}"
    return (
        f"Stopped sending, but run {run_id} is stored with all its rollouts, and the workers go on with them: follow it with"
        f" rollouts watch {run_id}, or end it with rollouts cancel {run_id}"
    )


def _wait(store: RunStore) -> str:
    return f"{store.submitter_silent_seconds:.0f} s"
