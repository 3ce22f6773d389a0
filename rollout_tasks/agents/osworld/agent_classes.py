"""The agent classes of the installed ``mm_agents``, found without importing them: their modules read keys and connect."""

from __future__ import annotations

import ast
import importlib.util
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path

from rollout_tasks.errors import UserError

PREFIX = "osworld:"
"""Before the name of a class, in the name of an agent."""
PACKAGE = "mm_agents"
_METHODS = frozenset({"predict", "reset"})
_UNSUITABLE = {
    "AGIAgent": "a service of its maker decides; there is no model to be asked",
    "OwlAgent": "it sends every screenshot to a storage service of Alibaba Cloud",
}
"""Classes that cannot work through a model's endpoint, each with the reason."""


@dataclass(frozen=True, slots=True)
class AgentClass:
    """A class, as its source describes it."""

    name: str
    """``Class``, or ``module.Class`` where two modules have a class of that name."""
    module: str
    class_name: str
    parameters: frozenset[str]
    """Of its constructor."""
    missing: tuple[str, ...]
    """Modules that it imports and that are not installed."""

    @property
    def unusable(self) -> str:
        """Why it cannot be used here; empty if it can."""
        if reason := _UNSUITABLE.get(self.class_name):
            return reason
        return f"not installed: {', '.join(self.missing)}" if self.missing else ""


def agent_class(name: str) -> AgentClass:
    """Returns a class by its name, without the prefix.

    Raises:
        UserError: There is no such class, it cannot be used here, or nothing is installed.
    """
    known = agent_classes()
    if not known:
        raise UserError(
            f"OSWorld's own agents come with the package desktop-env ({PACKAGE}), which is not installed here"
        )
    found = known.get(name)
    if found is None:
        several = [other for other in known if other.endswith(f".{name}")]
        if several:
            raise UserError(
                f"{PACKAGE} has {name} {len(several)} times: {', '.join(PREFIX + other for other in several)}"
            )
        by_small_letters = {other.lower(): other for other in known}
        close = get_close_matches(name.lower(), by_small_letters, n=1)
        hint = f"did you mean {PREFIX}{by_small_letters[close[0]]}? " if close else ""
        usable = ", ".join(f"{PREFIX}{other}" for other, one in known.items() if not one.unusable)
        raise UserError(f"{PACKAGE} has no agent {name!r}: {hint}those that can be used: {usable}")
    if found.unusable:
        raise UserError(f"{PACKAGE}'s {name} cannot be used here: {found.unusable}")
    return found


@lru_cache(maxsize=1)
def agent_classes() -> dict[str, AgentClass]:
    """Returns all classes by name, usable or not; empty if the package is not installed."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        return {}
    sources = _Sources(Path(next(iter(spec.submodule_search_locations))))
    found = [one for module in sources.modules() for one in _classes_of(module, sources)]
    times = Counter(one.class_name for one in found)
    named = (one if times[one.class_name] == 1 else replace(one, name=_long_name(one)) for one in found)
    return {one.name: one for one in named}


class _Sources:
    """The package's modules, read and never run."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._trees: dict[str, ast.Module | None] = {}

    def modules(self) -> list[str]:
        """Returns the names of the modules that may have a class."""
        paths = [path for path in sorted(self._root.rglob("*.py")) if b"def predict(" in path.read_bytes()]
        parts = [[PACKAGE, *path.relative_to(self._root).with_suffix("").parts] for path in paths]
        return [".".join(part for part in one if part != "__init__") for one in parts]

    def tree(self, module: str) -> ast.Module | None:
        """Returns a module's source; None if there is no such module, or it cannot be read."""
        if module not in self._trees:
            path = self._root.joinpath(*module.split(".")[1:])
            file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
            try:
                self._trees[module] = ast.parse(file.read_bytes())
            except (OSError, SyntaxError, ValueError):
                self._trees[module] = None
        return self._trees[module]

    def missing(self, module: str) -> set[str]:
        """Returns what a module imports when it is imported, itself or through others of the package, and is not there."""
        found: set[str] = set()
        seen: set[str] = set()
        left = [module]
        while left:
            one = left.pop()
            if one in seen:
                continue
            seen.add(one)
            tree = self.tree(one)
            if tree is None:
                found.add(one)
                continue
            for name in _imported(tree, one, is_package=self._root.joinpath(*one.split(".")[1:]).is_dir()):
                if name.partition(".")[0] == PACKAGE:
                    left += _with_parents(name)
                elif not _is_installed(name):
                    found.add(name)
        return {name for name in found if not any(name.startswith(f"{other}.") for other in found)}


def _classes_of(module: str, sources: _Sources) -> Iterator[AgentClass]:
    tree = sources.tree(module)
    for node in tree.body if tree is not None else ():
        if not isinstance(node, ast.ClassDef):
            continue
        methods = {one.name: one for one in node.body if isinstance(one, ast.FunctionDef)}
        if not methods.keys() >= _METHODS:
            continue
        parameters: frozenset[str] = frozenset()
        if constructor := methods.get("__init__"):
            arguments = constructor.args
            parameters = frozenset(one.arg for one in (*arguments.args[1:], *arguments.kwonlyargs))
        yield AgentClass(node.name, module, node.name, parameters, tuple(sorted(sources.missing(module))))


def _imported(tree: ast.Module, module: str, *, is_package: bool) -> Iterator[str]:
    """Yields the full names of the modules that a module imports when it is imported."""
    for node in tree.body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = module.split(".")
            above = parts[: len(parts) - node.level + is_package] if node.level else []
            yield ".".join([*above, *filter(None, [node.module])])


def _is_installed(module: str) -> bool:
    """Returns whether a module of another package is installed. Runs nothing: a package's parts are looked for as files."""
    package, _, rest = module.partition(".")
    spec = importlib.util.find_spec(package)
    if spec is None or not rest or spec.submodule_search_locations is None:
        return spec is not None
    part = rest.partition(".")[0]
    return any(
        (Path(place) / part).is_dir() or any(Path(place).glob(f"{part}.*")) for place in spec.submodule_search_locations
    )


def _with_parents(module: str) -> list[str]:
    parts = module.split(".")
    return [".".join(parts[:size]) for size in range(1, len(parts) + 1)]


def _long_name(one: AgentClass) -> str:
    """Returns the name of a class whose own name another module has, too."""
    return ".".join([*(part for part in one.module.split(".")[1:] if part != "main"), one.class_name])
