"""What commands do with a run: submit, resume, status, cancel. Most return the exit code.

0: over, nothing lost. 1: over or stopped, but rollouts were lost to the infrastructure or never ran; a resume tries them
again. 130: interrupted. Modules that talk to services are imported where they are used, so that an error is reported fast.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rollout_tasks import settings as settings_of_process
from rollout_tasks.cli.dry_run import show_dry_run
from rollout_tasks.cli.program import DONE, INCOMPLETE, INTERRUPTED, print_json, tell
from rollout_tasks.cli.run_options import spellings_of
from rollout_tasks.cli.submission_progress import NOTHING, submitting
from rollout_tasks.config import RunConfig, parse_config
from rollout_tasks.errors import ServiceEnded, UserError
from rollout_tasks.model_config import ModelConfig
from rollout_tasks.runs import preflight
from rollout_tasks.runs.checked_items import checked_items
from rollout_tasks.runs.conformance_check import Checked
from rollout_tasks.runs.counting import Counting
from rollout_tasks.runs.folder import find_run
from rollout_tasks.runs.submission import Submission, load_benchmark, new_submission, resumed_submission

if TYPE_CHECKING:
    from rich.console import Console

CHANGED_BY_RESUME = ("--base-url", "--model-pool", "--model-role", "--prompt-price", "--completion-price", "--max-cost")

_ELSEWHERE = ("base_url", "pool", "prompt_price", "completion_price")
"""Options of a model that a resumed run may be given anew."""
_NO_PRICES: dict[str, Any] = {"prompt_price": None, "completion_price": None}


def submit(config: RunConfig, *, embedded: bool | None, follow: bool, as_json: bool, dry_run: bool) -> int:
    """Submits a new run."""
    with submitting() as count:
        here = is_here(embedded)
        submission, environments, checked = prepared(config, count, here=here, show=dry_run and not as_json)
    return _go(submission, environments, checked, here=here, follow=follow, as_json=as_json, dry_run=dry_run)


def prepared(config: RunConfig, count: Counting, *, here: bool, show: bool) -> tuple[Submission, set[str], Checked]:
    """Checks a new run; with `show`, prints how far each desktop task's score can be relied on.

    Returns:
        The submission, its environments, and how its items compare with the VMs.
    """
    benchmark = load_benchmark(config)
    found = checked_items(config, benchmark, here=here, count=count, say=tell)
    if show and found.checked.found:
        from rollout_tasks.cli import conformance_table  # here, because it draws with rich

        conformance_table.show(found.checked.found)
    _say_of_items(found.benchmark.skipped, found.doubts, found.checked.unknown)
    if not found.benchmark.items:
        raise UserError("no item's score can be relied on in these VMs: --include-unfaithful rolls them out anyway")
    environments = preflight.check_names(config, found.benchmark.items)
    return new_submission(config, found.benchmark, found.doubts, found.checked.images), environments, found.checked


def trust_tasks(*, embedded: bool | None) -> None:
    """Runs desktop tasks' setup and evaluation in the worker's own process, in an embedded run.

    Raises:
        UserError: The run goes to workers, which decide that themselves.
    """
    if not is_here(embedded):
        raise UserError(
            "--trust-tasks: this run goes to workers, which take it: celery -A rollout_tasks worker --trust-tasks"
        )
    settings_of_process.trust_tasks()


def is_here(embedded: bool | None) -> bool:
    """Whether this machine does it alone: what was asked for, else whether no Redis is configured."""
    return not settings_of_process.settings().broker_configured if embedded is None else embedded


def _say_of_items(left_out: Sequence[str], doubts: Sequence[str], unknown: str) -> None:
    for sentence in left_out:
        tell(f"left out: {sentence}")
    for sentence in doubts:
        tell(f"not to be relied on: {sentence}")
    if unknown:
        tell(
            f"note: what {unknown} have was never examined, so it is not known which tasks they can serve and score;"
            " rollouts image build --check examines them"
        )


def resume(
    run: str,
    options: Mapping[str, Any],
    *,
    embedded: bool | None,
    follow: bool,
    as_json: bool,
    dry_run: bool,
    trust: bool = False,
) -> int:
    """Rolls out what an earlier run lacks; elsewhere, at another endpoint, or with another limit of its cost, if given.

    With `trust`, as after `trust_tasks`.
    """
    output_dir = _only_output_dir(options, "a resumed run keeps its own configuration", but=CHANGED_BY_RESUME)
    output_dir = output_dir or Path(RunConfig().output_dir)
    changed = parse_config({name: options[name] for name in ("model", "model_roles", "max_cost") if name in options})
    with submitting():
        submission = resumed_submission(find_run(run, output_dir))
    if submission.settled and submission.folder.evaluated_as_asked():
        return _complete(submission, as_json=as_json)
    submission = replace(submission, config=_changed(submission.config, changed))
    environments = preflight.check_names(submission.config, submission.items)
    was_here = submission.folder.description.embedded()
    here = is_here((was_here or None) if embedded is None else embedded)
    if trust:
        trust_tasks(embedded=here)
    if here and embedded is None and was_here is False:
        sys.stderr.write(
            "note: REDIS_URL is not set, so the run goes on here and not on the workers that it was sent to\n"
        )
    if here:
        preflight.check_here(submission.config, submission.items, environments)
    return _go(submission, environments, Checked(), here=here, follow=follow, as_json=as_json, dry_run=dry_run)


def _changed(config: RunConfig, changed: RunConfig) -> RunConfig:
    """Returns a resumed run's configuration with the options that were given now.

    Raises:
        UserError: A further model is not one of the run.
    """
    given = {role.role: role.model for role in changed.model_roles}
    role_models = {role.role: role.model for role in config.model_roles}
    for one in changed.model_roles:
        others = one.model.model_fields_set - {"name", *_ELSEWHERE}
        if others or one.profile is not None:
            raise UserError(
                f"--model-role {one.role}: a resumed run keeps its own configuration, but for base-url, model-pool,"
                " prompt-price and completion-price"
            )
    for role, model in given.items():
        if role not in role_models:
            raise UserError(f"--model-role {role}: the run has no model of this name")
        if model.name != role_models[role].name:
            raise UserError(
                f"--model-role {role}: a resumed run keeps its models: {role_models[role].name!r}, not {model.name!r}"
            )
    own_model = _elsewhere(config.model, changed.model)
    moved = (own_model.base_url, own_model.pool) != (config.model.base_url, config.model.pool)
    roles = []
    for further in config.model_roles:
        goes_along = moved and further.model.base_url is None and further.model.pool is None
        before = further.model.model_copy(update=_NO_PRICES) if goes_along else further.model
        now = _elsewhere(before, given.get(further.role, ModelConfig()))
        roles.append(further.model_copy(update={"model": now}))
    update: dict[str, Any] = {"model": own_model, "model_roles": tuple(roles)}
    if changed.max_cost is not None:
        update["max_cost"] = changed.max_cost
    return config.model_copy(update=update)


def _elsewhere(model: ModelConfig, given: ModelConfig) -> ModelConfig:
    """Returns a model with the endpoint and the prices that were given now. Another endpoint has other prices."""
    update = {name: value for name in _ELSEWHERE if (value := getattr(given, name)) is not None}
    if "base_url" in update or "pool" in update:
        update = {"base_url": None, "pool": None} | update
        if (update["base_url"], update["pool"]) != (model.base_url, model.pool):
            update = _NO_PRICES | update
    return model.model_copy(update=update)


def _complete(submission: Submission, *, as_json: bool) -> int:
    if as_json:
        print_json({"run_id": submission.run_id, "folder": str(submission.folder.path), "rollouts": 0})
    else:
        each = f"each of its {submission.total} rollouts has a verdict"
        scored = submission.folder.has_report()
        where = f"Its report: {submission.folder.report}" if scored else f"Its folder: {submission.folder.path}"
        sys.stdout.write(f"Run {submission.run_id} is complete: {each}. {where}\n")
    return DONE


def _go(
    submission: Submission,
    environments: set[str],
    checked: Checked,
    *,
    here: bool,
    follow: bool,
    as_json: bool,
    dry_run: bool,
) -> int:
    for sentence in preflight.unmet(submission.config, submission.items):
        tell(f"note: {sentence}")
    if dry_run:
        return show_dry_run(submission, environments, checked, here=here, as_json=as_json)
    from rollout_tasks.cli.fitting_tables import table_console  # here, because it draws with rich

    console = table_console(stderr=as_json, soft_wrap=True, highlight=False, markup=False)
    if here:
        return _embedded(submission, console, as_json=as_json)
    return _on_workers(submission, console, follow=follow, as_json=as_json)


def _beginning(submission: Submission) -> str:
    kept = f", {len(submission.kept)} are kept" if submission.resumed else ""
    return f"Run {submission.run_id}: {len(submission.todo)} rollouts{kept}, folder {submission.folder.path}"


def _on_workers(submission: Submission, console: Console, *, follow: bool, as_json: bool) -> int:
    from rollout_tasks.cli import run_progress  # here, because it imports Celery
    from rollout_tasks.runs.progress import progress_of
    from rollout_tasks.runs.submit_to_workers import submit_to_workers
    from rollout_tasks.runs.waits import nobody_serves

    with submitting() as count:
        submission, store = submit_to_workers(submission, count)
    console.print(_beginning(submission))
    if follow:
        vm = submission.config.vm
        pool = vm.pool if vm.use_pool else None
        return run_progress.follow(submission.run_id, store, console, submission.folder, pool=pool, as_json=as_json)
    if as_json:
        print_json(
            {"run_id": submission.run_id, "folder": str(submission.folder.path), "rollouts": len(submission.todo)}
        )
    else:
        console.print(f"Enqueued. Follow it: {run_progress.come_back(submission.run_id)}")
        idle = nobody_serves(store, progress_of(store, submission.run_id))
        if idle:
            console.print(f"It waits: {idle}")
    return DONE


def _embedded(submission: Submission, console: Console, *, as_json: bool) -> int:
    from rollout_tasks.cli import run_progress  # here, because it imports Celery
    from rollout_tasks.embedded.run import EmbeddedEnd, run_embedded
    from rollout_tasks.runs.watch import OVER

    problem = ""
    try:
        end = run_embedded(submission, console, beginning=_beginning(submission))
    except ServiceEnded as error:
        end, problem = EmbeddedEnd(None, interrupted=False), str(error)
    progress = end.progress
    if progress is not None and progress.state in OVER:
        return run_progress.report(progress, submission.folder, console, as_json=as_json)
    if not submission.folder.path.exists():
        console.print(NOTHING)
        return INTERRUPTED
    console.print(
        f"Stopped: {submission.count_committed()} of {submission.total} rollouts are committed. Go on with:"
        f" rollouts resume {submission.folder.path}"
    )
    if problem:  # last, where programs look for it
        tell(f"error: {problem}")
    return INTERRUPTED if end.interrupted else INCOMPLETE


def status(run: str, options: Mapping[str, Any], *, follow: bool, as_json: bool) -> int:
    """Shows a run's progress."""
    from rollout_tasks.cli import run_progress  # here, because it imports Celery

    output_dir = _only_output_dir(options, "--status takes no options of a run")
    return run_progress.status(run, output_dir, keep_on=follow, as_json=as_json)


def known_runs(options: Mapping[str, Any], *, as_json: bool) -> int:
    """Shows the progress of every run that Redis knows and that is not over."""
    from rollout_tasks.cli.known_runs import show_known_runs  # here, because it imports Redis's client

    if options:
        raise UserError("--output-dir: it is for a RUN; rollouts list --output-dir DIR lists the runs of a folder")
    return show_known_runs(as_json=as_json)


def cancel(run: str, options: Mapping[str, Any], *, as_json: bool) -> int:
    """Cancels a run."""
    from rollout_tasks.cli import run_progress  # here, because it imports Celery

    output_dir = _only_output_dir(options, "--cancel takes no options of a run")
    return run_progress.cancel(run, output_dir, as_json=as_json)


def _only_output_dir(options: Mapping[str, Any], sentence: str, *, but: Collection[str] = ()) -> Path | None:
    """Returns the folder of runs' folders, if one was given."""
    others = sorted(spellings_of(options) - {"--output-dir", *but})
    if others:
        raise UserError(f"{sentence}; leave out {', '.join(others)}")
    given = options.get("output_dir")
    return Path(given) if given else None
