"""The program inside the sandbox: runs code in one namespace; reads and answers with lines of JSON.

It shares its process with untrusted code, so it protects nothing: the sandbox around it does, and the reader of its
answers trusts nothing. It imports nothing of this project.
"""

from __future__ import annotations

import _socket
import ast
import io
import json
import linecache
import os
import resource
import struct
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from typing import Any


class Captured(io.TextIOBase):
    """Keeps the first characters written, and counts the rest."""

    def __init__(self, limit: int) -> None:
        self._pieces: list[str] = []
        self._room = limit
        self._dropped = 0

    def write(self, text: str) -> int:
        """See `io.TextIOBase`."""
        kept = text[: self._room]
        self._room -= len(kept)
        self._dropped += len(text) - len(kept)
        if kept:
            self._pieces.append(kept)
        return len(text)

    def writable(self) -> bool:
        """Returns True."""
        return True

    def text(self) -> str:
        """Returns the characters kept, and how many were cut off."""
        cut = f"\n... {self._dropped} more characters cut off" if self._dropped else ""
        return "".join(self._pieces) + cut


class CodeSession:
    """Runs an episode's code in one namespace."""

    def __init__(self, max_output: int) -> None:
        self._namespace: dict[str, Any] = {"__name__": "__main__"}
        self._max_output = max_output
        self._count = 0

    def run(self, expressions: list[str]) -> dict[str, Any]:
        """Runs expressions in order up to the first that raises; its traceback ends the output."""
        output = Captured(self._max_output)
        with redirect_stdout(output), redirect_stderr(output):
            for done, code in enumerate(expressions, start=1):
                try:
                    self._run_one(code)
                except BaseException as error:  # noqa: BLE001  its code may raise anything, SystemExit included
                    output.write("".join(_traceback(error)))
                    return {"ok": False, "output": output.text(), "not_run": len(expressions) - done}
        return {"ok": True, "output": output.text(), "not_run": 0}

    def _run_one(self, code: str) -> None:
        self._count += 1
        name = f"<expression {self._count}>"
        linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
        body = ast.parse(code, name)
        last = body.body.pop() if body.body and isinstance(body.body[-1], ast.Expr) else None
        exec(compile(body, name, "exec", dont_inherit=True), self._namespace)  # noqa: S102
        if isinstance(last, ast.Expr):
            expression = compile(ast.Expression(last.value), name, "eval", dont_inherit=True)
            value = eval(expression, self._namespace)  # noqa: S307
            if value is not None:
                self._namespace["_"] = value
                print(repr(value))  # noqa: T201


def _traceback(error: BaseException) -> Iterator[str]:
    """Yields the traceback without the frames of this program."""
    import traceback  # here, because it takes a millisecond of each start

    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    if isinstance(error, SyntaxError):
        trace = None
    return traceback.TracebackException(type(error), error, trace, limit=-20).format()


def _limit(memory: int, cpu: int, file: int) -> None:
    limits = {
        resource.RLIMIT_AS: memory,
        resource.RLIMIT_CPU: cpu,
        resource.RLIMIT_FSIZE: file,
        resource.RLIMIT_NOFILE: 64,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
        resource.RLIMIT_SIGPENDING: 64,
    }
    for kind, most in limits.items():
        resource.setrlimit(kind, (most, most))


def _greet() -> None:
    """Tells the parent that the program is ready, and passes it the working folder, whose files it counts."""
    here = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
    channel = _socket.socket(fileno=0)
    channel.sendmsg([b"ready\n"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, struct.pack("i", here))])
    channel.detach()
    os.close(here)


def _disconnect_standard_streams() -> None:
    """Makes reading standard input end at once, and writing to the standard streams, past `sys.stdout`, fail."""
    ended, writer = os.pipe()
    reader, broken = os.pipe()
    os.close(writer)
    os.close(reader)
    os.dup2(ended, 0)
    os.dup2(broken, 1)
    os.dup2(broken, 2)
    os.close(ended)
    os.close(broken)


def main() -> None:
    """Serves requests from standard input, a socket, until its end.

    Arguments: bytes of memory, seconds of CPU, bytes of a file, characters of output.
    """
    memory, cpu, file, max_output = map(int, sys.argv[1:])
    del sys.argv[1:]
    _limit(memory, cpu, file)
    _greet()
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(0), "wb")
    _disconnect_standard_streams()
    session = CodeSession(max_output)
    for request in requests:
        answers.write(json.dumps(session.run(json.loads(request))).encode() + b"\n")
        answers.flush()


if __name__ == "__main__":
    main()
