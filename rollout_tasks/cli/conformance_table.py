"""Shows which tasks' scores can be relied on: as a table, as JSON and as a page in Markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from benchmark.markdown_report import as_cell
from desktop_image.conformance.verdicts import counts
from rollout_tasks.cli.fitting_tables import table_console
from rollout_tasks.environments.base import Conformance

_REASONS = 1000
"""Most characters of a task's reasons on a page."""
_PLAIN = re.compile(r"[\w-]+")


def as_json(found: Sequence[Conformance]) -> dict[str, Any]:
    """Returns how many tasks have each verdict, and each task's verdict."""
    return {
        "counts": counts(one.verdict for one in found),
        "tasks": [
            {"domain": one.item.domain, "task": one.item.id, "verdict": one.verdict, "reasons": list(one.reasons)}
            for one in found
        ],
    }


def as_page(found: Sequence[Conformance], tasks: str, image: str, command: str) -> str:
    """Returns a page in Markdown: the counts of each domain, and every task that is not faithful.

    Args:
        found: The result for each task.
        tasks: The name of the list of tasks.
        image: The image they were compared with.
        command: The command that prints the page.
    """
    domains: dict[str, list[Conformance]] = {}
    for one in found:
        domains.setdefault(one.item.domain or "", []).append(one)
    lines = [
        "# How far scores can be relied on",
        "",
        f"`{tasks}`, compared with {image}: what setup, evaluators and instructions touch, and what the image has of it.",
        "Made by:",
        "",
        "<!-- not run: it needs OSWorld's task files -->",
        "```bash",
        command,
        "```",
        "",
        "`faithful`: no difference was found. `unfaithful`: the image differs where the task looks, or desktop-env ignores an",
        "option of its evaluator. `needs`: it asks for what",
        "image, network or workers have not. A run leaves the last two out unless `--include-unfaithful` is given.",
        "",
        "| domain | tasks | faithful | unfaithful | needs |",
        "|---|---:|---:|---:|---:|",
    ]
    for domain, some in [*sorted(domains.items()), ("all", list(found))]:
        counted = counts(one.verdict for one in some)
        lines.append(f"| {as_cell(domain)} | {len(some)} | {' | '.join(map(str, counted.values()))} |")
    lines += ["", "| domain | task | verdict | why |", "|---|---|---|---|"]
    for one in sorted(found, key=lambda one: (one.item.domain or "", one.verdict, one.item.id)):
        if one.reasons:
            more = f"; and {len(one.reasons) - 3} more" if len(one.reasons) > 3 else ""
            why = as_cell("; ".join(one.reasons[:3]), _REASONS) + more
            lines.append(f"| {as_cell(one.item.domain or '')} | {_task(one.item.id[:8])} | {one.verdict} | {why} |")
    return "\n".join(lines) + "\n"


def _task(name: str) -> str:
    return f"`{name}`" if _PLAIN.fullmatch(name) else as_cell(name)


def show(found: Sequence[Conformance]) -> None:
    """Prints a row for each task, and the counts."""
    table = Table()
    for heading in ("domain", "task", "verdict", "why"):
        table.add_column(heading, overflow="fold")
    for one in found:
        table.add_row(
            *(Text(cell) for cell in (one.item.domain or "", one.item.id[:8], one.verdict, "; ".join(one.reasons)))
        )
    console = table_console()
    console.print(table)
    counted = counts(one.verdict for one in found)
    console.print(
        f"{len(found)} tasks: {', '.join(f'{number} {name}' for name, number in counted.items())}", highlight=False
    )
