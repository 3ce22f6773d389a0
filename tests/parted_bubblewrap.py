"""A bubblewrap of which one process ends and the other does not, as when it is killed at certain moments of its start."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest


def put_parted_bubblewrap(folder: Path, monkeypatch: pytest.MonkeyPatch, *, hangs: bool = False) -> None:
    """Puts it on the path.

    Args:
        folder: Where the program is written.
        monkeypatch: Restores the path.
        hangs: Whether it starts nothing and never ends.
    """
    real = shutil.which("bwrap")
    if real is None or os.geteuid() != 0:
        pytest.skip("needs bubblewrap, and root for another namespace of processes")
    run = "perl -e 'sleep 1000' --" if hangs else real
    folder.mkdir()
    program = folder / "bwrap"
    program.write_text(
        '#!/bin/sh\nfor word; do shift; [ "$word" = --die-with-parent ] || set -- "$@" "$word"; done\n'
        f'exec unshare --pid --fork {run} "$@"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
