"""Takes back a run of which no message was sent, unless others have it by now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rollout_tasks.errors import UserError
from rollout_tasks.runs.submission import Submission

if TYPE_CHECKING:  # Redis is imported where a run is sent, so that an error is reported fast.
    from rollout_tasks.runs.store import RunStore


def withdraw(submission: Submission, store: RunStore, token: str) -> bool:
    """Removes a run of which this submission has sent no message, and the folder of a new one.

    Args:
        submission: The run.
        store: The run store.
        token: The submission's.

    Returns:
        False where others have the run: its submitter was silent for so long that the workers or a resume took it over, or
        somebody cancelled it. Nothing is changed then.

    Raises:
        redis.RedisError: The store does not answer.
    """
    from rollout_tasks.runs.submission_store import StoredSubmission  # here, because it imports Redis's client

    try:
        StoredSubmission(store.client, submission.run_id, token).everything_stored()
    except UserError:  # the store has no run of this submission
        gone = submission.resumed or not is_stored_there(submission, store)
    else:
        gone = store.forget(submission.run_id, "submitting", "half_submitted", submission=token)
    if gone:
        discard(submission)
    return gone


def is_stored_there(submission: Submission, store: RunStore) -> bool:
    """Whether the store has a run in this submission's folder, whoever submitted it."""
    return store.folder(submission.run_id) == str(submission.folder.path)


def discard(submission: Submission) -> None:
    """Removes the folder of a new run that did not come about."""
    if not submission.resumed:
        submission.folder.discard()
