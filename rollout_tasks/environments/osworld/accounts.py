"""The accounts that a task's cell gets: the settings that the task names, and the hosts that they are for.

Settings are the user's files below the folder that a worker runs in, where OSWorld's tasks expect them. A cell gets
only the settings that its task names.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rollout_tasks.environments.osworld.task import ACCOUNTS, getters_of, steps_of
from rollout_tasks.environments.osworld.vm_requests import PROXY_VARIABLE

GOOGLE_HOSTS = ("www.googleapis.com", "oauth2.googleapis.com", "accounts.google.com")
DRIVE_SETTINGS = f"{ACCOUNTS}googledrive/settings.yml"
"""What desktop-env uses if a task names no settings."""
PROXY_SETTINGS = f"{ACCOUNTS}proxy/proxies.json"
"""Where a cell finds the worker's proxies."""
_DRIVE = frozenset({"googledrive", "googledrive_file"})
MOST_BYTES = 1 << 20
_MOST_FILES = 50


@dataclass(frozen=True, slots=True)
class Accounts:
    """The accounts of one task."""

    files: Mapping[str, str]
    """Text by path; paths are relative to the working folder."""
    hosts: tuple[str, ...] = ()
    """Hosts that are reached by name, at port 443."""


def accounts_of(task: Mapping[str, Any], *, proxy: bool) -> Accounts:
    """Returns the accounts that a task uses.

    Args:
        task: As `task_config` makes it, which has checked the paths.
        proxy: Whether its browser goes through one of the worker's proxies.
    """
    files: dict[str, str] = {}
    drive = False
    for kind, parameters in _parts(task):
        named = parameters.get("settings_file")
        if kind in _DRIVE:
            drive = True
            for path in sorted(Path(named or DRIVE_SETTINGS).parent.iterdir() if Path(ACCOUNTS).is_dir() else []):
                _add(files, path)
        elif named:
            _add(files, Path(named))
    if proxy:
        files[PROXY_SETTINGS] = Path(os.environ[PROXY_VARIABLE]).read_text(encoding="utf-8")
    return Accounts(files, GOOGLE_HOSTS if drive else ())


def _parts(task: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for step in steps_of(task):
        yield step["type"], step["parameters"]
    for getter in getters_of(task["evaluator"]):
        yield getter["type"], getter


def _add(files: dict[str, str], path: Path) -> None:
    """Adds a settings file unless it is missing, too large or one too many: the code that reads it reports that."""
    if len(files) < _MOST_FILES and path.is_file() and path.stat().st_size <= MOST_BYTES:
        files[str(path)] = path.read_text(encoding="utf-8", errors="replace")
