"""Finalises a run: scores its verdicts and writes the report. Safe to call at any time and repeatedly.

`score_run` needs only the run's folder, so a finished run can be scored again with another metric, without Redis.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from redis import RedisError

from benchmark.errors import BenchmarkError
from benchmark.judge import Judge, JudgeConfig
from benchmark.judged_answers import JudgedAnswers
from benchmark.markdown_report import write_markdown
from benchmark.metrics import JUDGE_METRIC
from benchmark.report import BenchmarkInfo, ReportFile
from benchmark.results import Overview
from benchmark.scoring import Outcome, score_each
from benchmark.summary import Tally
from benchmark.whole_file import remove_leftovers
from rollout_tasks.config import RunConfig
from rollout_tasks.errors import UserError
from rollout_tasks.runs import ending
from rollout_tasks.runs.events import EventsFile
from rollout_tasks.runs.finalizer_claim import FinalizerClaim, Superseded
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.runs.outcomes import outcomes
from rollout_tasks.runs.store import RunStore, run_store
from rollout_tasks.settings import checked_key, settings

Check = Callable[[], None]

logger = logging.getLogger(__name__)


def finalize(run_id: str) -> str:
    """Finalises a run whose rollouts all have a verdict.

    Returns:
        The run's final state, or why there was nothing to do: ``incomplete``, ``busy``, ``over``, ``unknown``, ``superseded``.

    Raises:
        UnreadableRun: This version cannot work on the run; it is left to one that can.
    """
    store = run_store()
    try:
        config, path = store.config(run_id)
    except KeyError:
        return "unknown"
    token = uuid.uuid4().hex
    answer = store.begin_finalize(run_id, token, silent_seconds=store.silent_seconds)
    if answer != "go":
        logger.info("run %s: not finalised now (%s)", run_id, answer)
        return answer
    with FinalizerClaim(store, run_id, token, interval=settings().beat_seconds) as claim:
        try:
            folder = RunFolder(Path(path))
            problem = _write(folder, config, store, run_id, claim.check)
            _record_end(folder, claim.check)
        except Superseded:
            logger.warning("run %s: finalising stopped: another process has taken it over", run_id)
            return "superseded"
    state = store.end_finalize(run_id, token, datetime.now(UTC).isoformat(timespec="seconds"), problem)
    logger.info("run %s: %s%s", run_id, state, f", but without a report: {problem}" if problem else "")
    return state


def _write(folder: RunFolder, config: RunConfig, store: RunStore, run_id: str, check: Check) -> str:
    """Writes a finished run's reports and events; returns why that failed, else empty.

    A run whose answers cannot be scored is over nevertheless: they are committed and can be scored again at any time.

    Raises:
        Superseded: Another process finalises the run now; nothing was written after that.
    """
    try:
        check()
        folder.path.mkdir(parents=True, exist_ok=True)
        for path in (folder.events, folder.evaluation, folder.report):
            remove_leftovers(path)
        # Of before a resume: a run whose new report cannot be made would look as if it were scored.
        with suppress(IsADirectoryError):  # the attempt to write it reports that
            folder.remove_report()
        kept = (folder.path / "items.jsonl").exists()
        items = folder.description.each_item() if kept else store.items(run_id)
        total_items = folder.description.count_items() if kept else store.count_items(run_id)
        with EventsFile(folder) as events:
            found = outcomes(
                items, config.rollouts_per_item, lambda names: events.note(store.verdicts_of(run_id, names))
            )
            try:
                if config.evaluate_results:
                    write_reports(folder, config, config.metric, found, total_items=total_items, check=check)
            finally:
                for _ in found:  # rollouts that could not be scored have events too
                    pass
                events.publish(check)
    except (BenchmarkError, UserError) as error:
        return str(error)
    except OSError as error:
        return f"{error.filename or folder.path} cannot be written: {error.strerror}"
    except (RedisError, Superseded):
        raise
    except Exception as error:  # a defect: without an end, the run would be finalised again and again
        logger.exception("run %s: its report could not be made", run_id)
        return f"its report could not be made: {type(error).__name__}; the worker's log says where"
    return ""


def _record_end(folder: RunFolder, check: Check) -> None:
    """Records in the folder that the run is over: it can be scored, whatever it lacks.

    That is before the run store has it: a finaliser that dies in between is replaced, but one that was over would not be.

    Raises:
        Superseded: Another process finalises the run now; nothing was written.
    """
    check()
    try:
        ending.record_end(folder)
    except OSError as error:
        logger.error("%s: cannot record that the run is over: %s", folder.path, error.strerror)


def score_run(folder: RunFolder, metric: str, suffix: str = "") -> Reports:
    """Scores a run that is over from its folder, and writes the reports: as in its own, what has no result was cancelled.

    Args:
        folder: The run's folder.
        metric: The metric to score with.
        suffix: The end of the reports' file names.

    Raises:
        UserError: The folder is not a run's, or broken.
        BenchmarkError: No metric has that name, or it cannot be used.
        OSError: The reports cannot be written.
    """
    config = folder.description.config()
    found = outcomes(
        folder.description.each_item(),
        config.rollouts_per_item,
        lambda names: [folder.verdict(name) or folder.final_verdict(name) for name in names],
    )
    return write_reports(folder, config, metric, found, total_items=folder.description.count_items(), suffix=suffix)


@dataclass(frozen=True, slots=True)
class Reports:
    """The reports that were written."""

    overview: Overview
    json: Path
    markdown: Path


def write_reports(
    folder: RunFolder,
    config: RunConfig,
    metric: str,
    found: Iterable[Outcome],
    *,
    total_items: int,
    suffix: str = "",
    check: Check = lambda: None,
) -> Reports:
    """Scores outcomes one by one into evaluation.json, and sums them up in report.md.

    Args:
        folder: The run's folder.
        config: The run's configuration.
        metric: The metric to score with; with ``llm_judgement`` a model judges answers not yet judged in the folder.
        found: How the rollouts of each item ended.
        total_items: How many items there are.
        suffix: The end of the reports' file names.
        check: Called before each request to a judge and before a file is put in place; raises when that must stop.

    Raises:
        BenchmarkError: The metric cannot be used.
        OSError: A report cannot be written.
    """
    document = folder.description.document()
    answerer = folder.description.answerer()
    parts = [f"run {folder.path.name}", f"environment {', '.join(folder.description.environments())}"]
    if agent := folder.description.agent():
        parts.append(f"agent {agent}")
    parts.append(f"model {answerer}" if answerer else "no model")
    about = document.get("benchmark", {})
    info = BenchmarkInfo(
        name=str(about.get("name") or folder.path.name),
        description=", ".join(parts),
        data_path=str(about.get("path") or ""),
        scripted=config.model.scripted,
        left_out=tuple(map(str, about.get("left_out") or ())),
        doubted=tuple(map(str, about.get("doubted") or ())),
        images=tuple(map(str, document.get("images") or ())),
    )
    json_path = folder.evaluation.with_stem(folder.evaluation.stem + suffix)
    markdown_path = folder.report.with_stem(folder.report.stem + suffix)
    tally = Tally(metric, config.rollouts_per_item)
    with ExitStack() as opened:
        judge = _judge(folder, config, check, opened) if metric == JUDGE_METRIC else None
        scored = opened.enter_context(closing(score_each(found, metric=metric, judge=judge)))
        report = opened.enter_context(ReportFile(json_path, info, total_items))
        for outcome, row in scored:
            tally.add(row, outcome.known)
            report.add(row)
        overview = tally.overview()
        check()
        report.end(overview)
    check()
    write_markdown(markdown_path, overview, info)
    return Reports(overview, json_path, markdown_path)


def _judge(folder: RunFolder, config: RunConfig, check: Check, opened: ExitStack) -> Judge:
    key = settings().openai_api_key
    chosen = JudgeConfig(
        model=config.judge_model or config.model.name,
        base_url=config.model.base_url or settings().openai_base_url,
    )
    secret = checked_key(key.get_secret_value()) if key else None
    answers = opened.enter_context(JudgedAnswers(folder.judged))
    return opened.enter_context(Judge(chosen, api_key=secret, answers=answers, before_asking=check))
