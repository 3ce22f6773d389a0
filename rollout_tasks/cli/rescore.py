"""Scores a finished run, again or for the first time, from its folder alone: nothing is rolled out again."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from benchmark.errors import BenchmarkError
from benchmark.results import ENVIRONMENT
from benchmark.stored_report import scan_report
from benchmark.whole_file import sync_folder
from rollout_tasks.cli import program
from rollout_tasks.cli.run_progress import lost_scores, unscored
from rollout_tasks.errors import UserError
from rollout_tasks.runs.completeness import gap
from rollout_tasks.runs.folder import RunFolder, find_run
from rollout_tasks.runs.preflight import check_metric

if TYPE_CHECKING:
    from rollout_tasks.runs.finalize import Reports

application = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")


@application.command(context_settings=program.any_spelling({"evaluation-metric": "metric"}))
def rescore(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run's id, or the path of its folder.")],
    metric: Annotated[str, typer.Option("--metric", help="The metric to score with. Also --evaluation-metric.")],
    output_dir: Annotated[Path, typer.Option(help="Where runs' folders are.")] = Path("results"),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Score a finished run with another metric, as in:  [bold]rollouts rescore RUN --metric f1_score[/bold]

    The report is a second one beside the run's own. Where the run has none, a
    report with the run's metric becomes its own, and one with any metric where
    the run was not to be scored. Where answers got no score in the run's own, a
    report with the same metric that scores more of them takes its place.
    """
    folder = find_run(run, output_dir)
    check_metric(metric)
    if missing := gap(folder):
        raise UserError(f"run {folder.path.name} is not scored: {missing}")
    from rollout_tasks.runs.finalize import score_run  # here, because a refusal needs none of it

    try:
        if _lacks_report_with(folder, metric):
            written = score_run(folder, metric)
        else:
            written = _instead_of_own(folder, score_run(folder, metric, suffix=f"-{metric}"))
    except OSError as error:
        raise UserError(f"{folder.path} cannot be written: {error.strerror}") from error
    summary = written.overview.summary
    if as_json:
        program.print_json(
            {
                "metric": summary.metric,
                "average_score": summary.average_score,
                "files": [str(written.json), str(written.markdown)],
            }
        )
    else:
        sys.stdout.write(f"{summary.metric}: {summary.average_score:.4g}, coverage {summary.coverage:.1%}\n")
        sys.stdout.write(f"Report: {written.markdown}\n")
    if environment_score_count := _scored_by_environment(written.json):
        sys.stderr.write(
            f"note: {metric} was not applied to {environment_score_count} of {summary.total_rollouts} rollouts:"
            " their environment scored them itself\n"
        )
    losses = lost_scores(asdict(summary), folder)
    for sentence in losses:
        program.tell(sentence)
    raise typer.Exit(program.INCOMPLETE if losses else program.DONE)


def _scored_by_environment(report: Path) -> int:
    """Returns how many rollouts of a report have their environment's own score."""
    count = 0

    def add(row: Mapping[str, Any]) -> None:
        nonlocal count
        count += sum(rollout["metric_name"] == ENVIRONMENT for rollout in row["rollouts"])

    scan_report(report, add)
    return count


def _lacks_report_with(folder: RunFolder, metric: str) -> bool:
    """Whether the run's own report is missing and one with this metric can take its place."""
    config = folder.description.config()
    return not folder.has_report() and (metric == config.metric or not config.evaluate_results)


def _instead_of_own(folder: RunFolder, written: Reports) -> Reports:
    """Replaces the run's own report with a new one, if it has the same metric and lacks scores that the new one has.

    Returns:
        The report, where it is then.

    Raises:
        OSError: The folder cannot be written.
    """
    try:
        run_summary = scan_report(folder.evaluation)["summary"]
    except BenchmarkError:
        return written
    summary = asdict(written.overview.summary)
    if run_summary.get("metric") != summary["metric"] or unscored(run_summary) <= unscored(summary):
        return written
    written.markdown.replace(folder.report)
    # The JSON, which decides, comes last: if that fails, the next call does it all again.
    written.json.replace(folder.evaluation)
    sync_folder(folder.path)
    return replace(written, json=folder.evaluation, markdown=folder.report)


def main() -> None:
    """Runs the command."""
    program.run(application)
