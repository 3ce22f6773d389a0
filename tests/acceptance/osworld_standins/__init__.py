"""OSWorld's own tasks with inputs and references made here, one module a task: ``<domain>_<first eight of its id>``.

Each has ``TASK``, its id; ``FILES``, the bytes of each file that the task downloads, by the last part of its URL; ``RIGHT``, a
script that solves it as a person would; ``NEAR_MISS``, one that comes close and is wrong, and ``NEAR_MISS_IS``, how; ``SHELL``,
whether it is solved in a terminal. The task file itself is not changed: its own evaluator compares with references made here.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Script = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class StandIn:
    """What stands in for a task's files, and the scripts that play it."""

    task: str
    files: Mapping[str, bytes]
    right: Script
    near_miss: Script
    near_miss_is: str
    shell: bool


def stand_ins(task_ids: Sequence[str] = ()) -> list[StandIn]:
    """All that there are, or those whose task's id begins with one of these; makes their files."""
    found = []
    for module in pkgutil.iter_modules(__path__):
        short = module.name.rpartition("_")[2]
        if len(short) != 8 or (
            task_ids and not any(one.startswith(short) or short.startswith(one) for one in task_ids)
        ):
            continue
        there = importlib.import_module(f"{__name__}.{module.name}")
        found.append(StandIn(there.TASK, there.FILES, there.RIGHT, there.NEAR_MISS, there.NEAR_MISS_IS, there.SHELL))
    return found
