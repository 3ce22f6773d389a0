"""Releases of Debian or a similar distribution, and where their packages come from."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SUITE = "bookworm"
"""The release of the project's own images."""
_FIELDS = ("REPO_URI", "RELEASE", "COMPONENT", "ORIGIN")
_PARTS = ("", "updates", "security")
"""Parts of a release in Debian's archives, such as ``bookworm-updates``."""


@dataclass(frozen=True, slots=True)
class Release:
    """The release that a guest's packages come from."""

    suite: str = SUITE
    mirror: str = ""
    """An archive's address, followed by components unless only ``main`` is wanted; empty: this machine's archives."""
    keyring: Path | None = None
    """Keys that sign the archive's lists; None for those that this machine trusts."""

    def sources(self) -> str:
        """Returns the lines of a sources.list; empty when this machine knows no archive with the release."""
        if self.mirror:
            address, *components = self.mirror.split()
            signed = f"[signed-by={self.keyring}] " if self.keyring else ""
            return f"deb {signed}{address} {self.suite} {' '.join(components) or 'main'}\n"
        return "".join(f"deb {address} {suite} main\n" for address, suite in _archives_here(self.suite))


BOOKWORM = Release()


def _archives_here(suite: str) -> Sequence[tuple[str, str]]:
    """Returns this machine's Debian archives with the release's parts; it may run another release itself."""
    listing = subprocess.run(  # noqa: S603
        ["apt-get", "indextargets", "--format", "|".join(f"$({field})" for field in _FIELDS), "Created-By: Packages"],  # noqa: S607
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    known = [line.split("|") for line in sorted(set(listing.splitlines())) if line.count("|") == len(_FIELDS) - 1]
    found = []
    for address, release, component, origin in known:
        base, _, part = release.partition("-")
        if component == "main" and (base == suite or origin == "Debian") and part in _PARTS:
            found.append((address, f"{suite}-{part}" if part else suite))
    return found if any(release == suite for _, release in found) else []
