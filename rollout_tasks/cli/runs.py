"""`rollouts run`, `submit`, `status`, `watch`, `resume` and `cancel`: the commands of a run's life."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from rollout_tasks.cli import program, run_actions
from rollout_tasks.cli.run_file import as_yaml, read_system_prompt, resolve_config
from rollout_tasks.cli.run_options import aliases, with_config_options
from rollout_tasks.config import RunConfig
from rollout_tasks.key_values import key_values

application = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")

ConfigFile = Annotated[Path | None, typer.Option("--config", help="A run.yaml; options override it.")]
PrintConfig = Annotated[bool, typer.Option("--print-config", help="Print the resolved run.yaml and stop.")]
ProviderOption = Annotated[
    list[str] | None,
    typer.Option("--provider-option", metavar="KEY=VALUE", help="For the provider of the VMs; repeatable."),
]
SystemPromptFile = Annotated[
    Path | None,
    typer.Option(
        "--system-prompt-file",
        help="A text in place of the agent's; {instructions} and {tools} stand for the environment's.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Check everything that can be checked; roll out nothing.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
TheRun = Annotated[str, typer.Argument(metavar="RUN", help="A run's id, or the path of its folder.")]
OutputDir = Annotated[Path | None, typer.Option("--output-dir", help="Where runs' folders are.")]
Embedded = Annotated[
    bool | None,
    typer.Option(
        "--embedded/--no-embedded", help="Go on here, or on workers. Default: where it was; here without REDIS_URL."
    ),
]


def resolved_options(
    options: dict[str, Any],
    config: Path | None,
    provider_option: list[str] | None,
    system_prompt_file: Path | None = None,
) -> RunConfig:
    """Returns the configuration that a command's options make, over that of a run.yaml.

    Raises:
        UserError: A file cannot be read, or a value is wrong.
    """
    if system_prompt_file is not None:
        options["system_prompt"] = read_system_prompt(system_prompt_file)
    if provider_option:
        options.setdefault("vm", {})["provider_options"] = key_values("--provider-option", provider_option)
    return resolve_config(config, options)


@application.command("run", context_settings=program.any_spelling(aliases()))
@with_config_options
def run(
    options: dict[str, Any],
    config: ConfigFile = None,
    print_config: PrintConfig = False,
    provider_option: ProviderOption = None,
    system_prompt_file: SystemPromptFile = None,
    dry_run: DryRun = False,
    trust_tasks: Annotated[
        bool,
        typer.Option(
            "--trust-tasks",
            help="Run desktop tasks' setup and evaluation in the worker's own process: you wrote them.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Roll out a benchmark on this machine alone, and score it.

    Broker, worker, Flower, VMs where the tasks need them and, where no model is
    configured, the scripted model are started for as long as the run takes.
    For example:

    [bold]rollouts run --data-path items.jsonl --env-mode math --metric final_number[/bold]
    """
    if trust_tasks:
        run_actions.trust_tasks(embedded=True)
    resolved = resolved_options(options, config, provider_option, system_prompt_file)
    if print_config:
        sys.stdout.write(as_yaml(resolved))
        return 0
    return run_actions.submit(resolved, embedded=True, follow=True, as_json=as_json, dry_run=dry_run)


@application.command("submit", context_settings=program.any_spelling(aliases()))
@with_config_options
def submit(
    options: dict[str, Any],
    config: ConfigFile = None,
    print_config: PrintConfig = False,
    provider_option: ProviderOption = None,
    system_prompt_file: SystemPromptFile = None,
    dry_run: DryRun = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show progress until the run is over; Ctrl-C leaves it going.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Send a benchmark to your workers (REDIS_URL) as a run. For example:

    [bold]rollouts submit --data-path tasks.jsonl --env-mode py --model gpt-4.1-mini --watch[/bold]
    """
    resolved = resolved_options(options, config, provider_option, system_prompt_file)
    if print_config:
        sys.stdout.write(as_yaml(resolved))
        return 0
    return run_actions.submit(resolved, embedded=False, follow=watch, as_json=as_json, dry_run=dry_run)


@application.command()
def status(
    run: Annotated[
        str | None,
        typer.Argument(metavar="RUN", help="A run's id, or the path of its folder. Default: all runs under way."),
    ] = None,
    output_dir: OutputDir = None,
    as_json: AsJson = False,
) -> int:
    """Show a run's progress, and what it waits for; without RUN, those of all runs that Redis knows and that are not over."""
    if run is None:
        return run_actions.known_runs(_only(output_dir), as_json=as_json)
    return run_actions.status(run, _only(output_dir), follow=False, as_json=as_json)


@application.command()
def watch(run: TheRun, output_dir: OutputDir = None, as_json: AsJson = False) -> int:
    """Show a run's progress until it is over; Ctrl-C leaves it going."""
    return run_actions.status(run, _only(output_dir), follow=True, as_json=as_json)


@application.command()
def resume(
    run: TheRun,
    output_dir: OutputDir = None,
    base_url: Annotated[str | None, typer.Option("--base-url", help="Another endpoint of the model.")] = None,
    model_pool: Annotated[
        str | None, typer.Option("--model-pool", help="A model pool in place of its endpoint.")
    ] = None,
    model_role: Annotated[
        list[str] | None,
        typer.Option("--model-role", help="Another endpoint of a further model, given as when the run began."),
    ] = None,
    prompt_price: Annotated[
        float | None, typer.Option("--prompt-price", help="Dollars per million prompt tokens there.")
    ] = None,
    completion_price: Annotated[
        float | None, typer.Option("--completion-price", help="Dollars per million completion tokens there.")
    ] = None,
    max_cost: Annotated[
        float | None, typer.Option("--max-cost", help="Dollars that all its rollouts may cost.")
    ] = None,
    embedded: Embedded = None,
    trust_tasks: Annotated[
        bool,
        typer.Option("--trust-tasks", help="As of rollouts run, where the run is embedded: you wrote its tasks."),
    ] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Show progress until the run is over.")] = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> int:
    """Roll out what a run lacks or lost to the infrastructure; what is committed stays."""
    options = _only(output_dir)
    model = {
        "base_url": base_url,
        "pool": model_pool,
        "prompt_price": prompt_price,
        "completion_price": completion_price,
    }
    if given := {name: value for name, value in model.items() if value is not None}:
        options["model"] = given
    if model_role:
        options["model_roles"] = model_role
    if max_cost is not None:
        options["max_cost"] = max_cost
    go_on = partial(run_actions.resume, run, options, embedded=embedded, trust=trust_tasks)
    return go_on(follow=watch, as_json=as_json, dry_run=dry_run)


@application.command()
def cancel(run: TheRun, as_json: AsJson = False) -> int:
    """Stop a run; what is committed stays, and resume goes on with the rest."""
    return run_actions.cancel(run, {}, as_json=as_json)


def _only(output_dir: Path | None) -> dict[str, Any]:
    return {} if output_dir is None else {"output_dir": str(output_dir)}


def main() -> None:
    """Runs the command."""
    program.run(application)
