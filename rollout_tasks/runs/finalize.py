"""The end of a run: scores what is in and writes the report. Safe to call at any time, as often as anybody likes.

`score_run` needs the run's folder alone, so a finished run can be scored again with another metric, without Redis.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

from benchmark.errors import BenchmarkError
from benchmark.evaluation import Evaluation, evaluate
from benchmark.items import Item
from benchmark.judge import Judge, JudgeConfig
from benchmark.judged_answers import JudgedAnswers
from benchmark.metrics import JUDGE_METRIC
from benchmark.report import BenchmarkInfo, write_markdown, write_report
from rollout_tasks.config import RunConfig
from rollout_tasks.errors import UserError
from rollout_tasks.rollout import beat_interval, run_store
from rollout_tasks.runs.finalizer_claim import FinalizerClaim, Superseded
from rollout_tasks.runs.folder import RunFolder, write_atomically
from rollout_tasks.runs.verdict import Verdict, rollout_ids
from rollout_tasks.settings import settings

logger = logging.getLogger(__name__)


def finalize(run_id: str) -> str:
    """Finalises a run whose rollouts are all in.

    Returns:
        The run's final state, or why there was nothing to do: ``incomplete``, ``busy``, ``over``, ``unknown``, ``superseded``.
    """
    store = run_store()
    token = uuid.uuid4().hex
    answer = store.begin_finalize(run_id, token, silent_seconds=store.silent_seconds)
    if answer != "go":
        logger.info("run %s: not finalised now (%s)", run_id, answer)
        return answer
    config, path = store.config(run_id)
    folder = RunFolder(Path(path))
    with FinalizerClaim(store, run_id, token, interval=beat_interval()) as claim:
        try:
            problem = _write(folder, config, list(store.verdicts(run_id)), list(store.items(run_id)), claim)
        except Superseded:
            logger.warning("run %s: finalising stopped: another process has taken it over", run_id)
            return "superseded"
    state = store.end_finalize(run_id, token, datetime.now(UTC).isoformat(timespec="seconds"), problem)
    logger.info("run %s: %s%s", run_id, state, f", but without a report: {problem}" if problem else "")
    return state


def _write(
    folder: RunFolder, config: RunConfig, verdicts: Sequence[Verdict], stored: Sequence[Item], claim: FinalizerClaim
) -> str:
    """Writes what a finished run leaves; returns why it could not, empty when it could.

    A run whose answers cannot be scored is over all the same: they are committed, and can be scored again at any time.

    Raises:
        Superseded: Another process finalises the run now; nothing was written since.
    """
    try:
        folder.path.mkdir(parents=True, exist_ok=True)
        items = folder.items() if (folder.path / "items.jsonl").exists() else stored
        claim.check()
        write_events(folder, verdicts)
        if config.evaluate_results:
            evaluation = score(folder, items, verdicts, config, config.metric, before_asking=claim.check)
            claim.check()
            write_reports(folder, config, evaluation)
    except (BenchmarkError, UserError) as error:
        return str(error)
    except OSError as error:
        return f"{error.filename or folder.path} cannot be written: {error.strerror}"
    return ""


def score(
    folder: RunFolder,
    items: Sequence[Item],
    verdicts: Iterable[Verdict],
    config: RunConfig,
    metric: str,
    before_asking: Callable[[], None] | None = None,
) -> Evaluation:
    """Scores verdicts with a metric; under ``llm_judgement`` a model is asked for what the folder does not hold yet."""
    with ExitStack() as opened:
        judge = None
        if metric == JUDGE_METRIC:
            answers = opened.enter_context(JudgedAnswers(folder.judged))
            judge = opened.enter_context(_judge(config, answers, before_asking))
        return evaluate(
            items,
            (verdict.as_result() for verdict in verdicts),
            metric=metric,
            rollouts_per_item=config.rollouts_per_item,
            judge=judge,
        )


def _judge(config: RunConfig, answers: JudgedAnswers, before_asking: Callable[[], None] | None) -> Judge:
    key = settings().openai_api_key
    chosen = JudgeConfig(
        model=config.judge_model or config.model.name,
        base_url=config.model.base_url or settings().openai_base_url,
    )
    return Judge(chosen, api_key=key.get_secret_value() if key else None, answers=answers, before_asking=before_asking)


def score_run(folder: RunFolder, metric: str) -> Evaluation:
    """Scores a run from its folder.

    Raises:
        UserError: The folder is not a run's, or broken.
        UnknownMetric: No metric has that name.
    """
    config = folder.config()
    items = folder.items()
    return score(folder, items, folder.verdicts(rollout_ids(items, config.rollouts_per_item)), config, metric)


def write_reports(folder: RunFolder, config: RunConfig, evaluation: Evaluation, suffix: str = "") -> tuple[Path, Path]:
    """Writes evaluation.json and report.md, or with a suffix two files beside them; returns their paths."""
    about = folder.document().get("benchmark", {})
    info = BenchmarkInfo(
        name=str(about.get("name") or folder.path.name),
        description=f"run {folder.path.name}, environment {config.env_mode}, model {config.model.name}",
        data_path=str(about.get("path") or ""),
        scripted=config.model.scripted,
    )
    paths = (
        folder.evaluation.with_stem(folder.evaluation.stem + suffix),
        folder.report.with_stem(folder.report.stem + suffix),
    )
    write_report(paths[0], evaluation, info)
    write_markdown(paths[1], evaluation, info)
    return paths


def write_events(folder: RunFolder, verdicts: Iterable[Verdict]) -> None:
    """Writes events.jsonl: which worker used which VM for which rollout, from when to when."""
    lines: list[tuple[float, str]] = []
    for verdict in verdicts:
        if verdict.lending is None:
            continue
        for action, when in (("allocate", verdict.lending.allocated), ("release", verdict.lending.released)):
            event = {
                "timestamp": when,
                "worker_id": verdict.worker,
                "instance_id": verdict.lending.vm_id,
                "task_id": verdict.rollout_id,
                "action": action,
            }
            lines.append((when, json.dumps(event, ensure_ascii=False)))
    write_atomically(folder.events, "".join(line + "\n" for _, line in sorted(lines)))
