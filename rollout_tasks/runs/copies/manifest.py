"""The manifest of a unit of a copy: an object that is written before the unit's files change, and again when all are there.

    .copied/<unit>.json    {"format": 1, "unit": ..., "complete": ..., "files": {name: {"size": ..., "sha256": ...} or null}}

While it is not complete, the files whose names have null are being written or removed. So whoever goes on after a killed copy knows
each name that may be there, and a reader takes only complete units.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rollout_tasks.errors import UserError
from rollout_tasks.runs.copies.names import belongs, is_unit
from rollout_tasks.strict_json import parse_json

FOLDER = ".copied/"
_SUFFIX = ".json"
_FORMAT = 1
MOST_BYTES = 64 << 20
"""Of one manifest."""
MOST_FILES = 200_000
"""Of one unit."""
_MOST_SIZE = 1 << 44
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class FileFacts:
    """What a file must be."""

    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """Which files a unit has."""

    unit: str
    complete: bool
    files: Mapping[str, FileFacts | None]
    """None for those that are being written or removed."""

    @property
    def known(self) -> dict[str, FileFacts]:
        """The files that are there."""
        return {name: facts for name, facts in self.files.items() if facts is not None}

    def as_bytes(self) -> bytes:
        """Returns the object: the same for the same files."""
        files = {
            name: None if facts is None else {"size": facts.size, "sha256": facts.sha256}
            for name, facts in sorted(self.files.items())
        }
        document = {"format": _FORMAT, "unit": self.unit, "complete": self.complete, "files": files}
        return (json.dumps(document, indent=1) + "\n").encode()


def manifest_name(unit: str) -> str:
    """Returns the name of a unit's manifest."""
    return f"{FOLDER}{unit}{_SUFFIX}"


def unit_of(name: str) -> str | None:
    """Returns the unit whose manifest has a name; None if it is no manifest's."""
    if not name.startswith(FOLDER) or not name.endswith(_SUFFIX):
        return None
    unit = name.removeprefix(FOLDER).removesuffix(_SUFFIX)
    return unit if is_unit(unit) else None


def parsed(unit: str, content: bytes) -> Manifest:
    """Reads a manifest, which may be anybody's.

    Args:
        unit: The unit by the manifest's name.
        content: The object.

    Raises:
        ValueError: It is not a manifest of that unit, or names a file that the unit cannot have; says what is wrong.
        UserError: Another version made it.
    """
    if len(content) > MOST_BYTES:
        raise ValueError(f"is longer than {MOST_BYTES >> 20} MiB")
    try:
        document = parse_json(content.decode())
    except RecursionError as error:
        raise ValueError("is nested too deeply") from error
    if not isinstance(document, dict) or document.get("unit") != unit:
        raise ValueError("is not the manifest of its unit")
    if document.get("format") != _FORMAT:
        raise UserError(
            f"the copy's manifest of {unit} has another format than this version knows: use the one that made it"
        )
    files, complete = document.get("files"), document.get("complete")
    if not isinstance(files, dict) or not isinstance(complete, bool) or len(files) > MOST_FILES:
        raise ValueError("has no list of files")
    found = {name: _facts(name, facts) for name, facts in files.items()}
    for name, facts in found.items():
        if not belongs(name, unit):
            raise ValueError(f"names a file that cannot be there: {name[:200]!r}")
        if facts is None and complete:
            raise ValueError(f"is complete, but says nothing of {name[:200]!r}")
    _check_folders(found)
    return Manifest(unit, complete, found)


def _facts(name: str, facts: Any) -> FileFacts | None:
    if facts is None:
        return None
    if isinstance(facts, dict):
        size, sha256 = facts.get("size"), facts.get("sha256")
        if type(size) is int and 0 <= size <= _MOST_SIZE and isinstance(sha256, str) and _SHA256.fullmatch(sha256):
            return FileFacts(size, sha256)
    raise ValueError(f"has no size and SHA-256 of {name[:200]!r}")


def _check_folders(files: Mapping[str, object]) -> None:
    """Checks that nothing is both a file and a folder."""
    for name in files:
        above = name.rpartition("/")[0]
        while above:
            if above in files:
                raise ValueError(f"has {above[:200]!r} both as a file and as a folder")
            above = above.rpartition("/")[0]
