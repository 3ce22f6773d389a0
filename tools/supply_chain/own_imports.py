"""Which files of this repository import which modules, found in their syntax: at the top, in a function, or by name."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Container, Iterator
from pathlib import Path

PRODUCT = ("benchmark", "celeryconfig.py", "desktop_image", "examples", "rollout_tasks", "scripts", "tools", "vm_pool")
TESTS = ("tests",)


def importers(
    folder: Path, modules: Container[str], *, within: tuple[str, ...] = PRODUCT + TESTS
) -> dict[str, list[str]]:
    """For each of the modules that is imported, the files that do, relative to the folder and sorted."""
    found: dict[str, set[str]] = defaultdict(set)
    for file in python_files(folder, within):
        for module in imported_modules(file.read_text("utf-8")):
            if module in modules:
                found[module].add(str(file.relative_to(folder)))
    return {module: sorted(files) for module, files in sorted(found.items())}


def python_files(folder: Path, within: tuple[str, ...]) -> Iterator[Path]:
    """Yields all Python files of those parts of a folder."""
    for part in within:
        path = folder / part
        yield from path.rglob("*.py") if path.is_dir() else [path] if path.is_file() else []


def imported_modules(source: str) -> set[str]:
    """Returns the first part of each module that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            found.add(node.module.partition(".")[0])
        elif isinstance(node, ast.Call) and _name_of(node.func) in ("import_module", "__import__"):
            found |= {
                argument.value.partition(".")[0]
                for argument in node.args[:1]
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
            }
    return found


def _name_of(function: ast.expr) -> str:
    return (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )
