"""Environments with packages that contradict this project's: made once, in the cache."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from desktop_image.cache import guest_cache_folder
from desktop_image.locks import hold_file


def package_environment(name: str, steps: Sequence[Sequence[str]], *, minutes: float) -> Path:
    """Returns the Python of an environment.

    Args:
        name: Its name in the cache, with what it has and in which version.
        steps: What pip installs, one after the other: its arguments.
        minutes: The longest wait while another makes it.
    """
    folder = guest_cache_folder().parent / name
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = hold_file(folder.with_name(f"{folder.name}.lock"), seconds=60 * minutes)
    assert lock is not None
    try:
        if not (folder / "complete").exists():
            run(sys.executable, "-m", "venv", "--clear", folder)
            for step in steps:
                run(folder / "bin" / "pip", "install", "--no-compile", *step)
            (folder / "complete").touch()
    finally:
        os.close(lock)
    return folder / "bin" / "python"


def run(*command: str | Path, **environment: str) -> str:
    """Returns what a command says; it must succeed.

    Args:
        *command: The command.
        **environment: Variables in addition to this process's, without those of Python.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, check=False, env={**kept, **environment}
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-6000:]
    return done.stdout
