"""Submits a run: reserves its id, writes its folder, stores it and sends its messages.

Nothing is sent before all of it is stored. What goes wrong until then is taken back.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from rollout_tasks.config import RunConfig
from rollout_tasks.errors import UserError
from rollout_tasks.runs import ending, preflight
from rollout_tasks.runs.counting import Counting, silently
from rollout_tasks.runs.states import RunState
from rollout_tasks.runs.submission import Submission
from rollout_tasks.runs.withdrawal import discard, is_stored_there, withdraw
from rollout_tasks.settings import settings

if TYPE_CHECKING:  # Celery and Redis are imported where a run is sent, so that an error is reported fast.
    from rollout_tasks.runs.store import RunStore
    from rollout_tasks.runs.submission_store import StoredSubmission

_STORE_TRIES = 3
_RESUMABLE: tuple[RunState, ...] = ("done", "cancelled", "draining", "half_submitted")


@dataclass(slots=True)
class SubmissionStage:
    """How far the submission of a run has come."""

    token: str = field(default_factory=lambda: uuid.uuid4().hex)
    sending: bool = False
    """Whether messages may have been sent: the run is stored whole, and the workers go on with it."""


def check_free(submission: Submission, store: RunStore) -> None:
    """Checks that no process works on the run, and that a new run's id is free.

    Raises:
        UserError: The run is being worked on, or the id is taken.
    """
    state = store.adopt(submission.run_id)
    if not submission.resumed:
        if state is not None:
            raise UserError(
                f"--run-id: a run {submission.run_id!r} exists already; take another name, or continue it with rollouts resume"
            )
        return
    if state not in {None, *_RESUMABLE}:
        raise UserError(f"run {submission.run_id} is still {state}; follow it with rollouts watch {submission.run_id}")
    if store.running(submission.run_id):
        raise UserError(f"rollouts of run {submission.run_id} are still being finished; try again in a while")


def check_not_on_workers(submission: Submission) -> None:
    """Checks that no worker has a run that is about to be resumed here; asks their Redis if the run was last on workers.

    Raises:
        UserError: Workers are rolling it out, or their Redis cannot be reached.
    """
    from rollout_tasks.redis_client import checked_client  # here, so that a refusal is fast
    from rollout_tasks.runs.progress import other_folder
    from rollout_tasks.runs.store import RunStore

    if not (submission.resumed and settings().broker_configured) or submission.folder.description.embedded():
        return
    try:
        client = checked_client()
    except UserError as error:
        raise UserError(
            f"{error}; so it is not known whether workers are rolling out run {submission.run_id}: where REDIS_URL is not set,"
            " the run goes on here all the same"
        ) from error
    with closing(client):
        store = RunStore(client)
        if not other_folder(store, submission.run_id, submission.folder):  # else it is another run of that name
            check_free(submission, store)


def write_down(submission: Submission) -> None:
    """Makes a new run's folder; a resumed run has one.

    Raises:
        UserError: The folder exists already or cannot be written.
    """
    if submission.resumed:
        return
    source = submission.source
    environments = preflight.check_names(submission.config, submission.items)
    submission.folder.description.create(
        submission.config,
        submission.items,
        data_path=source.path,
        data_name=source.name,
        left_out=source.left_out,
        doubted=source.doubted,
        images=source.images,
        embedded=submission.embedded,
        asks_model=preflight.needs_model(submission.config, environments),
    )


def enqueue(
    submission: Submission,
    store: RunStore,
    *,
    stage: SubmissionStage | None = None,
    described: RunConfig | None = None,
    count: Counting = silently,
) -> None:
    """Puts the run into the run store and sends its chord.

    Args:
        submission: The run.
        store: The run store.
        stage: Tells the caller, whatever happens, how far it came.
        described: The configuration that a resumed run's folder gets; default: the run's.
        count: Shows how far it is.

    Raises:
        UserError: Another process submitted the same run meanwhile, or Redis did not accept it; what was written is
            then removed. Or Redis was lost after it had accepted the run; the workers then go on with it.
    """
    from kombu.exceptions import OperationalError  # here, so that a refusal is fast
    from redis import RedisError

    stage = stage or SubmissionStage()
    try:
        stored = _reserve(submission, store, stage.token)
        if submission.resumed:
            submission = _clear_the_way(submission, store, stored, described or submission.config)
        _store(submission, store, stored, count)
        if submission.resumed and submission.todo and store.state(submission.run_id) == "submitting":
            _remove_report(submission)
    except (RedisError, OperationalError) as error:
        _take_back(submission, store, stage.token, error)
        raise UserError(f"Redis did not accept the run, so nothing was enqueued: {error}") from error
    stage.sending = True
    try:
        _send(submission, store, stored, count)
    except (RedisError, OperationalError) as error:
        raise UserError(
            f"Redis was lost while the rollouts of run {submission.run_id} were being sent ({error}); it has them all, so"
            f" the workers go on with the run once it is back: see rollouts status {submission.run_id}"
        ) from error


def _reserve(submission: Submission, store: RunStore, token: str) -> StoredSubmission:
    """Reserves the run's id.

    Raises:
        UserError: Another process submitted the same run meanwhile.
    """
    from rollout_tasks.runs.enqueue import queues_of  # here, so that a refusal is fast
    from rollout_tasks.runs.submission_store import reserve

    run_id, config = submission.run_id, submission.config
    stored = None
    if not submission.resumed or store.forget(run_id, *_RESUMABLE):
        queues = queues_of(config, submission.items)
        folder = str(submission.folder.path)
        stored = reserve(store.client, run_id, config, folder, submission.total, queues, token=token)
    if stored is not None:
        return stored
    resumed = submission.resumed or is_stored_there(submission, store)
    if resumed:
        raise UserError(f"run {run_id!r} was resumed by somebody else just now")
    discard(submission)
    raise UserError(f"--run-id: run {run_id!r} was submitted by somebody else just now")


def _clear_the_way(
    submission: Submission, store: RunStore, stored: StoredSubmission, described: RunConfig
) -> Submission:
    """Prepares the folder of a resumed run, once the run is reserved.

    Records what the resume changes, and sets aside what is tried again; keeps what was finished meanwhile. What is kept and
    was not settled, as of a worker that was stopped while Redis was away, is settled.
    """
    try:
        with submitter_beats(stored):
            ending.record_beginning(submission.folder)
            submission.folder.description.record_resume(described, embedded=submission.embedded)
            finished = [
                verdict for verdict in submission.folder.verdicts(submission.todo) if not verdict.worth_repeating
            ]
            names = {verdict.rollout_id for verdict in finished}
            todo = [name for name in submission.todo if name not in names]
            kept = [submission.folder.settle(verdict, written=True) for verdict in (*submission.kept, *finished)]
            for rollout_id in todo:
                stored.submitter_lives()  # raises before files are moved that another resume has by now
                submission.folder.set_aside(rollout_id)
    except (OSError, UserError) as error:
        store.forget(submission.run_id, "submitting", "half_submitted", submission=stored.token)
        if isinstance(error, UserError):
            raise
        raise UserError(f"{submission.folder.path} cannot be written: {error.strerror}") from error
    return replace(submission, kept=kept, todo=todo)


def _remove_report(submission: Submission) -> None:
    """Removes the report of before, once nothing stands in the resume's way: one that Redis refuses costs no score."""
    with suppress(OSError):  # the finaliser tries that again
        submission.folder.remove_report()


def _store(submission: Submission, store: RunStore, stored: StoredSubmission, count: Counting = silently) -> None:
    """Stores the whole run before the first message is sent: a half-stored run is never rolled out."""
    for _ in range(_STORE_TRIES):
        stored.add_results(submission.kept)
        stored.add_spent(submission.spent_before())
        stored.add_items(count("storing items", submission.items), count("storing rollouts", submission.todo))
        stored.wait_until_durable()
        if stored.everything_stored():
            return
    raise UserError(
        f"run {submission.run_id} is half-submitted: Redis keeps losing what is stored; once it works reliably,"
        f" and not before {store.submitter_silent_seconds:.0f} s from now, complete the run with:"
        f" rollouts resume {submission.folder.path}"
    )


def _send(submission: Submission, store: RunStore, stored: StoredSubmission, count: Counting) -> None:
    from rollout_tasks.queues import finalize_task  # here, so that a refusal is fast
    from rollout_tasks.runs.enqueue import send_chord

    with submitter_beats(stored):
        if submission.todo:
            items = {item.id: item for item in submission.items}
            send_chord(submission.run_id, submission.config, items, submission.todo, count)
        if not stored.everything_sent():  # Redis came back without some of what was stored
            _store(submission, store, stored)
            store.finalize_by_last_commit(submission.run_id)
            stored.everything_sent()
    if not submission.todo:
        finalize_task(submission.run_id).apply_async()


@contextmanager
def submitter_beats(stored: StoredSubmission) -> Iterator[None]:
    """Records every few seconds that the submitter lives, from a thread: sending many messages takes minutes."""
    from redis import RedisError  # here, so that a refusal is fast

    from rollout_tasks.redis_client import connect  # here, so that a refusal is fast
    from rollout_tasks.runs.submission_store import SUBMITTER_BEAT_SECONDS

    over = threading.Event()

    def beat() -> None:
        with connect(tries=0, socket_timeout=SUBMITTER_BEAT_SECONDS) as client:
            mine = stored.using(client)
            while not over.wait(SUBMITTER_BEAT_SECONDS):
                with suppress(RedisError, UserError):  # the sending thread gets the error too
                    mine.submitter_lives()

    thread = threading.Thread(target=beat, name="submitter's heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _take_back(submission: Submission, store: RunStore, token: str, reason: Exception) -> None:
    """Removes a run that Redis did not accept; none of its messages was sent.

    Raises:
        UserError: Redis does not answer, or others have the run by now.
    """
    from redis import RedisError  # here, so that a refusal is fast

    try:
        withdrawn = withdraw(submission, store, token)
        state = None if withdrawn else store.state(submission.run_id)
    except RedisError as error:
        raise UserError(
            f"Redis was lost while run {submission.run_id} was being stored ({reason}), so nothing was enqueued; once it is back,"
            f" and not before {store.submitter_silent_seconds:.0f} s from now, complete the run with:"
            f" rollouts resume {submission.folder.path}"
        ) from error
    if not withdrawn:
        raise UserError(
            f"Redis was lost while run {submission.run_id} was being stored ({reason}), but others have the run by now, and it"
            f" is {state}: see rollouts status {submission.run_id}"
        )
