"""Finds options of a task's metrics that the metrics do not read: most of desktop-env's accept any option silently.

Searches desktop-env's source, as importing it takes seconds: an option counts as read if its name occurs in the
metric's function, as a parameter or a text, or in a function that it calls.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from rollout_tasks.environments.osworld.desktop_env_names import package_folder
from rollout_tasks.environments.osworld.desktop_env_patches import METRICS, OPTIONS
from rollout_tasks.environments.osworld.task import metrics_of

_READ_NOWHERE = frozenset(
    {("compare_references", "content_only"), ("compare_pptx_files", "examine_shape_lenient_height")}
)
"""Used in OSWorld's own tasks, but read by no version of desktop-env: without them, scores are the same."""


def unread_options(evaluator: Mapping[str, Any]) -> Iterator[str]:
    """Yields a sentence for each option of a task that its metric ignores; none if desktop-env is not installed."""
    given = evaluator.get("options")
    if not given or evaluator["func"] == "infeasible":
        return
    several = given if isinstance(given, list) else [given]
    for place, (metric, options) in enumerate(zip(metrics_of(evaluator), several, strict=False)):
        known = None if metric in METRICS else _options_of(metric)
        for option in sorted(options or {}):
            if known is not None and option not in known and (metric, option) not in OPTIONS | _READ_NOWHERE:
                where = f"options[{place}]" if isinstance(given, list) else "options"
                yield f"desktop-env's {metric} does not read the option {option} (evaluator.{where})"


@dataclass(frozen=True, slots=True)
class _Function:
    """A function in a module of metrics."""

    words: frozenset[str]
    """Its parameters, and each text in it."""
    calls: frozenset[str]
    """All names in it, including those of functions."""


def _options_of(metric: str) -> frozenset[str] | None:
    """Returns the words that may be an option of a metric; None if its function is not found."""
    functions = _functions()
    if metric not in functions:
        return None
    words: set[str] = set()
    seen: set[str] = set()
    left = [metric]
    while left:
        name = left.pop()
        if name not in seen and name in functions:
            seen.add(name)
            words |= functions[name].words
            left += functions[name].calls
    return frozenset(words)


@lru_cache(maxsize=1)
def _functions() -> dict[str, _Function]:
    """Returns the functions of all modules of metrics, by name; functions of the same name are merged."""
    found: dict[str, _Function] = {}
    folder = package_folder()
    for module in sorted((folder / "evaluators" / "metrics").glob("*.py")) if folder else ():
        for node in _parsed(module).body:
            if isinstance(node, ast.FunctionDef):
                known = found.get(node.name, _Function(frozenset(), frozenset()))
                this = _function(node)
                found[node.name] = _Function(known.words | this.words, known.calls | this.calls)
    return found


def _parsed(module: Path) -> ast.Module:
    return ast.parse(module.read_text(encoding="utf-8"))


def _function(node: ast.FunctionDef) -> _Function:
    inside = list(ast.walk(node))
    texts = {one.value for one in inside if isinstance(one, ast.Constant) and isinstance(one.value, str)}
    parameters = {one.arg for one in inside if isinstance(one, ast.arg)}
    names = {one.id for one in inside if isinstance(one, ast.Name)}
    return _Function(frozenset(texts | parameters), frozenset(names))
