"""Lock files as uv writes them: which packages they name, why, and which direct dependency brings each."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from packaging.utils import canonicalize_name

from rollout_tasks.errors import UserError

LOCKS = {
    "base": "requirements.lock",
    "osworld": "requirements-osworld.lock",
    "dev": "requirements-dev.lock",
}
"""From the smallest to the one that has everything."""
INSTALLER_LOCK = "requirements-uv.lock"
"""What installs the others, where it is not there already."""

_PACKAGE = re.compile(r"(?P<name>[A-Za-z0-9][\w.-]*)==(?P<version>[^\s;\\]+)(?: ; (?P<marker>[^\\]+?))?(?: \\)?")
_HASH = re.compile(r" {4}--hash=sha256:(?P<hash>[0-9a-f]{64})(?: \\)?")
_REASON = re.compile(r" {4}#(?: via)?(?: +(?P<reason>\S.*))?")
_PROJECT = re.compile(r"\S+ \(pyproject\.toml(?::\S+)?\)")


@dataclass(slots=True)
class Locked:
    """One version of a package, as a lock file names it."""

    name: str
    version: str
    marker: str = ""
    """Which interpreters and systems it is for; empty where it is for all."""
    hashes: list[str] = field(default_factory=list)
    """SHA-256 of its files, in hexadecimal digits."""
    needed_by: list[str] = field(default_factory=list)
    """The packages of the same lock that need it."""
    direct: bool = False
    """Whether pyproject.toml names it."""


@dataclass(frozen=True, slots=True)
class Row:
    """One version of a package, over all locks."""

    name: str
    version: str
    marker: str
    locks: tuple[str, ...]
    """Keys of `LOCKS`."""
    direct: bool
    brought_by: tuple[str, ...]
    """The direct dependencies that bring it, in the smallest lock that has it; not itself."""


def read_lock(file: Path) -> list[Locked]:
    """Returns the packages of a lock file, in its order.

    Raises:
        UserError: A line is not one that uv writes.
    """
    packages: list[Locked] = []
    for number, line in enumerate(file.read_text("utf-8").splitlines(), 1):
        if found := _PACKAGE.fullmatch(line):
            marker = (found["marker"] or "").strip()
            packages.append(Locked(canonicalize_name(found["name"]), found["version"], marker))
        elif packages and (found := _HASH.fullmatch(line)):
            packages[-1].hashes.append(found["hash"])
        elif packages and (found := _REASON.fullmatch(line)):
            _add_reason(packages[-1], found["reason"] or "")
        else:
            raise UserError(f"{file.name}:{number} is not a line of a lock file made by uv: {line.strip()[:80]!r}")
    return packages


def _add_reason(package: Locked, reason: str) -> None:
    if _PROJECT.fullmatch(reason):
        package.direct = True
    elif reason and not reason.startswith("-c "):
        package.needed_by.append(canonicalize_name(reason))


def direct_dependencies(packages: Iterable[Locked]) -> dict[str, tuple[str, ...]]:
    """For each package's name, the direct dependencies that bring it, sorted; a direct one brings itself, too."""
    needed_by: dict[str, set[str]] = defaultdict(set)
    direct: set[str] = set()
    for package in packages:
        needed_by[package.name].update(package.needed_by)
        if package.direct:
            direct.add(package.name)

    def above(name: str) -> set[str]:
        seen, waiting = {name}, [name]
        while waiting:
            for other in needed_by[waiting.pop()] - seen:
                seen.add(other)
                waiting.append(other)
        return seen

    return {name: tuple(sorted(above(name) & direct)) for name in list(needed_by)}


def rows(folder: Path) -> list[Row]:
    """Returns all versions of all packages that the locks in a folder name, sorted by name and version."""
    locks: dict[tuple[str, str], list[str]] = defaultdict(list)
    found: dict[tuple[str, str], tuple[Locked, tuple[str, ...]]] = {}
    for lock, file_name in LOCKS.items():
        packages = read_lock(folder / file_name)
        above = direct_dependencies(packages)
        for package in packages:
            key = package.name, package.version
            locks[key].append(lock)
            others = tuple(name for name in above[package.name] if name != package.name)
            found.setdefault(key, (package, others))
    return [
        Row(package.name, package.version, package.marker, tuple(locks[key]), package.direct, others)
        for key, (package, others) in sorted(found.items())
    ]
