"""What `scripts/submit.py` does, action by action: submit, resume, status, cancel. Each returns the exit code.

0: over, nothing lost. 1: over or stopped, but rollouts were lost to the infrastructure or never ran; --resume tries them again.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmark.report import read_report
from rollout_tasks.command_line import INTERRUPTED, print_json
from rollout_tasks.config import RunConfig
from rollout_tasks.errors import FailureClass, UserError
from rollout_tasks.redis_client import checked_client
from rollout_tasks.runs import preflight
from rollout_tasks.runs.folder import RunFolder, find_run
from rollout_tasks.runs.launch import Source, run_embedded, submit_to_workers
from rollout_tasks.runs.show import show_run
from rollout_tasks.runs.store import Progress, RunStore
from rollout_tasks.runs.submit import Work, load_benchmark, new_work, resumed_work
from rollout_tasks.runs.watch import OVER, describe, pool_state, progress_of, watch
from rollout_tasks.settings import settings

DONE, LOST = 0, 1


def submit(
    config: RunConfig, console: Console, *, embedded: bool | None, follow: bool, as_json: bool, dry_run: bool
) -> int:
    """A new run."""
    benchmark = load_benchmark(config)
    for sentence in benchmark.skipped:
        console.print(f"left out: {sentence}", markup=False, highlight=False, soft_wrap=True)
    work = new_work(config, benchmark)
    return _go(work, Source(benchmark.name, str(benchmark.path)), console, embedded, follow, as_json, dry_run)


def resume(
    run: str,
    options: Mapping[str, Any],
    console: Console,
    *,
    embedded: bool | None,
    follow: bool,
    as_json: bool,
    dry_run: bool,
) -> int:
    """What an earlier run lacks."""
    output_dir = _only_output_dir(options, "--resume: the run's own configuration holds")
    work = resumed_work(find_run(run, output_dir))
    console.print(
        f"Run {work.run_id}: {len(work.kept)} rollouts are kept, {len(work.todo)} are missing or were lost",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
    return _go(work, Source(), console, embedded, follow, as_json, dry_run)


def _go(
    work: Work, source: Source, console: Console, embedded: bool | None, follow: bool, as_json: bool, dry_run: bool
) -> int:
    here = not settings().broker_configured if embedded is None else embedded
    preflight.check_names(work.config, work.items)
    if dry_run:
        return _dry_run(work, console, here=here, as_json=as_json)
    console.print(
        f"Run {work.run_id}: {len(work.todo)} rollouts, folder {work.folder.path}", highlight=False, soft_wrap=True
    )
    if here:
        return _embedded(work, source, console, as_json)
    work, store = submit_to_workers(work, source)
    if follow:
        return _follow(work.run_id, store, console, work.folder, pool=work.config.vm.pool, as_json=as_json)
    if as_json:
        print_json({"run_id": work.run_id, "folder": str(work.folder.path), "rollouts": len(work.todo)})
    else:
        console.print(f"Enqueued. Follow it: {_come_back(work.run_id)}", highlight=False, soft_wrap=True)
    return DONE


def _dry_run(work: Work, console: Console, *, here: bool, as_json: bool) -> int:
    environments = sorted(preflight.check_names(work.config, work.items))
    model = preflight.needs_model(work.config, environments)
    config = work.config
    if model and not (here and preflight.model_address(config) is None):
        config = preflight.check_model(config)
    if not here:
        client = checked_client()
        if preflight.needs_vm(config, work.items):
            preflight.check_pool(config, client)
    found = {
        "items": len(work.items),
        "rollouts": len(work.todo),
        "environments": environments,
        "metric": config.metric,
        "model": config.model.name if model else None,
        "embedded": here,
    }
    if as_json:
        print_json(found)
    else:
        console.print("Nothing was enqueued. " + ", ".join(f"{key}: {value}" for key, value in found.items()))
    return DONE


def _embedded(work: Work, source: Source, console: Console, as_json: bool) -> int:
    end = run_embedded(work, source, console)
    progress = end.progress
    if progress is not None and progress.state in OVER:
        return _report(progress, work.folder, console, as_json=as_json, interrupted=False)
    committed = progress.committed if progress else len(work.kept)
    total = progress.total if progress else len(work.kept) + len(work.todo)
    console.print(
        f"Stopped: {committed} of {total} rollouts are committed. Go on with: python scripts/submit.py --resume {work.folder.path}",
        highlight=False,
        soft_wrap=True,
    )
    return INTERRUPTED if end.interrupted else LOST


def _follow(
    run_id: str, store: RunStore, console: Console, folder: RunFolder, *, pool: str | None, as_json: bool
) -> int:
    try:
        progress = watch(store, run_id, console, pool=pool)
    except KeyboardInterrupt:
        console.print(f"The run goes on. Come back with: {_come_back(run_id)}", highlight=False, soft_wrap=True)
        return INTERRUPTED
    return _report(progress, folder, console, as_json=as_json, interrupted=False)


def _report(progress: Progress, folder: RunFolder, console: Console, *, as_json: bool, interrupted: bool) -> int:
    """Shows a run that is over."""
    lost = {name: n for name, n in progress.failures.items() if FailureClass(name).counted_as == "infrastructure"}
    if as_json:
        values = describe(progress) | {"folder": str(folder.path)}
        if folder.evaluation.exists():
            values["summary"] = read_report(folder.evaluation)["summary"]
        print_json(values)
    elif folder.evaluation.exists():
        show_run(folder, console)
    if lost:
        what = ", ".join(f"{name} {count}" for name, count in lost.items())
        sentence = f"{sum(lost.values())} of {progress.total} rollouts were lost to the infrastructure ({what}); "
        Console(stderr=True, soft_wrap=True, highlight=False).print(
            sentence + f"try them again with: python scripts/submit.py --resume {folder.path}", markup=False
        )
    return INTERRUPTED if interrupted else (LOST if lost else DONE)


def status(run: str, options: Mapping[str, Any], console: Console, *, follow: bool, as_json: bool) -> int:
    """How far a run is."""
    output_dir = _only_output_dir(options, "--status takes no options of a run")
    store = RunStore(checked_client())
    run_id = Path(run).name
    progress = progress_of(store, run_id)
    config, path = store.config(run_id)
    folder = RunFolder(Path(path) if Path(path).is_dir() else output_dir / run_id)
    if progress.state in OVER:
        return _report(progress, folder, console, as_json=as_json, interrupted=False)
    if follow:
        return _follow(run_id, store, console, folder, pool=config.vm.pool, as_json=as_json)
    vms = pool_state(store.client, config.vm.pool)
    if as_json:
        print_json(describe(progress, vms=vms))
    else:
        from rollout_tasks.runs.watch import Rate, line

        console.print(f"Run {run_id}: {line(progress, Rate(), vms)}", highlight=False, soft_wrap=True)
    return DONE


def cancel(run: str, console: Console, *, as_json: bool) -> int:
    """Stops a run."""
    store = RunStore(checked_client())
    run_id = Path(run).name
    found, cancelled, left = store.cancel(run_id)
    if found == "unknown":
        raise UserError(f"--cancel: Redis does not know run {run_id!r}")
    if found in OVER or found == "finalizing":
        raise UserError(f"--cancel: run {run_id} is {found} already")
    if left == 0:
        from rollout_tasks.tasks import finalize_run

        finalize_run.apply_async((run_id,))
    if as_json:
        print_json({"run_id": run_id, "cancelled": cancelled, "being_stopped": left})
    else:
        console.print(
            f"Run {run_id}: {cancelled} rollouts cancelled, {left} running ones are being stopped", highlight=False
        )
    return DONE


def _only_output_dir(options: Mapping[str, Any], sentence: str) -> Path:
    others = sorted(set(options) - {"output_dir"})
    if others:
        raise UserError(f"{sentence}; leave away: {', '.join(others)}")
    return Path(options.get("output_dir") or RunConfig().output_dir)


def _come_back(run_id: str) -> str:
    return f"python scripts/submit.py --status {run_id} --watch"
