"""Writing an evaluation as JSON and as Markdown, and reading the JSON back. Computes no figure of its own."""

from __future__ import annotations

import heapq
import json
import os
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmark.errors import BenchmarkError
from benchmark.results import PERFECT, Evaluation, ItemRow, Summary

SCRIPTED_NOTICE = "**The answers in this report came from the scripted model: its scores say nothing about any agent.**"
_WORST = 10
_CELL = 120
"""Characters of data shown in one table cell."""
_SECTIONS = {"benchmark_info": dict, "evaluation_results": list, "summary": dict}
_FORMATTING = re.compile(r"[\\`*\[\]<>|~&$]|(?<!\w)_|_(?!\w)")
"""What could format, link or end a cell; an underscore inside a word cannot."""


@dataclass(frozen=True, slots=True)
class BenchmarkInfo:
    """What the report says about where its items came from."""

    name: str
    data_path: str
    description: str = ""
    scripted: bool = False
    """Whether the scripted model gave the answers; the Markdown report then begins with saying so."""


def as_report(evaluation: Evaluation, info: BenchmarkInfo) -> dict[str, Any]:
    """The JSON report: ``benchmark_info``, ``evaluation_results`` (one per item) and ``summary``."""
    values = evaluation.as_dict()
    heading = {"name": info.name, "description": info.description}
    source = {"data_path": info.data_path, "total_items": evaluation.summary.total_items, "scripted": info.scripted}
    return {
        "benchmark_info": {**heading, **source},
        "evaluation_results": list(values["rows"]),
        "summary": {**heading, **values["summary"], "groups": list(values["groups"])},
    }


def write_report(path: Path, evaluation: Evaluation, info: BenchmarkInfo) -> None:
    """Writes the JSON report; readers see the old file or the whole new one.

    Raises:
        OSError: The folder cannot be written to, or is full; names the path.
    """
    _write(path, json.dumps(as_report(evaluation, info), ensure_ascii=False, allow_nan=False, indent=1) + "\n")


def write_markdown(path: Path, evaluation: Evaluation, info: BenchmarkInfo) -> None:
    """Writes the Markdown report in the same way."""
    _write(path, as_markdown(evaluation, info))


def read_report(path: Path) -> dict[str, Any]:
    """Reads a JSON report.

    Raises:
        BenchmarkError: It is missing, cannot be read, or is no such report.
    """
    try:
        report = json.loads(path.read_bytes())
    except OSError as error:
        raise BenchmarkError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise BenchmarkError(f"{path}: is not a JSON report: {error}") from error
    for section, kind in _SECTIONS.items():
        if not isinstance(report, dict) or not isinstance(report.get(section), kind):
            raise BenchmarkError(f"{path}: is not an evaluation report: {section} is missing or of the wrong kind")
    return dict(report)


def as_markdown(evaluation: Evaluation, info: BenchmarkInfo) -> str:
    """The report for people."""
    parts = [f"# {_cell(info.name)}", _summary_table(evaluation.summary, info)]
    if info.scripted:
        parts.insert(0, SCRIPTED_NOTICE)
    parts += [
        *_pass_at_k_section(evaluation.summary),
        *_groups_section(evaluation),
        *_losses_section(evaluation.summary),
        *_worst_section(evaluation.rows),
    ]
    return "\n\n".join(parts) + "\n"


def _summary_table(summary: Summary, info: BenchmarkInfo) -> str:
    standings = ", ".join(f"{count} {standing.replace('_', ' ')}" for standing, count in summary.standings.items())
    rows: list[tuple[str, str]] = [
        ("Data", _cell(info.data_path)),
        ("Metric", _cell(summary.metric)),
        ("Average score (whatever has no score counts 0)", _number(summary.average_score)),
        ("Bounds if all losses had scored 0 or 1", f"{_number(summary.bounds[0])} to {_number(summary.bounds[1])}"),
        ("Coverage", f"{_percent(summary.coverage)} of {summary.total_rollouts} rollouts"),
        ("Rollouts", standings),
        ("Items", f"{summary.total_items}, {summary.evaluated_items} evaluated, {summary.perfect_matches} perfect"),
        ("Mean over valid rollouts", _valid_mean(summary)),
        ("Highest and lowest item score", f"{_number(summary.max)}, {_number(summary.min)}"),
        ("Tokens", f"{summary.prompt_tokens} prompt, {summary.completion_tokens} completion"),
        ("Time in attempts", _time(summary)),
    ]
    if info.description:
        rows.insert(0, ("Description", _cell(info.description, 1000)))
    return _table(("Figure", "Value"), rows)


def _time(summary: Summary) -> str:
    text = f"{summary.seconds:.1f} s"
    if summary.stages and summary.seconds:
        shares = (f"{stage} {100 * taken / summary.seconds:.0f} %" for stage, taken in summary.stages.items())
        text += f" ({', '.join(shares)})"
    return text


def _valid_mean(summary: Summary) -> str:
    if summary.valid_mean is None:
        return "none is valid"
    text = f"{_number(summary.valid_mean)} over {summary.valid_items} items"
    if summary.standard_error is not None:
        text += f", standard error {_number(summary.standard_error)}"
    if summary.confidence_interval is not None:
        low, high = summary.confidence_interval
        text += f", 95 % interval {_number(low)} to {_number(high)} ({summary.interval_method})"
    return text


def _pass_at_k_section(summary: Summary) -> Iterator[str]:
    if summary.rollouts_per_item == 1:
        return
    n = summary.rollouts_per_item
    yield f"## {n} rollouts per item"
    rows = [(f"mean@{n}", _number(summary.mean_at_n)), (f"max@{n}", _number(summary.max_at_n))]
    rows += [(f"pass@{k}", _number(value)) for k, value in summary.pass_at_k.items()]
    yield _table(("Figure", "Value"), rows)


def _groups_section(evaluation: Evaluation) -> Iterator[str]:
    if not evaluation.groups:
        return
    yield "## Groups"
    yield _table(
        ("Domain", "Items", "Average", "Mean over valid", "Standard error", "Coverage"),
        (
            (
                "no domain" if group.name is None else _cell(group.name),
                str(group.total_items),
                _number(group.average_score),
                _number(group.valid_mean),
                _number(group.standard_error),
                _percent(group.coverage),
            )
            for group in evaluation.groups
        ),
    )


def _losses_section(summary: Summary) -> Iterator[str]:
    if summary.failures:
        yield "## Failures"
        yield _table(
            ("Class", "Rollouts", "Counted as", "For example"),
            (
                (_cell(name), str(loss.count), loss.counted_as, _cell(loss.example, 300))
                for name, loss in summary.failures.items()
            ),
        )
    if summary.unscored:
        yield "## Without a score"
        yield _table(
            ("Class", "Rollouts", "For example"),
            ((_cell(name), str(loss.count), _cell(loss.example, 300)) for name, loss in summary.unscored.items()),
        )


def _worst_section(rows: Sequence[ItemRow]) -> Iterator[str]:
    imperfect = ((row.score or 0.0, position) for position, row in enumerate(rows) if (row.score or 0.0) < PERFECT)
    worst = [rows[position] for _, position in heapq.nsmallest(_WORST, imperfect)]
    if not worst:
        return
    yield "## Lowest scores"
    yield _table(
        ("Item", "Score", "How it ended", "Prediction", "Reference"),
        (
            (
                _cell(row.item_id),
                "none" if row.score is None else _number(row.score),
                ", ".join(dict.fromkeys(_ending(rollout.standing, rollout.failure_class) for rollout in row.rollouts)),
                _cell(row.prediction),
                _cell(row.ground_truth),
            )
            for row in worst
        ),
    )


def _ending(standing: str, failure_class: str | None) -> str:
    ended = standing.replace("_", " ")
    return f"{ended} ({_cell(failure_class)})" if failure_class else ended


def _table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heading, ["---"] * len(heading), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _cell(text: str, longest: int = _CELL) -> str:
    """Data as plain text in one line of Markdown: nothing in it is formatting, a link or a cell's end."""
    line = " ".join(text[: 4 * longest].split())
    printable = "".join(character if character.isprintable() else "�" for character in line)
    cut = printable if len(printable) <= longest else printable[: longest - 1] + "…"
    return _FORMATTING.sub(r"\\\g<0>", cut)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def _write(path: Path, text: str) -> None:
    """Temporary name, fsync, rename, fsync of the folder. Half of a surrogate pair is written as its JSON escape."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(text.encode("utf-8", "backslashreplace"))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def item_scores(report: Mapping[str, Any]) -> dict[str, float]:
    """Score by item id out of a JSON report, none counting 0: what `benchmark.statistics.compare_paired` compares."""
    return {row["item_id"]: row["score"] or 0.0 for row in report["evaluation_results"]}
