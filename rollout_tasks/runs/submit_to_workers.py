"""Submits a run to the workers of the configured broker."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

from rollout_tasks.redis_client import checked_client
from rollout_tasks.runs import model_check, preflight
from rollout_tasks.runs.counting import Counting, silently
from rollout_tasks.runs.run_lock import held
from rollout_tasks.runs.store import RunStore
from rollout_tasks.runs.submission import Submission
from rollout_tasks.runs.submission_interrupted import stopped
from rollout_tasks.runs.submit import SubmissionStage, check_free, enqueue, write_down


def submit_to_workers(submission: Submission, count: Counting = silently) -> tuple[Submission, RunStore]:
    """Checks and enqueues a run on the configured broker.

    Args:
        submission: The run.
        count: Shows how far that is.

    Raises:
        UserError: An option or a service cannot be used, and nothing was enqueued; or Redis was lost while messages were
            being sent, and the workers go on with the run.
        SubmissionStopped: Ctrl-C. The run is removed if none of it was sent, else the workers go on with it.
        KeyboardInterrupt: Ctrl-C before there was anything of the run.
    """
    environments = preflight.check_names(submission.config, submission.items)
    client = checked_client()
    store = RunStore(client)
    check_free(submission, store)
    needs_model = preflight.needs_model(submission.config, environments)
    if needs_model:
        submission = replace(submission, config=model_check.check_model(submission.config))
    model_check.check_cost(submission.config, needs_model=needs_model, spent=submission.spent)
    if preflight.needs_vm(submission.config, submission.items):
        preflight.check_pool(submission.config, client)
        if not submission.config.vm.use_pool:
            preflight.check_provider(submission.config, environments)
    write_down(submission)
    stage = SubmissionStage()
    try:
        with held(submission.folder, shared=True) if submission.resumed else nullcontext():
            enqueue(submission, store, stage=stage, count=count)
        return submission, store
    except KeyboardInterrupt as stop:
        raise stopped(submission, store, stage) from stop
