"""Runs the programs that a build needs: they hold the build's locks until they end, and one sentence says why one failed."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from desktop_image import build_locks
from desktop_image.errors import GuestBuildError


def call(
    command: Sequence[str],
    failure: str,
    *,
    folder: Path | None = None,
    descriptors: Sequence[int] = (),
    variables: Mapping[str, str] | None = None,
) -> None:
    """Runs a program to its end.

    Args:
        command: The program and its arguments.
        failure: The beginning of the message if it fails.
        folder: Its working folder.
        descriptors: Open files that it inherits.
        variables: Added to its environment.

    Raises:
        GuestBuildError: It failed.
    """
    done = subprocess.run(  # noqa: S603
        command,
        cwd=folder,
        env={**os.environ, **(variables or {})},
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        pass_fds=(*descriptors, *build_locks.descriptors()),
    )
    if done.returncode:
        raise GuestBuildError(f"{failure}: {_reason(done)}")


@contextmanager
def running(
    command: Sequence[str], *, folder: Path | None = None, stdin: IO[str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """Runs a program while the body reads its ``stdout``, which has its errors, too; it is killed if the body fails.

    Args:
        command: The program and its arguments.
        folder: Its working folder.
        stdin: An open file that it reads.
    """
    with subprocess.Popen(  # noqa: S603
        command,
        cwd=folder,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        pass_fds=build_locks.descriptors(),
    ) as program:
        try:
            yield program
        except BaseException:
            program.kill()
            raise


def _reason(done: subprocess.CompletedProcess[str]) -> str:
    """Why a program failed, in its own words: of apt's, only those that are marked as errors."""
    said = [line for line in done.stderr.splitlines() if line.startswith("E: ")] or [done.stderr or done.stdout]
    return " ".join(" ".join(said).split())[-500:] or f"exit code {done.returncode}"
