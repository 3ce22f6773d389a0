"""Paths in a folder that somebody is changing meanwhile."""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from pathlib import Path


def paths_below(folder: Path, pattern: str) -> list[Path]:
    """All files and folders below a folder whose names fit; what vanishes meanwhile is passed over, unlike by `Path.rglob`."""
    return [
        Path(parent, name)
        for parent, folders, files in os.walk(folder)
        for name in (*folders, *files)
        if fnmatchcase(name, pattern)
    ]
