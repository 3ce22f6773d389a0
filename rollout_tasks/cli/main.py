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
class Part:
    """One subcommand of `rollouts`."""

    help: str
    module: str
    """Its module, relative to `rollout_tasks`."""
    name: str = ""
    """The command in the module's application, if that has several; empty for the application itself."""
    application: str = "application"
    """The application's name in the module."""


PARTS = {
    "run": Part("Roll out a benchmark on this machine alone, and score it.", "cli.runs", "run"),
    "submit": Part("Send a benchmark to your workers as a run.", "cli.runs", "submit"),
    "status": Part("Show a run's progress, or that of all runs under way.", "cli.runs", "status"),
    "watch": Part("Show a run's progress until it is over.", "cli.runs", "watch"),
    "resume": Part("Roll out what a run lacks or lost to the infrastructure.", "cli.runs", "resume"),
    "cancel": Part("Stop a run; what is committed stays.", "cli.runs", "cancel"),
    "list": Part("List runs, environments, agents, metrics or providers.", "cli.listing"),
    "show": Part("Show a finished run's results.", "cli.show"),
    "rescore": Part("Score a finished run with another metric.", "cli.rescore"),
    "pool": Part("Show a pool of VMs and operate it.", "cli.pool"),
    "vm-host": Part("Boot VMs into a pool and look after them.", "cli.vm_host"),
    "image": Part("Build the image of desktops, and see which there are.", "cli.image", application="group"),
    "prefetch": Part("Download the files that tasks need, ahead of a run.", "cli.prefetch"),
    "scripted-model": Part("Serve a stand-in for a model that plays scripts.", "models.scripted.command"),
    "doctor": Part("Say what this machine can run, and what it lacks.", "cli.doctor"),
}


class Parts(TyperGroup):
    """A group of commands; a command is imported only when it is called."""

    def list_commands(self, _ctx: Any) -> list[str]:
        """Returns the commands' names, in the order of a run's life."""
        return list(PARTS)

    def get_command(self, _ctx: Any, cmd_name: str) -> Any:
        """Returns a command with only its name and help sentence, for the list of commands."""
        part = PARTS.get(cmd_name)
        return TyperCommand(name=cmd_name, help=part.help, rich_markup_mode=None) if part else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Returns the command itself, imported."""
        if args and args[0] not in PARTS and not args[0].startswith("-"):
            close = get_close_matches(args[0], PARTS, n=1)
            hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(PARTS)}"
            raise UserError(f"no such command {args[0]!r}; {hint}")
        name, command, rest = super().resolve_command(ctx, args)
        return name, command and load(str(name)), rest


def load(name: str) -> Any:
    """Imports one of the commands, and returns it."""
    part = PARTS[name]
    found = getattr(import_module(f"rollout_tasks.{part.module}"), part.application)
    command: Any = typer.main.get_command(found)
    if part.name:
        command = command.commands[part.name]
    command.name = name
    program.take_h_for_help(command)
    return command


application = typer.Typer(cls=Parts, pretty_exceptions_enable=False, no_args_is_help=True, rich_markup_mode="rich")


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
