"""Turning a fork into one of the commands. It imports nothing of ours, nor pytest: each fork would pay for that."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path


def become_command(
    words: Sequence[str], folder: Path, environment: Mapping[str, str], stdout: str, stderr: str
) -> None:
    """Goes on as ``python SCRIPT ARGUMENTS`` would, in a folder, with the outputs going to two files."""
    for number, path in enumerate([os.devnull, stdout, stderr]):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(number, mode) for number, mode in enumerate("rww"))
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = list(words)
    sys.path[0] = str(Path(words[0]).parent)
    runpy.run_path(words[0], run_name="__main__")
