"""`rollouts status` without a run: those that Redis knows and that are not over. A look, which changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache

import redis

from rollout_tasks.cli.fitting_tables import table_console
from rollout_tasks.cli.program import DONE, print_json, tell
from rollout_tasks.errors import UserError
from rollout_tasks.redis_client import checked_client
from rollout_tasks.runs.states import Progress
from rollout_tasks.runs.store import RunStore
from rollout_tasks.runs.store_format import UnreadableRun
from rollout_tasks.runs.waits import pool_status, waits_for
from rollout_tasks.runs.watch import OVER, Rate, describe, line
from vm_pool.states import PoolStatus

_BROKEN = (UserError, ValueError, TypeError, redis.ResponseError)
"""Errors from reading a run that is broken: the others are listed all the same."""


@dataclass(frozen=True, slots=True)
class KnownRun:
    """A run as Redis knows it."""

    progress: Progress
    folder: str
    """Empty for a run of a newer version."""
    waits_for: str


def show_known_runs(*, as_json: bool) -> int:
    """Lists the runs that are not over, the newest first; says on stderr which cannot be read."""
    found = sorted(_known_runs(RunStore(checked_client())), key=lambda run: run.progress.created, reverse=True)
    if as_json:
        print_json([describe(run.progress) | {"folder": run.folder, "waits_for": run.waits_for} for run in found])
        return DONE
    console = table_console(soft_wrap=True, highlight=False, markup=False)
    for run in found:
        console.print(f"Run {run.progress.run_id}: {line(run.progress, Rate(), {}, run.waits_for)}")
    if not found:
        console.print("Redis knows no run that is under way")
    return DONE


def _known_runs(store: RunStore) -> Iterator[KnownRun]:
    pool = cache(lambda name: pool_status(store.client, name))
    for run_id in store.active():
        try:
            progress = store.progress(run_id)
            if progress is not None and progress.state not in OVER:
                yield _known_run(store, progress, pool)
        except _BROKEN as error:
            tell(f"left out: run {run_id}: {error}")


def _known_run(store: RunStore, progress: Progress, pool: Callable[[str], PoolStatus | None]) -> KnownRun:
    folder, status = "", None
    with suppress(KeyError, UnreadableRun):
        config, folder = store.config(progress.run_id)
        status = pool(config.vm.pool) if config.vm.use_pool else None
    return KnownRun(progress, folder, waits_for(store, progress, status))
