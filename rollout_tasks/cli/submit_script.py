"""`scripts/submit.py`: submits a benchmark as a run, or follows, resumes or cancels one. `rollouts submit` is in `cli.runs`."""

from __future__ import annotations

import sys
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from rollout_tasks.cli import program, run_actions
from rollout_tasks.cli.run_file import as_yaml, read_system_prompt, resolve_config
from rollout_tasks.cli.run_options import aliases, spellings_of, with_config_options
from rollout_tasks.errors import UserError
from rollout_tasks.key_values import key_values

application = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")

_ACTIONS = {
    "--resume": (
        "a resumed run keeps its own configuration",
        {*run_actions.CHANGED_BY_RESUME, "--output-dir", "--dry-run", "--embedded", "--trust-tasks", "--watch"},
    ),
    "--status": ("--status takes no options of a run", {"--output-dir", "--watch"}),
    "--cancel": ("--cancel takes no options of a run", {"--output-dir"}),
}
"""For each action, the error about options that it does not take, and the options that it takes."""


@application.command(
    context_settings=program.any_spelling(aliases()),
    epilog="Environments: rollouts list environments. Without REDIS_URL a run is embedded: broker, worker, Flower and,"
    " where no model is configured, the scripted model are started on this machine for as long as the run takes.",
)
@with_config_options
def submit(
    options: dict[str, Any],
    config: Annotated[Path | None, typer.Option("--config", help="A run.yaml; options override it.")] = None,
    print_config: Annotated[bool, typer.Option("--print-config", help="Print the resolved run.yaml and stop.")] = False,
    provider_option: Annotated[
        list[str] | None,
        typer.Option("--provider-option", metavar="KEY=VALUE", help="For the provider of the VMs; repeatable."),
    ] = None,
    system_prompt_file: Annotated[
        Path | None,
        typer.Option(
            "--system-prompt-file",
            help="A text in place of the agent's; {instructions} and {tools} stand for the environment's.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything that can be checked; enqueue nothing.")
    ] = False,
    embedded: Annotated[
        bool | None,
        typer.Option(
            "--embedded/--no-embedded",
            help="Run everything here. Default: where REDIS_URL is not set; a resumed embedded run goes on here, too.",
        ),
    ] = None,
    trust_tasks: Annotated[
        bool,
        typer.Option(
            "--trust-tasks",
            help="In embedded runs, run desktop tasks' setup and evaluation in the worker's own process: you wrote them.",
        ),
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show progress until the run is over; Ctrl-C leaves it going.")
    ] = False,
    resume: Annotated[
        str | None,
        typer.Option(
            "--resume",
            metavar="RUN",
            help="Roll out what a run lacks or lost to the infrastructure; with --base-url at another endpoint.",
        ),
    ] = None,
    status: Annotated[
        str | None, typer.Option("--status", metavar="RUN", help="Show a run's progress (--watch to follow).")
    ] = None,
    cancel: Annotated[
        str | None, typer.Option("--cancel", metavar="RUN", help="Stop a run; what is committed stays.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> int:
    """Roll out a benchmark and score it.

    For example, on this machine alone:

    [bold]submit.py --data-path examples/items.jsonl --env-mode math --metric final_number[/bold]

    On your workers (REDIS_URL set):

    [bold]submit.py --data-path tasks.jsonl --env-mode py --model gpt-4.1-mini --watch[/bold]
    """
    if sum(action is not None for action in (resume, status, cancel)) > 1:
        raise UserError("--resume, --status and --cancel exclude each other")
    given = {
        "--config": config is not None,
        "--print-config": print_config,
        "--provider-option": bool(provider_option),
        "--system-prompt-file": system_prompt_file is not None,
        "--dry-run": dry_run,
        "--embedded": embedded is not None,
        "--trust-tasks": trust_tasks,
        "--watch": watch,
    }
    for action, run in (("--resume", resume), ("--status", status), ("--cancel", cancel)):
        if run is not None:
            _check_options(action, {option for option, is_given in given.items() if is_given} | spellings_of(options))
    if trust_tasks and resume is None:  # else it depends on the run
        run_actions.trust_tasks(embedded=embedded)
    if status is not None:
        return run_actions.status(status, options, follow=watch, as_json=as_json)
    if cancel is not None:
        return run_actions.cancel(cancel, options, as_json=as_json)
    if resume is not None:
        go_on = partial(run_actions.resume, resume, options, embedded=embedded, trust=trust_tasks)
        return go_on(follow=watch, as_json=as_json, dry_run=dry_run)
    if system_prompt_file is not None:
        options["system_prompt"] = read_system_prompt(system_prompt_file)
    if provider_option:
        options.setdefault("vm", {})["provider_options"] = key_values("--provider-option", provider_option)
    resolved = resolve_config(config, options)
    if print_config:
        sys.stdout.write(as_yaml(resolved))
        return 0
    return run_actions.submit(resolved, embedded=embedded, follow=watch, as_json=as_json, dry_run=dry_run)


def _check_options(action: str, given: Collection[str]) -> None:
    """Checks that an action takes the options beside it; `--json` suits all.

    Raises:
        UserError: It does not take one, which it would have to ignore.
    """
    sentence, takes = _ACTIONS[action]
    if others := sorted(set(given) - takes):
        raise UserError(f"{sentence}; leave out {', '.join(others)}")


def main() -> None:
    """Runs the command."""
    program.run(application)
