"""The folder of this project's caches and working files, one for each user."""

from __future__ import annotations

import os
from pathlib import Path


def user_cache_folder() -> Path:
    """Returns this user's folder; it may not exist yet.

    Raises:
        OSError: This user has no home.
    """
    try:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError as error:
        raise OSError("this user has no home for a cache: set HOME or XDG_CACHE_HOME") from error
    return Path(base) / "computer-use-rollouts"
