"""Runs a command as the guest's user, with a deadline that holds for everything it starts."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO

from .problems import Problem, bad_request, too_late
from .user import started_by_user

LATE_OUTPUT_SECONDS = 0.5
"""How long to wait for output after a command has ended: a program left in the background may keep its pipes open."""
LARGEST_OUTPUT = 64 * 1024**2


@dataclass(frozen=True, slots=True)
class CompletedCommand:
    """A command that has ended."""

    output: str
    error: str
    returncode: int


def run(
    command: str | Sequence[str], seconds: float, *, shell: bool = False, folder: str | None = None, merge: bool = False
) -> CompletedCommand:
    """Runs a command.

    Args:
        command: A list, or text for the shell.
        seconds: It is killed after this time, with its whole process group.
        shell: Whether a shell reads it.
        folder: Where it runs; default: the user's home.
        merge: Whether its output includes stderr.

    Raises:
        Problem: It cannot be started, or did not end in time.
    """
    process = start(command, shell=shell, folder=folder, stderr=subprocess.STDOUT if merge else subprocess.PIPE)
    pipes = [Pipe(pipe) for pipe in (process.stdout, process.stderr) if pipe is not None]
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        kill(process)
        raise too_late(f"the command did not end within {seconds:g} s and was killed: {shown(command)}") from None
    texts = [pipe.text() for pipe in pipes]
    return CompletedCommand(texts[0], texts[1] if len(texts) > 1 else "", process.returncode)


def start(
    command: str | Sequence[str],
    *,
    shell: bool = False,
    folder: str | None = None,
    stdout: int = subprocess.PIPE,
    stderr: int = subprocess.PIPE,
) -> subprocess.Popen[bytes]:
    """Starts a command in its own process group.

    Raises:
        Problem: It cannot be started.
    """
    try:
        return subprocess.Popen(  # noqa: S603
            command,
            shell=shell,
            cwd=folder or os.environ["HOME"],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
            **started_by_user(),
        )
    except FileNotFoundError as error:
        raise Problem(f"cannot run {shown(command)}: the guest has no program or folder {error.filename}") from error
    except OSError as error:
        raise Problem(f"cannot run {shown(command)}: {error.strerror}") from error
    except ValueError as error:
        raise bad_request(f"cannot run {shown(command)}: {error}") from error


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kills a command and all of its process group."""
    kill_group(process.pid)
    process.wait()


def kill_group(leader: int) -> None:
    """Kills a process group; does nothing when it no longer exists."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def shown(command: str | Sequence[str]) -> str:
    """Returns a command as text for a message."""
    text = command if isinstance(command, str) else " ".join(command)
    return text if len(text) <= 200 else f"{text[:200]}..."


class Pipe:
    """Reads a pipe to its end in its own thread."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe, self._parts, self._size = pipe, list[bytes](), 0
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        descriptor = self._pipe.fileno()
        while part := os.read(descriptor, 65536):
            if self._size < LARGEST_OUTPUT:
                self._parts.append(part)
            self._size += len(part)
        self._pipe.close()

    def text(self) -> str:
        """Returns what has come, once the pipe has ended or `LATE_OUTPUT_SECONDS` have passed."""
        self._thread.join(LATE_OUTPUT_SECONDS)
        return b"".join(list(self._parts)).decode("utf-8", "replace")
