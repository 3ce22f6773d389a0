"""Writes what a trainer needs of a run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from rollout_tasks.cli import program
from rollout_tasks.errors import UserError
from rollout_tasks.runs.folder import find_run

application = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")

_REASONS = {
    "infrastructure_loss": "lost to the infrastructure",
    "cancelled": "cancelled",
    "missing": "without a result",
    "unscored": "without a score",
    "no_calls": "in which no model replied",
}
"""Why rollouts are left out, as a sentence goes on."""


@application.command(context_settings=program.any_spelling())
def export(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run's id, or the path of its folder.")],
    to: Annotated[
        Path | None, typer.Option(help="The folder to write to. Default: training in the run's folder.")
    ] = None,
    output_dir: Annotated[Path, typer.Option(help="Where runs' folders are.")] = Path("results"),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Write a scored run's traces for a trainer, as in:  [bold]rollouts export RUN[/bold]

    traces.parquet has a row for each trace: its token ids, which were sampled,
    their log-probabilities, pictures by SHA-256, and the rollout's score as its
    reward. pictures.parquet has each picture once. Rollouts that the
    infrastructure lost are left out. The run's model has to tell its tokens,
    as vLLM does if a run has these options:

    [bold]--extra-body '{"return_token_ids": true, "logprobs": true}'[/bold]
    """
    folder = find_run(run, output_dir)
    from rollout_tasks.training.parquet_export import export_parquet  # here, because a refusal needs none of it

    target = to or folder.path / "training"
    try:
        written = export_parquet(folder, target)
    except OSError as error:
        raise UserError(f"{error.filename or target}: {error.strerror}") from error
    if as_json:
        program.print_json({**written, "folder": str(target)})
        return
    sys.stdout.write(
        f"{written['rollouts']:,} rollouts, {written['traces']:,} traces, {written['tokens']:,} tokens"
        f" ({written['sampled_tokens']:,} sampled), {written['pictures']:,} pictures: {target}\n"
    )
    for reason, count in written["left_out"].items():
        program.tell(f"left out: {count:,} rollouts {_REASONS[reason]}")
