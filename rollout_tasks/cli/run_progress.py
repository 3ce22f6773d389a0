"""What commands do with an existing run: follow it, show its progress, report its end, cancel it.

Each returns the exit code. 0: over, nothing lost. 1: over, but rollouts or scores were lost to the infrastructure.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kombu.exceptions import OperationalError
from redis import RedisError
from rich.console import Console

from benchmark.errors import BenchmarkError
from benchmark.money import dollars
from benchmark.stored_report import scan_report
from rollout_tasks.cli.fitting_tables import table_console
from rollout_tasks.cli.program import DONE, INCOMPLETE, INTERRUPTED, print_json, tell
from rollout_tasks.cli.result_tables import show_run
from rollout_tasks.config import RunConfig
from rollout_tasks.errors import FailureClass, UserError
from rollout_tasks.queues import finalize_task
from rollout_tasks.redis_client import checked_client, wait_until_durable
from rollout_tasks.runs.completeness import lacking
from rollout_tasks.runs.folder import RunFolder, find_run
from rollout_tasks.runs.progress import check_is_in, progress_in_folder, progress_of
from rollout_tasks.runs.states import Progress
from rollout_tasks.runs.store import RunStore
from rollout_tasks.runs.waits import pool_state, pool_status, waits_for
from rollout_tasks.runs.watch import (
    ENDS,
    OVER,
    Rate,
    describe,
    line,
    watch,
)


def follow(
    run_id: str, store: RunStore, console: Console, folder: RunFolder, *, pool: str | None, as_json: bool
) -> int:
    """Shows a run until it is over, then reports it; Ctrl-C does not stop the run."""
    try:
        progress = watch(store, run_id, console, pool=pool)
    except KeyboardInterrupt:
        console.print(f"The run goes on. Come back with: {come_back(run_id)}")
        return INTERRUPTED
    return report(progress, folder, console, as_json=as_json)


def report(progress: Progress, folder: RunFolder, console: Console, *, as_json: bool) -> int:
    """Shows a run that is over, or half-submitted, and on stderr what it lost and how to get it back."""
    summary = scan_report(folder.evaluation)["summary"] if folder.evaluation.exists() else None
    if as_json:
        values = describe(progress) | {"folder": str(folder.path)}
        if summary is not None:
            values["summary"] = summary
        print_json(values)
    elif summary is not None:
        show_run(folder, console)
    losses = _lost_rollouts(progress, folder)
    if not folder.path.is_dir():
        losses.append(f"the run's folder {folder.path} is gone, and its results and its report with it")
    elif progress.state == "half_submitted":
        losses.append(
            f"run {progress.run_id} is half-submitted: its submission ended when {progress.stored} of {progress.total}"
            f" rollouts were stored, and none was sent; complete it with: rollouts resume {folder.path}"
        )
    elif progress.problem:
        losses.append(f"the run has no report: {progress.problem}; {_how_to_score(folder)}")
    if summary is not None:
        losses += lost_scores(summary, folder)
    for sentence in losses:
        tell(sentence)
    return INCOMPLETE if losses else DONE


def _lost_rollouts(progress: Progress, folder: RunFolder) -> list[str]:
    lost = {name: n for name, n in progress.failures.items() if FailureClass(name).counted_as == "infrastructure"}
    cancelled = lost.pop(FailureClass.CANCELLED.value, 0)
    again = f"rollouts resume {folder.path}"
    sentences = []
    if lost:
        what = ", ".join(f"{name} {count}" for name, count in lost.items())
        sentences.append(
            f"{sum(lost.values())} of {progress.total} rollouts were lost to the infrastructure ({what});"
            f" try them again with: {again}"
        )
    most = folder.description.config().max_cost if cancelled and (folder.path / "run.json").is_file() else None
    if most is not None and progress.cost is not None and progress.cost >= most:
        sentences.append(
            f"the run has cost {dollars(progress.cost)} of at most {dollars(most)}, so {cancelled} of {progress.total}"
            f" rollouts were cancelled; roll them out with: {again} --max-cost MORE"
        )
    elif cancelled:
        sentences.append(f"{cancelled} of {progress.total} rollouts were cancelled; roll them out with: {again}")
    return sentences


def unscored(summary: Mapping[str, Any]) -> int:
    """Returns how many answers of a report got no score."""
    return sum(int(losses["count"]) for losses in summary.get("unscored", {}).values())


def lost_scores(summary: Mapping[str, Any], folder: RunFolder) -> list[str]:
    """Returns a sentence about answers that got no score from the metric or the judge, if there are any.

    Args:
        summary: A report's ``summary``.
        folder: The run's folder.
    """
    if not (count := unscored(summary)):
        return []
    example = next(iter(summary["unscored"].values()))["example"]
    return [
        f"{count} of {summary['total_rollouts']} answers got no score from {summary['metric']}, such as {example};"
        f" score them again with: {score_again(folder, summary['metric'])}"
    ]


def _how_to_score(folder: RunFolder) -> str:
    again = f"score it with: {score_again(folder, metric_of(folder))}"
    try:
        missing = lacking(folder)
    except (UserError, BenchmarkError):  # what is wrong with the folder is reported elsewhere
        return f"once its folder can be read, {again}"
    return f"{missing}, roll them out with: rollouts resume {folder.path}" if missing else again


def metric_of(folder: RunFolder) -> str:
    """Returns the run's metric, or ``METRIC`` where its description cannot be read."""
    try:
        return folder.description.config().metric
    except UserError:  # what is wrong with the folder is reported elsewhere
        return "METRIC"


def score_again(folder: RunFolder, metric: str) -> str:
    """Returns the command that scores a finished run."""
    return f"rollouts rescore {folder.path} --metric {metric}"


def _named(run: str, output_dir: Path | None) -> tuple[str, RunFolder | None]:
    """Returns a run's id and, where it is given by its folder, or with the one that this is in, its folder.

    Raises:
        UserError: It is neither a folder's path nor an id.
    """
    try:
        folder = find_run(run, output_dir or Path())
    except UserError:
        if not Path(run).name:
            raise
        return Path(run).name, None
    return folder.path.name, folder


def status(run: str, output_dir: Path | None, *, keep_on: bool, as_json: bool) -> int:
    """Shows a run's progress; with `keep_on`, until it is over."""
    console = table_console(stderr=as_json, soft_wrap=True, highlight=False, markup=False)
    run_id, given = _named(run, output_dir)
    output_dir = output_dir or Path(RunConfig().output_dir)
    try:
        store = RunStore(checked_client())
        if given is not None:
            check_is_in(store, run_id, given)
        store.adopt(run_id)
        progress = progress_of(store, run_id)
    except UserError as unknown:
        return _status_in_folder(run, output_dir, unknown, console, as_json=as_json)
    config, path = store.config(run_id)
    folder = given or RunFolder(Path(path) if Path(path).is_dir() else output_dir / run_id)
    if progress.state in ENDS:
        return report(progress, folder, console, as_json=as_json)
    pool = config.vm.pool if config.vm.use_pool else None
    if keep_on:
        return follow(run_id, store, console, folder, pool=pool, as_json=as_json)
    in_pool = pool_status(store.client, pool) if pool else None
    vms, idle = pool_state(in_pool), waits_for(store, progress, in_pool)
    if as_json:
        print_json(describe(progress, vms=vms) | {"waits_for": idle})
    else:
        console.print(f"Run {run_id}: {line(progress, Rate(), vms, idle)}")
    return DONE


def _status_in_folder(run: str, output_dir: Path, unknown: UserError, console: Console, *, as_json: bool) -> int:
    """Reports a run that Redis does not know from its folder: an embedded run's Redis is gone.

    Raises:
        UserError: It has no folder, or lacks verdicts or a report; contains `unknown`, and what the folder has.
    """
    try:
        folder = find_run(run, output_dir)
    except UserError:
        raise unknown from None
    progress = progress_in_folder(folder)
    if progress.pending or not folder.evaluated_as_asked():
        found = f"in its folder {folder.path} {progress.committed} of {progress.total} rollouts have a verdict"
        if folder.description.embedded():
            raise UserError(
                f"run {progress.run_id} is embedded, so only the command that began it knows how far it is; {found}; if that"
                f" command has ended, go on with: rollouts resume {folder.path}"
            ) from unknown
        raise UserError(f"{unknown}; {found}") from unknown
    if not (as_json or folder.evaluation.exists()):
        console.print(f"Run {progress.run_id}: {line(progress, Rate(), {})}")
    return report(progress, folder, console, as_json=as_json)


def cancel(run: str, output_dir: Path | None, *, as_json: bool) -> int:
    """Stops a run; what is committed stays.

    Raises:
        UserError: Redis does not know the run, or another one of that name, or it is over already. Or Redis failed once the
            run was cancelled.
    """
    from rollout_tasks.execution.cancellation import cancel_run  # here, because only cancelling needs it

    run_id, given = _named(run if output_dir is None else str(find_run(run, output_dir).path), None)
    store = RunStore(checked_client())
    if given is not None:
        check_is_in(store, run_id, given)
    try:
        done = cancel_run(store, run_id)
    except OperationalError as error:  # the last thing that is done: the message that asks for the report
        raise _cancelled_then_lost(run_id, error) from error
    found, left = done.found, done.left
    if found == "unknown":
        raise UserError(f"Redis does not know run {run_id!r}")
    if found in OVER or found == "finalizing":
        raise UserError(f"run {run_id} is {found} already")
    try:
        if left == 0:
            finalize_task(run_id).apply_async()
        wait_until_durable(store.client)  # so that a server without its last second still has it
    except (RedisError, OperationalError) as error:
        raise _cancelled_then_lost(run_id, error) from error
    if as_json:
        print_json({"run_id": run_id, "cancelled": done.cancelled, "being_stopped": left})
    else:
        sys.stdout.write(f"Run {run_id}: {done.cancelled} rollouts cancelled, {left} running ones are being stopped\n")
    return DONE


def _cancelled_then_lost(run_id: str, error: Exception) -> UserError:
    return UserError(
        f"run {run_id} was cancelled, but then Redis failed ({error}): a worker writes its report once Redis works again; see"
        f" rollouts status {run_id}"
    )


def come_back(run_id: str) -> str:
    """Returns the command that follows a run."""
    return f"rollouts watch {run_id}"
