"""Writes an evaluation's figures as Markdown, for people. Computes none; every item is in the JSON report."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from benchmark.money import dollars
from benchmark.report import BenchmarkInfo
from benchmark.results import Group, ItemRow, Overview, Summary
from benchmark.whole_file import WholeFile

SCRIPTED_NOTICE = "**The answers in this report came from the scripted model: its scores say nothing about any agent.**"
_CELL = 120
"""Most characters of data in one table cell."""
_SENTENCE = 400
"""Most characters of a sentence about an item."""
_LISTED = 100
"""Most items that one list of the Markdown report names."""
_FORMATTING = re.compile(r"[\\`*\[\]<>|~&$]|(?<!\w)_|_(?!\w)|:(?=//)|(?i:(?<=www)\.|(?<=mailto):|(?<=xmpp):)")
"""Characters that could format text, make a link or end a cell; an underscore inside a word cannot, an address does."""


def write_markdown(path: Path, overview: Overview, info: BenchmarkInfo) -> None:
    """Writes the Markdown report; readers see the old file or the whole new one.

    Raises:
        OSError: The folder cannot be written to, or is full; names the path.
    """
    with WholeFile(path) as file:
        file.write(as_markdown(overview, info))
        file.publish()


def as_markdown(overview: Overview, info: BenchmarkInfo) -> str:
    """Returns the report as Markdown, for people."""
    parts = [f"# {as_cell(info.name)}", _summary_table(overview.summary, info)]
    if info.scripted:
        parts.insert(0, SCRIPTED_NOTICE)
    parts += [
        *_pass_at_k_section(overview.summary),
        *_groups_section(overview.groups),
        *_losses_section(overview.summary),
        *_named_section("Scores not to be relied on", info.doubted),
        *_named_section("Left out", info.left_out),
        *_worst_section(overview.worst),
    ]
    return "\n\n".join(parts) + "\n"


def _summary_table(summary: Summary, info: BenchmarkInfo) -> str:
    standings = ", ".join(f"{count} {standing.replace('_', ' ')}" for standing, count in summary.standings.items())
    rows: list[tuple[str, str]] = [
        ("Data", as_cell(info.data_path)),
        ("Metric", as_cell(summary.metric)),
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
    if summary.cost is not None:
        rows.insert(-1, ("Cost of the tokens", dollars(summary.cost)))
    if summary.task_code:
        where = {"cell": "in cells", "worker": "in the worker's own process (--trust-tasks)"}
        parts = (f"{_rollouts(count)} {where.get(place, place)}" for place, count in summary.task_code.items())
        rows.append(("Tasks' own code ran", ", ".join(parts)))
    if summary.attestation:
        known = {"unattested": "unattested (an agent that was root in its guest could have forged the score)"}
        parts = (f"{_rollouts(count)} {known.get(how, how)}" for how, count in summary.attestation.items())
        rows.append(("Guests' own servers", ", ".join(parts)))
    if summary.record_problems:
        said = f"{_rollouts(summary.record_problems)}, the first: {summary.first_record_problem}"
        rows.append(("Records that a trainer cannot use", as_cell(said, 1000)))
    if info.images:
        rows.insert(1, ("Desktops", as_cell("; ".join(info.images), 1000)))
    if info.left_out:
        rows.insert(1, ("Left out", f"{len(info.left_out)} items of the data, which no figure here counts"))
    if info.doubted:
        rows.insert(1, ("Not to be relied on", f"the scores of {len(info.doubted)} items, which the figures count"))
    if info.description:
        rows.insert(0, ("Description", as_cell(info.description, 1000)))
    return _table(("Figure", "Value"), rows)


def _rollouts(count: int) -> str:
    return f"{count} rollout{'' if count == 1 else 's'}"


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


def _named_section(heading: str, sentences: Sequence[str]) -> Iterator[str]:
    if not sentences:
        return
    yield f"## {heading}"
    yield "\n".join(f"- {as_cell(sentence, _SENTENCE)}" for sentence in sentences[:_LISTED])
    if len(sentences) > _LISTED:
        yield f"And {len(sentences) - _LISTED} more: the JSON report has them all."


def _groups_section(groups: Sequence[Group]) -> Iterator[str]:
    if not groups:
        return
    yield "## Groups"
    yield _table(
        ("Domain", "Items", "Average", "Mean over valid", "Standard error", "Coverage"),
        (
            (
                "no domain" if group.name is None else as_cell(group.name),
                str(group.total_items),
                _number(group.average_score),
                _number(group.valid_mean),
                _number(group.standard_error),
                _percent(group.coverage),
            )
            for group in groups
        ),
    )


def _losses_section(summary: Summary) -> Iterator[str]:
    if summary.failures:
        yield "## Failures"
        yield _table(
            ("Class", "Rollouts", "Counted as", "For example"),
            (
                (as_cell(name), str(loss.count), loss.counted_as, as_cell(loss.example, 300))
                for name, loss in summary.failures.items()
            ),
        )
    if summary.unscored:
        yield "## Without a score"
        yield _table(
            ("Class", "Rollouts", "For example"),
            ((as_cell(name), str(loss.count), as_cell(loss.example, 300)) for name, loss in summary.unscored.items()),
        )


def _worst_section(worst: Sequence[ItemRow]) -> Iterator[str]:
    if not worst:
        return
    yield "## Lowest scores"
    yield _table(
        ("Item", "Score", "How it ended", "Prediction", "Reference"),
        (
            (
                as_cell(row.item_id),
                "none" if row.score is None else _number(row.score),
                ", ".join(dict.fromkeys(_ending(rollout.standing, rollout.failure_class) for rollout in row.rollouts)),
                as_cell(row.prediction),
                as_cell(row.ground_truth),
            )
            for row in worst
        ),
    )


def _ending(standing: str, failure_class: str | None) -> str:
    ended = standing.replace("_", " ")
    return f"{ended} ({as_cell(failure_class)})" if failure_class else ended


def _table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heading, ["---"] * len(heading), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def as_cell(text: str, longest: int = _CELL) -> str:
    """Returns data as plain text in one line of Markdown: nothing in it formats, ends the cell or leads to another page."""
    line = " ".join(text[: 4 * longest].split())
    printable = "".join(character if character.isprintable() else "�" for character in line)
    cut = printable if len(printable) <= longest else printable[: longest - 1] + "…"
    return _FORMATTING.sub(r"\\\g<0>", cut)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"
