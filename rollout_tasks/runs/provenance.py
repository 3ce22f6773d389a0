"""Records what made a run: this software's version and commit, packages that affect results, the submitting machine."""

from __future__ import annotations

import platform
import socket
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGE = "computer-use-rollouts"
RECORDED = ("celery", "kombu", "redis", "openai", "pydantic", "desktop-env", "rapidfuzz")
_GIT_SECONDS = 5.0


def provenance() -> Mapping[str, Any]:
    """Returns the installed versions; ``commit`` is empty without a checkout, and ends in ``-dirty`` if changed."""
    return {
        "version": _version(PACKAGE),
        "commit": _commit(Path(__file__).resolve().parents[2]),
        "python": platform.python_version(),
        "system": platform.platform(),
        "packages": {name: found for name in RECORDED if (found := _version(name))},
        "submitted_on": socket.gethostname(),
    }


def _version(package: str) -> str:
    with suppress(PackageNotFoundError):
        return version(package)
    return ""


def _commit(folder: Path) -> str:
    if not (folder / ".git").exists():
        return ""
    command = [
        "git",
        "--no-optional-locks",
        "-C",
        str(folder),
        "describe",
        "--always",
        "--dirty",
        "--abbrev=40",
        "--match=",
    ]
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(command, capture_output=True, text=True, timeout=_GIT_SECONDS, check=True)  # noqa: S603
        return done.stdout.strip()
    return ""
