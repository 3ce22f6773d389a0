"""How far the scores of tasks can be relied on, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from desktop_image.conformance.verdicts import counts
from rollout_tasks.environments.base import Conformance


def as_json(found: Sequence[Conformance]) -> dict[str, Any]:
    """How many tasks there are of each verdict, and each task's."""
    return {
        "counts": counts(one.verdict for one in found),
        "tasks": [
            {"domain": one.item.domain, "task": one.item.id, "verdict": one.verdict, "reasons": list(one.reasons)}
            for one in found
        ],
    }


def show(found: Sequence[Conformance]) -> None:
    """Prints a row for each task, and the counts."""
    table = Table()
    for heading in ("domain", "task", "verdict", "why"):
        table.add_column(heading, overflow="fold")
    for one in found:
        table.add_row(
            escape(one.item.domain or ""), escape(one.item.id[:8]), one.verdict, escape("; ".join(one.reasons))
        )
    console = Console()
    console.print(table)
    counted = counts(one.verdict for one in found)
    console.print(
        f"{len(found)} tasks: {', '.join(f'{number} {name}' for name, number in counted.items())}", highlight=False
    )
