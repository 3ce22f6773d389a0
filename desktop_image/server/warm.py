"""Runs ``python -c "import pyautogui ..."`` in a fork of a process that has done its imports; see `interpreter`."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Sequence

from . import interpreter, processes
from .problems import Problem, too_late
from .user import the_user

PYTHON = "/usr/bin/python3"
START_SECONDS = 5.0

_lock = threading.Lock()
_process: subprocess.Popen[bytes] | None = None
_line: socket.socket | None = None
"""The connection to the interpreter, and to nothing else: it carries the requests to run code."""


def takes(command: str | Sequence[str], *, shell: bool) -> bool:
    """Whether a command has exactly the form that is run here."""
    if shell or isinstance(command, str) or len(command) != 3 or command[1] != "-c" or "pyautogui" not in command[2]:
        return False
    if command[0] not in ("python", "python3"):
        return False
    found = shutil.which(command[0])
    return found is not None and os.path.realpath(found) == os.path.realpath(PYTHON)


def run(code: str, seconds: float) -> processes.CompletedCommand | None:
    """Runs Python code as `processes.run` would; returns None when there is no interpreter and nothing was run.

    Raises:
        Problem: It did not end in time, or it is not known whether it ran: the caller must not try again.
    """
    content = code.encode()
    pipes = [os.pipe() for _ in range(2)]
    connection, other_end = socket.socketpair()
    with connection:
        try:
            with other_end:
                _hand_over([other_end.fileno(), *(write for _read, write in pipes)])
            connection.settimeout(START_SECONDS)
            if connection.recv(1) != interpreter.ASKED:
                raise EOFError
            connection.settimeout(seconds)
            connection.sendall(interpreter.LENGTH.pack(len(content)) + content)
        except (OSError, EOFError):
            for read, _write in pipes:
                os.close(read)
            return None
        finally:
            for _read, write in pipes:
                os.close(write)
        outputs = [processes.Pipe(os.fdopen(read, "rb", 0)) for read, _write in pipes]
        try:
            pid = _status(connection)
        except (OSError, EOFError):  # it has received all the code, so it may have begun
            raise Problem(
                f"the interpreter gave no sign, so whether the command ran is not known: {processes.shown(code)}"
            ) from None
        try:
            code_of_end = _status(connection)
        except TimeoutError:
            processes.kill_group(pid)
            raise too_late(
                f"the command did not end within {seconds:g} s and was killed: {processes.shown(code)}"
            ) from None
        except (OSError, EOFError):
            processes.kill_group(pid)
            code_of_end = -9
        texts = [output.text() for output in outputs]
        return processes.CompletedCommand(texts[0], texts[1], code_of_end)


def start() -> None:
    """Starts the interpreter, so that it is warm for the first command."""
    with _lock:
        _start()


def _start() -> None:
    global _process, _line
    if _line is not None:
        _line.close()
    _line, other_end = socket.socketpair()
    _line.settimeout(START_SECONDS)
    user = the_user()
    groups = ",".join(map(str, user.groups))
    with other_end:
        _process = subprocess.Popen(  # noqa: S603
            # It imports nothing of the user's: it is root until it has forked.
            [PYTHON, "-I", "-B", "-u", interpreter.__file__, str(user.uid), str(user.gid), groups],
            cwd="/",
            env=user.environment,
            stdin=other_end.fileno(),
            stdout=subprocess.DEVNULL,
        )


def _hand_over(descriptors: Sequence[int]) -> None:
    """Gives the interpreter one thing to run at a time.

    Raises:
        OSError: The interpreter does not exist, or takes nothing.
    """
    with _lock:
        if _process is None or _process.poll() is not None:
            _start()
        if _line is not None:
            socket.send_fds(_line, [interpreter.ASKED], descriptors)


def _status(connection: socket.socket) -> int:
    content = b""
    while len(content) < interpreter.STATUS.size:
        part = connection.recv(interpreter.STATUS.size - len(content))
        if not part:
            raise EOFError
        content += part
    status: int = interpreter.STATUS.unpack(content)[0]
    return status
