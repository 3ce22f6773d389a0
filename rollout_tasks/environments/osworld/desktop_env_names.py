"""Which setup steps, getters and metrics the installed desktop-env has, read from its source: importing it takes seconds."""

from __future__ import annotations

import ast
import importlib.util
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from rollout_tasks.environments.osworld.desktop_env_patches import GETTERS, METRICS

_NEVER_DONE = frozenset({"act", "replay", "tidy_desktop"})
"""Setup steps that only raise NotImplementedError."""


@dataclass(frozen=True, slots=True)
class Step:
    """A setup step's parameters; `any_other` if it takes any others too."""

    required: frozenset[str]
    optional: frozenset[str]
    any_other: bool


@dataclass(frozen=True, slots=True)
class DesktopEnvNames:
    """What a task may name."""

    steps: dict[str, Step]
    getters: frozenset[str]
    metrics: frozenset[str]


def package_folder() -> Path | None:
    """Returns the folder where desktop-env is installed; None if it is not."""
    try:
        found = importlib.util.find_spec("desktop_env")
    except ModuleNotFoundError:
        return None
    if found is None or not found.submodule_search_locations:
        return None
    return Path(next(iter(found.submodule_search_locations)))


@lru_cache(maxsize=1)
def desktop_env_names() -> DesktopEnvNames | None:
    """Returns the names; None if desktop-env is not installed."""
    package = package_folder()
    if package is None:
        return None
    getters = _names(package / "evaluators" / "getters" / "__init__.py")
    return DesktopEnvNames(
        _steps(package / "controllers" / "setup.py"),
        frozenset(name.removeprefix("get_") for name in getters if name.startswith("get_")) | GETTERS,
        _names(package / "evaluators" / "metrics" / "__init__.py") | METRICS,
    )


def _names(module: Path) -> frozenset[str]:
    """Returns every name that a module imports or defines."""
    names: set[str] = set()
    for node in ast.parse(module.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom):
            names.update(alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.FunctionDef):
            names.add(node.name)
    return frozenset(names)


def _steps(module: Path) -> dict[str, Step]:
    """Returns the methods ``_<name>_setup`` of the setup controller."""
    steps: dict[str, Step] = {}
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("_") and node.name.endswith("_setup"):
            name = node.name.removeprefix("_").removesuffix("_setup")
            if name not in _NEVER_DONE:
                steps[name] = _step(node.args)
    return steps


def _step(arguments: ast.arguments) -> Step:
    names = [argument.arg for argument in arguments.args[1:]]
    with_default = len(arguments.defaults)
    required = names[: len(names) - with_default] if with_default else names
    return Step(frozenset(required), frozenset(names) - frozenset(required), arguments.kwarg is not None)
