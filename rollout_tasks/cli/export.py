"""Writes a run in the format of a trainer."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from rollout_tasks.cli import program
from rollout_tasks.cli.copy_progress import copy_progress
from rollout_tasks.errors import UserError
from rollout_tasks.runs.copies.export_copy import copy_export
from rollout_tasks.runs.copies.remote_folder import RemoteFolder, is_url
from rollout_tasks.runs.folder import RunFolder, find_run
from rollout_tasks.training.exports.formats import Kind

application = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")

REASONS = {
    "infrastructure_loss": "lost to infrastructure failures",
    "cancelled": "cancelled",
    "missing": "without a result",
    "unscored": "without a score",
    "below_min_reward": "with a lower reward",
    "no_calls": "in which no model replied",
    "no_tokens": "whose model did not return its tokens",
    "other_api": "whose model was asked in another API than Chat Completions",
    "unreadable": "whose record cannot be read",
}
"""Why rollouts are left out, as a sentence goes on."""


@application.command(context_settings=program.any_spelling())
def export(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run's id, or the path of its folder.")],
    kind: Annotated[
        Kind, typer.Option("--format", metavar="NAME", help=f"What to write: {', '.join(Kind)}.")
    ] = Kind.PARQUET,
    min_reward: Annotated[
        float | None, typer.Option(help="Leave out rollouts with a lower reward, as for learning from successes alone.")
    ] = None,
    metric: Annotated[
        str | None, typer.Option(help="Take the scores of the report with this metric. Default: the run's own.")
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            help="The folder to write to, or a URL, such as s3://bucket/folder. Default: training in the run's folder."
        ),
    ] = None,
    output_dir: Annotated[Path, typer.Option(help="Where runs' folders are.")] = Path("results"),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Write a scored run for a trainer, as in:  [bold]rollouts export RUN[/bold]

    [bold]parquet[/bold] writes traces.parquet, with a row for each trace: its token ids,
    which were sampled, their log-probabilities, pictures by SHA-256, and the
    rollout's score as its reward; and pictures.parquet, with each picture once.
    The model must return its tokens, as vLLM does if a run has these options:

    [bold]--extra-body '{"return_token_ids": true, "logprobs": true}'[/bold]

    [bold]verl[/bold] and [bold]prime-rl[/bold] write such rows as these trainers have them, with
    pictures as files; [bold]seed[/bold] writes the folders of DART's rollouter.

    [bold]openai[/bold], [bold]sharegpt[/bold] (for LLaMA-Factory), [bold]atif[/bold] (Harbor's) and [bold]osworld[/bold] (its
    runner's result folders) are written from messages and need no tokens.

    Rollouts lost to infrastructure failures are left out.
    """
    folder = find_run(run, output_dir)
    if min_reward is not None and not 0 <= min_reward <= 1:
        raise UserError(f"--min-reward: must be from 0 to 1, as rewards are, got {min_reward:g}")
    report = report_of(folder, metric)
    from rollout_tasks.training.exports.run_export import export_run  # here, because a refusal needs none of it

    with ExitStack() as opened:
        remote, target = None, Path(to) if to else folder.path / "training"
        if to and is_url(to):
            remote = RemoteFolder(to, opened.enter_context(copy_progress()))
            target = Path(opened.enter_context(TemporaryDirectory(prefix="rollouts-export-")))
        try:
            written = export_run(folder, report, target, kind, min_reward=min_reward)
            if remote is not None:
                copy_export(target, kind, remote)
        except OSError as error:
            raise UserError(f"{error.filename or target}: {error.strerror}") from error
    place = remote.url if remote is not None else str(target)
    if as_json:
        program.print_json({**written, "folder": place})
        return
    counted = (f"{count:,} {name.replace('_', ' ')}" for name, count in written.items() if isinstance(count, int))
    sys.stdout.write(f"{', '.join(counted)}: {place}\n")
    for reason, count in written["left_out"].items():
        program.tell(f"left out: {count:,} rollout{'s' if count > 1 else ''} {REASONS.get(reason, reason)}")
    if written["problem"]:
        program.tell(f"the first problem was: {written['problem']}")


def report_of(folder: RunFolder, metric: str | None) -> Path:
    """Returns the JSON report that has the rewards."""
    from rollout_tasks.cli.run_progress import metric_of, score_again  # here, because it imports Celery

    own, name = metric_of(folder), folder.path.name
    if metric not in {None, own}:
        report = folder.path / f"evaluation-{metric}.json"
        if not report.is_file():
            raise UserError(f"run {name} has no report with {metric}: make it with: {score_again(folder, str(metric))}")
        return report
    if not folder.has_report():
        command = score_again(folder, own)
        raise UserError(f"run {name} has no report, whose scores are the rewards: make it with: {command}")
    return folder.evaluation
