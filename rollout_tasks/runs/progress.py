"""A run's progress: from the run store, or from its folder when Redis does not know the run."""

from __future__ import annotations

from collections import Counter

from rollout_tasks.errors import UserError
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.runs.states import Progress
from rollout_tasks.runs.store import RunStore
from rollout_tasks.runs.verdict import rollout_ids


def progress_of(store: RunStore, run_id: str) -> Progress:
    """Returns a run's progress from the run store.

    Raises:
        UserError: Redis does not know the run.
    """
    progress = store.progress(run_id)
    if progress is None:
        raise UserError(
            f"Redis does not know run {run_id!r}; if its data was lost, rollouts resume {run_id} rebuilds it"
        )
    return progress


def progress_in_folder(folder: RunFolder) -> Progress:
    """Returns a run's progress as far as its folder shows it; the state is ``done`` or ``unknown``."""
    config = folder.description.config()
    every = rollout_ids(folder.description.each_item(), config.rollouts_per_item)
    statuses: Counter[str] = Counter()
    failures: Counter[str] = Counter()
    score_sum = 0.0
    costs: list[float] = []
    for verdict in folder.settled_verdicts(every):
        statuses[verdict.status] += 1
        score_sum += verdict.score or 0.0
        if verdict.total_cost is not None:
            costs.append(verdict.total_cost)
        if verdict.failure_class is not None:
            failures[verdict.failure_class.value] += 1
    return Progress(
        run_id=folder.path.name,
        state="done" if statuses.total() == len(every) else "unknown",
        total=len(every),
        pending=len(every) - statuses.total(),
        committed=statuses.total(),
        running=0,
        completed=statuses["completed"],
        failed=statuses["failed"],
        cancelled=statuses["cancelled"],
        failures=dict(sorted(failures.items())),
        score_sum=score_sum,
        cost=sum(costs) if costs else None,
        created=(folder.path / "run.json").stat().st_mtime,
    )
