"""`rollouts copy`: copies a run's folder to a URL, while the run goes on, and back."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Annotated

import typer

from rollout_tasks.cli import program
from rollout_tasks.cli.copy_progress import copy_progress
from rollout_tasks.errors import UserError
from rollout_tasks.runs.copies.fetched_run import Fetched, fetch_run
from rollout_tasks.runs.copies.remote_folder import RETRY_SECONDS, RemoteFolder, is_url
from rollout_tasks.runs.copies.run_copy import Copied, copy_run
from rollout_tasks.runs.folder import find_run

application = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")


@application.command(context_settings=program.any_spelling())
def copy(
    source: Annotated[
        str, typer.Argument(metavar="FROM", help="A run's id, or the path of its folder; or the URL of a copy.")
    ],
    target: Annotated[
        str, typer.Argument(metavar="TO", help="A URL for the copy; or the folder to which a copy is fetched.")
    ],
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on until the run is over, and copy each rollout once it has ended.")
    ] = False,
    retry_seconds: Annotated[
        float, typer.Option(min=0, help="How long to try again where the network fails.")
    ] = RETRY_SECONDS,
    output_dir: Annotated[Path, typer.Option(help="Where runs' folders are.")] = Path("results"),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Copy a run's folder to a URL, or fetch such a copy. For example:

    [bold]rollouts copy RUN s3://bucket/runs/RUN --follow[/bold]
    [bold]rollouts copy s3://bucket/runs/RUN results/RUN[/bold]

    Any URL that fsspec knows will do, such as s3://, gs://, sftp:// and file://;
    the extra [bold]copies[/bold] has fsspec, which says what else a URL needs. Give
    credentials in the environment, never in the URL.

    What is there already is not sent again. A reader of the copy sees only
    whole rollouts, however often the command was killed: give it again.
    """
    if is_url(source) and is_url(target):
        raise UserError("TO: must be a folder on this machine where FROM is a URL")
    if is_url(source):
        if follow:
            raise UserError("--follow: is for a run's folder, and FROM is a URL")
        with copy_progress() as say:
            _tell_fetched(
                fetch_run(RemoteFolder(source, say, retry_seconds=retry_seconds), Path(target)), as_json=as_json
            )
        return
    folder = find_run(source, output_dir)
    if not is_url(target):
        raise UserError("TO: must be a URL, such as s3://bucket/folder, or file:///folder for a folder here")
    with copy_progress() as say:
        copied = copy_run(folder, RemoteFolder(target, say, retry_seconds=retry_seconds), say, follow=follow)
    _tell_copied(copied, as_json=as_json)
    raise typer.Exit(program.INCOMPLETE if copied.problems else program.DONE)


def _tell_copied(copied: Copied, *, as_json: bool) -> None:
    if as_json:
        program.print_json(dataclasses.asdict(copied))
    else:
        sys.stdout.write(
            f"{copied.run_id}: {copied.copied:,} of {copied.rollouts:,} rollouts are at {copied.url}:"
            f" {copied.files_sent:,} files sent ({copied.bytes_sent:,} bytes), {copied.files_kept:,} were there\n"
        )
    if copied.left_out:
        program.tell(f"left out: {copied.left_out:,} links, special files, or files with names that a copy cannot have")
    if not copied.over:
        program.tell("the run is not over: give the command again later, or with --follow")
    for problem in copied.problems:
        program.tell(f"not copied: {problem}")


def _tell_fetched(fetched: Fetched, *, as_json: bool) -> None:
    if as_json:
        program.print_json(dataclasses.asdict(fetched))
    else:
        sys.stdout.write(
            f"{fetched.folder}: {fetched.rollouts:,} rollouts: {fetched.files_fetched:,} files fetched"
            f" ({fetched.bytes_fetched:,} bytes), {fetched.files_kept:,} were there\n"
        )
    if fetched.incomplete:
        program.tell(
            f"left out: {fetched.incomplete:,} rollouts or reports whose copy is not complete, and all reports"
        )
    elif not fetched.over:
        program.tell("the run was not over when it was copied")


def main() -> None:
    """Runs the command."""
    program.run(application)
