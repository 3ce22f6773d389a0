"""Known vulnerabilities of what is locked: pip-audit asks the package index, and what is accepted says why.

The index is asked about every locked version, for whatever interpreter or system. Where it cannot be asked, that is reported.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from rollout_tasks.errors import UserError

ACCEPTED = Path(__file__).with_name("accepted_vulnerabilities.toml")

AT_A_TIME = 4
"""Processes of pip-audit: each asks about one version after the other."""
FIRST_ANSWER_SECONDS = 20.0
LAST_ANSWER_SECONDS = 40.0

_NO_ANSWER = (
    "requests.exceptions.",
    "urllib3.exceptions.",
    "vulnerability feed",
    "PyPI is not redirecting",
    "ServiceError",
)
"""What is in the last lines of a pip-audit that got no answer from the index, or a useless one."""
_ENTRY = {"id", "package", "reason"}


class NotCheckedError(Exception):
    """The index could not be asked; one sentence says why."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """A known vulnerability that the project lives with."""

    id: str
    """Any of its names: PYSEC-..., CVE-..., GHSA-..."""
    package: str
    reason: str


@dataclass(frozen=True, slots=True)
class Vulnerability:
    """One that a locked version is known to have."""

    package: str
    version: str
    id: str
    aliases: tuple[str, ...]
    fixed_in: tuple[str, ...]
    description: str

    def is_named(self, accepted: Accepted) -> bool:
        """Whether an entry speaks of it."""
        return accepted.package == self.package and accepted.id in (self.id, *self.aliases)


@dataclass(frozen=True, slots=True)
class Audit:
    """What the index answered."""

    found: list[Vulnerability] = field(default_factory=list)
    checked_packages: set[str] = field(default_factory=set)
    """Names of packages of which all versions were answered for."""
    unknown: dict[str, str] = field(default_factory=dict)
    """Name of a package -> why the index told nothing of it."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What is to be done."""

    refused: list[Vulnerability]
    """Those that no entry accepts."""
    stale: list[Accepted]
    """Entries that speak of nothing that is locked."""

    def __bool__(self) -> bool:
        return bool(self.refused or self.stale)


def read_accepted(file: Path = ACCEPTED) -> list[Accepted]:
    """Returns the entries of the file of accepted vulnerabilities.

    Raises:
        UserError: An entry lacks something, has too much, or is there twice.
    """
    try:
        entries: list[dict[str, Any]] = tomllib.loads(file.read_text("utf-8")).get("accepted", [])
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{file.name}: {error}") from error
    accepted: list[Accepted] = []
    for number, entry in enumerate(entries, 1):
        where = f"{file.name}: entry {number} ({entry.get('id', 'without id')})"
        for name in sorted(_ENTRY):
            if not isinstance(entry.get(name), str) or not entry[name].strip():
                raise UserError(f"{where} has no {name}")
        if unknown := sorted(set(entry) - _ENTRY):
            raise UserError(f"{where} has {', '.join(unknown)}, but may only have {', '.join(sorted(_ENTRY))}")
        one = Accepted(entry["id"].strip(), canonicalize_name(entry["package"].strip()), entry["reason"].strip())
        if any((one.id, one.package) == (other.id, other.package) for other in accepted):
            raise UserError(f"{where} is there twice for {one.package}")
        accepted.append(one)
    return accepted


def judge(audit: Audit, accepted: Iterable[Accepted], locked: Iterable[str]) -> Judgement:
    """Compares what was found with what is accepted.

    Args:
        audit: What the index answered.
        accepted: The entries.
        locked: Names of all locked packages. An entry for one of which the index told nothing is left alone.
    """
    entries, names = list(accepted), set(locked)
    refused = [one for one in audit.found if not any(one.is_named(entry) for entry in entries)]
    stale = [
        entry
        for entry in entries
        if entry.package not in names
        or (entry.package in audit.checked_packages and not any(one.is_named(entry) for one in audit.found))
    ]
    return Judgement(refused, stale)


def ask(versions: Iterable[tuple[str, str]]) -> Audit:
    """Asks the index about versions of packages, with pip-audit.

    Raises:
        NotCheckedError: The index does not answer, or does not tell of vulnerabilities.
    """
    pins = sorted(set(versions))
    first = _pip_audit(pins[:1], FIRST_ANSWER_SECONDS)
    if first.unknown:
        raise NotCheckedError("the package index tells nothing of single versions of packages")
    # Neighbours may be two versions of one package, which pip-audit does not take at once.
    shares = [share for start in range(AT_A_TIME) if (share := pins[1:][start::AT_A_TIME])]
    with ThreadPoolExecutor(AT_A_TIME) as threads:
        audits = [first, *threads.map(lambda share: _pip_audit(share, LAST_ANSWER_SECONDS), shares)]
    unknown = {name: why for audit in audits for name, why in audit.unknown.items()}
    return Audit(
        found=sorted(
            (one for audit in audits for one in audit.found), key=lambda one: (one.package, one.version, one.id)
        ),
        checked_packages={name for name, _ in pins} - set(unknown),
        unknown=unknown,
    )


def _pip_audit(pins: Sequence[tuple[str, str]], seconds: float) -> Audit:
    with tempfile.TemporaryDirectory() as folder:
        requirements, answer = Path(folder) / "requirements.txt", Path(folder) / "answer.json"
        requirements.write_text("".join(f"{name}=={version}\n" for name, version in pins), "utf-8")
        command = [sys.executable, "-m", "pip_audit", "--requirement", str(requirements), "--no-deps", "--disable-pip"]
        command += ["--vulnerability-service", "pypi", "--timeout", "10", "--progress-spinner", "off"]
        command += ["--format", "json", "--desc", "on", "--aliases", "on", "--output", str(answer)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds)
        except subprocess.TimeoutExpired:
            raise NotCheckedError(f"the package index did not answer within {seconds:.0f} s") from None
        if answer.is_file() and answer.stat().st_size:
            return _read(json.loads(answer.read_text("utf-8")))
    last = next((line.strip() for line in reversed(done.stderr.splitlines()) if line.strip()), "")
    if any(sign in done.stderr for sign in _NO_ANSWER):
        raise NotCheckedError(f"the package index cannot be asked: {last[:200]}")
    raise RuntimeError(f"pip-audit failed: {last[:500]}")


def _read(answer: dict[str, Any]) -> Audit:
    audit = Audit()
    for dependency in answer["dependencies"]:
        name = canonicalize_name(dependency["name"])
        if "skip_reason" in dependency:
            audit.unknown[name] = dependency["skip_reason"]
            continue
        audit.checked_packages.add(name)
        for found in dependency["vulns"]:
            audit.found.append(
                Vulnerability(
                    package=name,
                    version=dependency["version"],
                    id=found["id"],
                    aliases=tuple(found["aliases"]),
                    fixed_in=tuple(found["fix_versions"]),
                    description=" ".join(found["description"].split()),
                )
            )
    return audit
