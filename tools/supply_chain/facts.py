"""What is known of each locked version's licence, kept in `licences.json`, and where that is read.

Installed distributions are read where they are. Versions for another interpreter or system are asked for with pip, which gets their
metadata and installs nothing. Rendering the page and the bills of materials needs the file alone.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from packaging.markers import Marker
from packaging.utils import canonicalize_name

from rollout_tasks.errors import UserError
from tools.supply_chain.licences import Licence, parts, read_licence
from tools.supply_chain.locks import Row

FILE = Path(__file__).with_name("licences.json")
STRONG = {"AGPL", "GPL"}

_LICENCE_FILE = re.compile(r"(?:.*[-_.])?(?:LICEN[CS]ES?|COPYING)(?:[-_.].*)?", re.IGNORECASE)
_PYTHONS = ("3.11.0", "3.12.0", "3.13.0")
_PLATFORMS = {
    "linux": ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64"),
    "win32": ("win_amd64",),
    "emscripten": ("any",),
}
"""sys_platform -> tags of wheels."""


@dataclass(frozen=True, slots=True)
class Fact:
    """What is known of one version of a package."""

    spdx: str = ""
    says: str = ""
    carries: tuple[str, ...] = ()
    """GNU licences in its licence files: its own, or that of something its wheel has inside."""
    modules: tuple[str, ...] = ()
    """What is imported from it; only where its licence is one of `STRONG`."""

    @property
    def licence(self) -> Licence:
        """Its licence."""
        return Licence(self.spdx, self.says)


UNREAD = Fact(says="not read yet")

Facts = dict[tuple[str, str], Fact]
"""By name and version."""


def read_facts(file: Path = FILE) -> Facts:
    """Returns the facts that a file holds."""
    if not file.is_file():
        return {}
    facts: Facts = {}
    for key, values in json.loads(file.read_text("utf-8")).items():
        name, _, version = key.partition(" ")
        several: dict[str, Any] = {field: tuple(values.pop(field, ())) for field in ("carries", "modules")}
        facts[name, version] = Fact(**values, **several)
    return facts


def write_facts(facts: Facts, file: Path = FILE) -> None:
    """Writes them down, one line for each version."""
    lines = [
        f"  {json.dumps(' '.join(key))}: {json.dumps({name: value for name, value in asdict(fact).items() if value})}"
        for key, fact in sorted(facts.items())
    ]
    file.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")


def installed() -> Facts:
    """Returns what can be read from the distributions of this environment."""
    modules: dict[str, list[str]] = defaultdict(list)
    for module, names in importlib.metadata.packages_distributions().items():
        for name in set(names):
            modules[canonicalize_name(name)].append(module)
    facts: Facts = {}
    for distribution in importlib.metadata.distributions():
        name = canonicalize_name(distribution.name)
        texts = _licence_texts(distribution)
        licence = _licence(distribution.metadata.json, texts)
        imported = tuple(sorted(modules[name])) if STRONG & set(licence.copyleft) else ()
        facts[name, distribution.version] = Fact(licence.spdx, licence.says, parts(texts.values()), imported)
    return facts


def _licence(metadata: Mapping[str, Any], texts: Mapping[str, str]) -> Licence:
    """Reads metadata in the form of PEP 566: keys in lower case, with underscores."""
    return read_licence(
        expression=metadata.get("license_expression", ""),
        field=metadata.get("license", ""),
        classifiers=metadata.get("classifier", ()),
        texts=texts,
    )


def _licence_texts(distribution: importlib.metadata.Distribution) -> dict[str, str]:
    paths = [path for path in distribution.files or () if _LICENCE_FILE.fullmatch(path.name) and path.suffix != ".py"]
    return {str(path): Path(str(path.locate())).read_text("utf-8", errors="replace") for path in paths}


def gather(rows: Iterable[Row], known: Facts) -> Facts:
    """Returns the facts of all rows: read here, else from the index; licence files that are not here are taken from what was known.

    Raises:
        UserError: pip cannot tell of one that is not installed.
    """
    here = installed()
    facts: Facts = {}
    missing = []
    for row in rows:
        key = row.name, row.version
        if key in here:
            facts[key] = here[key]
        else:
            missing.append(row)
    for key, licence in _from_index(missing).items():
        before = known.get(key, Fact())
        facts[key] = Fact(licence.spdx, licence.says, before.carries, before.modules)
    return facts


def _from_index(rows: Iterable[Row]) -> dict[tuple[str, str], Licence]:
    by_target: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        by_target[_target(row)].append(row)
    licences: dict[tuple[str, str], Licence] = {}
    for (python, platform), group in by_target.items():
        for metadata in _ask_pip(group, python, platform):
            licences[canonicalize_name(metadata["name"]), metadata["version"]] = _licence(metadata, {})
    return licences


def _target(row: Row) -> tuple[str, str]:
    """Returns an interpreter and a system for which a row is meant."""
    for platform in _PLATFORMS:
        for python in _PYTHONS:
            environment = {"sys_platform": platform, "python_full_version": python, "python_version": python[:4]}
            if not row.marker or Marker(row.marker).evaluate(environment):
                return python, platform
    raise UserError(f"{row.name} {row.version} is for none of Python {', '.join(_PYTHONS)}: {row.marker}")


def _ask_pip(rows: Iterable[Row], python: str, platform: str) -> list[Mapping[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--dry-run"]
        command += [
            "--ignore-installed",
            "--no-deps",
            "--only-binary",
            ":all:",
            "--target",
            folder,
            "--report",
            str(report),
        ]
        command += ["--python-version", python, *(part for tag in _PLATFORMS[platform] for part in ("--platform", tag))]
        command += [f"{row.name}=={row.version}" for row in rows]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise UserError(f"pip cannot tell of packages that are not installed here: {done.stderr.strip()[-500:]}")
        return [entry["metadata"] for entry in json.loads(report.read_text("utf-8"))["install"]]
