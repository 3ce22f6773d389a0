"""The command `rollouts`: each subcommand is a module, imported when it is called."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from rollout_tasks.cli import program
from rollout_tasks.errors import UserError


@dataclass(frozen=True, slots=True)
class Subcommand:
    """One subcommand of `rollouts`."""

    help: str
    module: str
    """Its module, relative to `rollout_tasks`."""
    name: str = ""
    """The command in the module's application, if that has several; empty for the application itself."""
    application: str = "application"
    """The application's name in the module."""


SUBCOMMANDS = {
    "run": Subcommand("Roll out a benchmark on this machine alone, and score it.", "cli.runs", "run"),
    "submit": Subcommand("Send a benchmark to your workers as a run.", "cli.runs", "submit"),
    "status": Subcommand("Show a run's progress, or that of all runs under way.", "cli.runs", "status"),
    "watch": Subcommand("Show a run's progress until it is over.", "cli.runs", "watch"),
    "resume": Subcommand("Roll out what a run lacks or lost to the infrastructure.", "cli.runs", "resume"),
    "cancel": Subcommand("Stop a run; what is committed stays.", "cli.runs", "cancel"),
    "list": Subcommand("List runs, environments, agents, metrics or providers.", "cli.listing"),
    "show": Subcommand("Show a finished run's results.", "cli.show"),
    "compare": Subcommand("Compare runs of the same items.", "cli.compare"),
    "stats": Subcommand("Show figures of one or several runs, by domain.", "cli.stats"),
    "latency": Subcommand("Show where a run's time went.", "cli.latency"),
    "copy": Subcommand("Copy a run's folder to a URL, such as s3://, or back.", "cli.copy"),
    "rescore": Subcommand("Score a finished run with another metric.", "cli.rescore"),
    "serve": Subcommand("Roll out items for a trainer until you stop it.", "cli.serve"),
    "export": Subcommand("Write a scored run's traces for a trainer.", "cli.export"),
    "index": Subcommand("Keep an index of rollouts for trainers.", "cli.index"),
    "pool": Subcommand("Show a pool of VMs and operate it.", "cli.pool"),
    "model": Subcommand("Put servers of a model into a pool, or ask a model once.", "cli.model"),
    "gpu": Subcommand("Show who has GPU memory, and end what is left over.", "cli.gpu"),
    "gateway": Subcommand("Serve a model to agents elsewhere, and record their calls.", "cli.gateway"),
    "openenv": Subcommand("Serve desktops to trainers that speak OpenEnv.", "cli.openenv"),
    "retriever": Subcommand("Serve the passages of a corpus.", "cli.retriever"),
    "desktops": Subcommand("Lend desktops over HTTP, and make tokens for clients.", "cli.desktops"),
    "vm-host": Subcommand("Boot VMs into a pool and look after them.", "cli.vm_host"),
    "image": Subcommand("Build the image of desktops, and see which there are.", "cli.image", application="group"),
    "prefetch": Subcommand("Download the files that tasks need, ahead of a run.", "cli.prefetch"),
    "scripted-model": Subcommand("Serve a stand-in for a model that plays scripts.", "models.scripted.command"),
    "doctor": Subcommand("Say what this machine can run, and what it lacks.", "cli.doctor"),
}


class SubcommandGroup(TyperGroup):
    """A group of commands; a command is imported only when it is called."""

    def list_commands(self, _ctx: Any) -> list[str]:
        """Returns the commands' names, in the order of a run's life."""
        return list(SUBCOMMANDS)

    def get_command(self, _ctx: Any, cmd_name: str) -> Any:
        """Returns a command with only its name and help sentence, for the list of commands."""
        subcommand = SUBCOMMANDS.get(cmd_name)
        return TyperCommand(name=cmd_name, help=subcommand.help, rich_markup_mode=None) if subcommand else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Returns the command itself, imported."""
        if args and args[0] not in SUBCOMMANDS and not args[0].startswith("-"):
            close = get_close_matches(args[0], SUBCOMMANDS, n=1)
            hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(SUBCOMMANDS)}"
            raise UserError(f"no such command {args[0]!r}; {hint}")
        name, command, rest = super().resolve_command(ctx, args)
        return name, command and load(str(name)), rest


def load(name: str) -> Any:
    """Imports one of the commands, and returns it."""
    subcommand = SUBCOMMANDS[name]
    found = getattr(import_module(f"rollout_tasks.{subcommand.module}"), subcommand.application)
    command: Any = typer.main.get_command(found)
    if subcommand.name:
        command = command.commands[subcommand.name]
    command.name = name
    program.take_h_for_help(command)
    return command


application = typer.Typer(
    cls=SubcommandGroup, pretty_exceptions_enable=False, no_args_is_help=True, rich_markup_mode="rich"
)


def _say_version(wanted: bool) -> None:
    if wanted:
        typer.echo(version("computer-use-rollouts"))
        raise typer.Exit


@application.callback()
def rollouts(
    _version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Say which version this is.")
    ] = False,
) -> None:
    """Rollouts of computer-use agents on a pool of virtual machines.

    Begin with [bold]rollouts doctor[/bold], then [bold]rollouts run --help[/bold].
    """


def main() -> None:
    """Runs the command."""
    program.run(application, name="rollouts")


if __name__ == "__main__":
    main()
