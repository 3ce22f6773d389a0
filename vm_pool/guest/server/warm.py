"""Runs ``python -c "import pyautogui ..."`` in a fork of a process that has done its imports; see `interpreter`."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence

from . import interpreter, processes
from .problems import too_late

PYTHON = "/usr/bin/python3"
START_SECONDS = 5.0

_lock = threading.Lock()
_process: subprocess.Popen[bytes] | None = None
_address = ""


def takes(command: str | Sequence[str], *, shell: bool) -> bool:
    """Whether a command has exactly the shape that is run here."""
    if shell or isinstance(command, str) or len(command) != 3 or command[1] != "-c" or "pyautogui" not in command[2]:
        return False
    if command[0] not in ("python", "python3"):
        return False
    found = shutil.which(command[0])
    return found is not None and os.path.realpath(found) == os.path.realpath(PYTHON)


def run(code: str, seconds: float) -> processes.Done | None:
    """Runs Python code as `processes.run` would; None where there is nobody to run it, and nothing was run.

    Raises:
        Problem: It did not end in time.
    """
    connection = _connect()
    if connection is None:
        return None
    with connection:
        pipes = [os.pipe() for _ in range(2)]
        try:
            content = code.encode()
            ends = [write for _read, write in pipes]
            socket.send_fds(connection, [interpreter.LENGTH.pack(len(content))], ends)
            connection.sendall(content)
            pid = _status(connection)
        except (OSError, EOFError):
            for read, _write in pipes:
                os.close(read)
            return None
        finally:
            for _read, write in pipes:
                os.close(write)
        outputs = [processes.Pipe(os.fdopen(read, "rb", 0)) for read, _write in pipes]
        try:
            connection.settimeout(seconds)
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
        return processes.Done(texts[0], texts[1], code_of_end)


def start() -> None:
    """Starts the interpreter, so that the first command finds it warm."""
    with _lock:
        _start()


def _start() -> None:
    global _process, _address
    listener = socket.socket(socket.AF_UNIX)
    listener.bind("")  # The kernel finds an abstract name; only this guest's own network namespace has it.
    _address = listener.getsockname()
    listener.listen(16)
    with listener:
        _process = subprocess.Popen(  # noqa: S603
            [sys.executable, interpreter.__file__],
            cwd=os.environ["HOME"],
            stdin=listener.fileno(),
            stdout=subprocess.DEVNULL,
        )


def _connect() -> socket.socket | None:
    with _lock:
        if _process is None or _process.poll() is not None:
            _start()
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(START_SECONDS)
    try:
        connection.connect(_address)
    except OSError:
        connection.close()
        return None
    return connection


def _status(connection: socket.socket) -> int:
    content = b""
    while len(content) < interpreter.STATUS.size:
        part = connection.recv(interpreter.STATUS.size - len(content))
        if not part:
            raise EOFError
        content += part
    status: int = interpreter.STATUS.unpack(content)[0]
    return status
