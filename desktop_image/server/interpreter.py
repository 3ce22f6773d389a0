"""A Python process that has done its imports and runs code in forks of itself; started by `warm`.

Every action of ``desktop-env`` is a ``python -c "import pyautogui; ..."``, which spends most of its time importing. This
process belongs to root, so that no program of the user can take its place. A fork of it becomes the user's and runs the
same code with the same output, exit code and environment. Modules that connect to the display are imported by the fork.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import select
import signal
import socket
import struct
import sys
import time
import types
from types import TracebackType
from typing import Any

PRELOADED = (
    *("PIL.Image", "PIL.ImageGrab", "PIL.ImageOps", "PIL.PngImagePlugin", "Xlib.XK", "Xlib.display", "Xlib.ext.xtest"),
    *(
        "ctypes",
        "datetime",
        "platform",
        "pymsgbox",
        "pyperclip",
        "pyscreeze",
        "pytweening",
        "subprocess",
        "tkinter.ttk",
    ),
    *("Xlib.support.unix_connect", "Xlib.xauth", "Xlib.keysymdef.latin1", "Xlib.keysymdef.miscellany", "webbrowser"),
)
LENGTH = struct.Struct("<I")
STATUS = struct.Struct("<i")
ASKED = b"?"
"""Comes with three descriptors: a socket that brings the code, once this is sent back on it, and two outputs."""
PR_SET_DUMPABLE = 4
CLICK_GAP_SECONDS = 0.05
"""Shortest time between two clicks. The window manager sees each before the window does; on a busy machine, a click that
comes while it handles the one before is sometimes lost."""
CLICKING = (1, 2, 3)
"""The buttons that the window manager sees; wheels are not among them."""


def main() -> None:
    """Serves the socket that is standard input until its other end closes; in a fork, runs the requested code.

    Its arguments are the user's id, group and groups.
    """
    uid, gid = int(sys.argv[1]), int(sys.argv[2])
    groups = [int(group) for group in sys.argv[3].split(",")]
    line = socket.socket(fileno=os.dup(0))
    _let_be_traced(0)
    for name in PRELOADED:
        importlib.import_module(name)
    _space_clicks()
    gc.collect()
    gc.freeze()
    code, outputs = _serve(line)
    _become_command(outputs)
    os.setgroups(groups)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    _let_be_traced(1)
    sys.dont_write_bytecode = False
    os.chdir(os.environ["HOME"])
    sys.path.insert(0, "")  # As it is for ``python -c``.
    _run(code)


def _space_clicks() -> None:
    """Makes pyautogui, which clicks through this function, leave a gap between clicks, as people do."""
    xtest = sys.modules["Xlib.ext.xtest"]
    send, press, release = xtest.fake_input, sys.modules["Xlib.X"].ButtonPress, sys.modules["Xlib.X"].ButtonRelease
    released = -CLICK_GAP_SECONDS

    def fake_input(display: Any, event_type: int, detail: int = 0, *rest: Any, **named: Any) -> None:
        nonlocal released
        if event_type == press and detail in CLICKING:
            time.sleep(max(0.0, released + CLICK_GAP_SECONDS - time.monotonic()))
        send(display, event_type, detail, *rest, **named)
        if event_type == release and detail in CLICKING:
            released = time.monotonic()

    xtest.fake_input = fake_input  # type: ignore[attr-defined]


def _serve(line: socket.socket) -> tuple[str, list[int]]:
    """Forks for every request; returns in the fork, with the code to run and its outputs."""
    running: dict[int, tuple[int, socket.socket]] = {}
    poll = select.poll()
    poll.register(line, select.POLLIN)
    while True:
        for descriptor, _event in poll.poll():
            if descriptor in running:
                pid, connection = running.pop(descriptor)
                poll.unregister(descriptor)
                os.close(descriptor)
                _report(connection, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
                continue
            asked, descriptors, _flags, _address = socket.recv_fds(line, len(ASKED), 3)
            if not asked:
                os._exit(0)
            connection, outputs = socket.socket(fileno=descriptors[0]), descriptors[1:]
            try:
                code = _receive(connection)
            except (OSError, EOFError):  # the caller has stopped waiting
                connection.close()
            else:
                pid = os.fork()
                if pid == 0:
                    for opened in (connection, line, *(one for _pid, one in running.values())):
                        opened.detach()
                    return code, outputs
                with contextlib.suppress(OSError):
                    connection.sendall(STATUS.pack(pid))
                waiting = os.pidfd_open(pid)
                running[waiting] = (pid, connection)
                poll.register(waiting, select.POLLIN)
            for output in outputs:
                os.close(output)


def _receive(connection: socket.socket) -> str:
    connection.sendall(ASKED)
    (length,) = LENGTH.unpack(_received(connection, LENGTH.size))
    return _received(connection, length).decode()


def _received(connection: socket.socket, length: int) -> bytes:
    content = bytearray()
    while len(content) < length:
        part = connection.recv(min(length - len(content), 65536))
        if not part:
            raise EOFError
        content += part
    return bytes(content)


def _report(connection: socket.socket, code: int) -> None:
    # The caller may have stopped waiting.
    with contextlib.suppress(OSError):
        connection.sendall(STATUS.pack(code))
    connection.close()


def _become_command(outputs: list[int]) -> None:
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDONLY)
    for descriptor, goal in zip((nothing, *outputs), (0, 1, 2), strict=True):
        os.dup2(descriptor, goal)
    os.closerange(3, 65536)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _let_be_traced(how: int) -> None:
    """Sets whether (1) or not (0) processes of the same user, and the process itself, may read its memory."""
    if ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, how, 0, 0, 0) != 0:
        raise OSError("a process cannot say who may trace it")


def _run(code: str) -> None:
    sys.argv = ["-c"]
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    sys.excepthook = _excepthook
    exec(compile(code, "<string>", "exec", dont_inherit=True), module.__dict__)  # noqa: S102


def _excepthook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Shows a traceback without this module, as a separate interpreter would."""
    while trace is not None and trace.tb_frame.f_code.co_filename != "<string>":
        trace = trace.tb_next
    sys.__excepthook__(kind, error.with_traceback(trace), trace)


if __name__ == "__main__":
    main()
