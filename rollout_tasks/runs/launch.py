"""Submits a run to the workers of the configured broker."""

from __future__ import annotations

from dataclasses import replace

from rollout_tasks.redis_client import checked_client
from rollout_tasks.runs import model_check, preflight
from rollout_tasks.runs.store import RunStore
from rollout_tasks.runs.submit import Work, check_free, enqueue, write_down


def submit_to_workers(work: Work) -> tuple[Work, RunStore]:
    """Checks and enqueues a run on the configured broker.

    Raises:
        UserError: Something is wrong; nothing was enqueued, unless Redis was lost while messages were being sent.
    """
    environments = preflight.check_names(work.config, work.items)
    client = checked_client()
    store = RunStore(client)
    check_free(work, store)
    needs_model = preflight.needs_model(work.config, environments)
    if needs_model:
        work = replace(work, config=model_check.check_model(work.config))
    model_check.check_cost(work.config, needs_model=needs_model, spent=work.spent)
    if preflight.needs_vm(work.config, work.items):
        preflight.check_pool(work.config, client)
        if not work.config.vm.use_pool:
            preflight.check_provider(work.config, environments)
    write_down(work)
    enqueue(work, store)
    return work, store
