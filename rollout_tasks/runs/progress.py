"""A run's progress: from the run store, or from its folder when Redis does not know the run."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

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


def other_folder(store: RunStore, run_id: str, folder: RunFolder) -> str:
    """Returns the folder of the run that Redis knows by an id if that is another one than a folder's; else empty.

    Where the folder that it was stored with is gone, or the given one is, the run may have been moved.
    """
    stored = store.folder(run_id)
    both = Path(stored), folder.path
    return stored if stored and all(path.is_dir() for path in both) and not both[0].samefile(both[1]) else ""


def check_is_in(store: RunStore, run_id: str, folder: RunFolder) -> None:
    """Checks that the run which Redis knows by an id, if any, is the one in a folder.

    Raises:
        UserError: It is another run.
    """
    if other := other_folder(store, run_id, folder):
        raise UserError(f"Redis does not know the run in {folder.path}, but another one called {run_id!r}, in {other}")


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
