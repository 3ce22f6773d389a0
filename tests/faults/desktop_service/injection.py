"""Loaded into the service's processes: counts their messages and calls, and lets one of them meet its fault.

A file says which: who is at which point for the how-manieth time, and what happens to whom. Processes note the points they pass.
"""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from rollout_tasks.cells.channel import MessageChannel

VARIABLE = "DESKTOP_SERVICE_FAULTS"
"""The folder of `armed.json`, `passed` and `pids`."""
RECORDS = "/leases/"
"""Part of the path of every file that the service writes."""
CODE = f"from {__name__} import begin\nbegin()\n"
"""What a `sitecustomize.py` has to say."""
_HEADER_BYTES = 5
"""Of a message of `MessageChannel`."""
_FORK_SECONDS = 1.0
_NUMBERS = re.compile(r"\d+")


class _Injection:
    """One process's part."""

    def __init__(self, folder: Path, role: str) -> None:
        self._folder = folder
        self._open, self._write = os.open, os.write
        self._lock = threading.RLock()
        self.is_now(role)
        os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        self._lock = threading.RLock()
        if self._role == "spawner":
            self.is_now("session")

    def is_now(self, role: str) -> None:
        """Notes which process this is."""
        self._role = role
        self._play = ""
        self._counts: Counter[str] = Counter()
        self._note("pids", f"{role} {os.getpid()}\n")

    def _note(self, name: str, line: str) -> None:
        file = self._open(self._folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._write(file, line.encode())
        os.close(file)

    def pass_by(self, point: str) -> None:
        """Counts one point, and carries out the fault that is meant for it.

        Raises:
            OSError: The fault is an error.
        """
        with self._lock:
            armed = self._armed()
            if armed["play"] != self._play:
                self._play = armed["play"]
                self._counts.clear()
            self._counts[point] += 1
            number = self._counts[point]
            self._note("passed", json.dumps([armed["play"], self._role, point, number]) + "\n")
            if [armed.get("role"), armed.get("point"), armed.get("number")] != [self._role, point, number]:
                return
            if self._role == "session" and os.getpid() not in self._pids("session", armed["processes"]):
                return  # another's lease is late
            try:
                os.close(self._open(self._folder / f"met-{self._play}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
            except FileExistsError:  # by the process that came after the one that was killed
                return
        self._carry_out(armed["what"], armed["whom"], armed["processes"])

    def _armed(self) -> dict[str, Any]:
        armed: dict[str, Any] = json.loads((self._folder / "armed.json").read_bytes())
        return armed

    def _carry_out(self, what: str, whom: str, earlier: int) -> None:
        if not what.startswith("SIG"):
            number = getattr(errno, what)
            raise OSError(number, os.strerror(number))
        deadline = time.monotonic() + _FORK_SECONDS
        while not (pids := self._pids(whom, earlier)) and time.monotonic() < deadline:
            time.sleep(0.01)  # the play's own session is about to be forked
        if pids:
            with suppress(ProcessLookupError):
                os.kill(pids[-1], signal.Signals[what])

    def _pids(self, role: str, earlier: int) -> list[int]:
        """Returns the processes with a role that are there; of sessions those alone that began after so many, in this play."""
        lines = [line.split() for line in (self._folder / "pids").read_text(encoding="utf-8").splitlines()]
        with_role = (pid for of, pid in (lines[earlier:] if role == "session" else lines) if of == role)
        return [int(pid) for pid in with_role if Path(f"/proc/{pid}/exe").exists()]


def begin() -> None:
    """Begins, in a process whose environment says where."""
    folder = os.environ.get(VARIABLE)
    arguments = " ".join(sys.orig_argv)
    if not folder:
        return
    if "session_spawner" in arguments:
        role = "spawner"
    elif "desktops serve" in arguments:
        role = "service"
    else:
        return
    injection = _Injection(Path(folder), role)
    _watch_messages(injection)
    _watch_files(injection)
    _watch_spawning(injection)


def _watch_messages(injection: _Injection) -> None:
    send, send_at_once, receive = MessageChannel.send, MessageChannel.send_at_once, MessageChannel.receive

    def sending(self: MessageChannel, message: dict[str, Any], *content: Any) -> None:
        injection.pass_by(f"before sending {_name_of(message)}")
        send(self, message, *content)
        injection.pass_by(f"after sending {_name_of(message)}")

    def sending_at_once(self: MessageChannel, frame: bytes) -> bytes:
        name = _name_of(json.loads(frame[_HEADER_BYTES:]))
        injection.pass_by(f"before sending {name}")
        rest = send_at_once(self, frame)
        injection.pass_by(f"after sending {name}")
        return rest

    def receiving(self: MessageChannel, *take: Any) -> dict[str, Any]:
        message = receive(self, *take)
        injection.pass_by(f"taking {_name_of(message)}")
        return message

    MessageChannel.send = sending  # type: ignore[method-assign,assignment]
    MessageChannel.send_at_once = sending_at_once  # type: ignore[method-assign]
    MessageChannel.receive = receiving  # type: ignore[method-assign,assignment]


def _name_of(message: dict[str, Any]) -> str:
    if "reply" in message:
        return "reply"
    return str(message.get("event") or message.get("call") or "order")


def _watch_files(injection: _Injection) -> None:
    def watch(name: str) -> None:
        call = getattr(os, name)

        def watched(first: Any, *others: Any, **named: Any) -> Any:
            path = _path_of(first)
            if RECORDS in path:
                injection.pass_by(f"{name} {_NUMBERS.sub('N', Path(path).name) if path.count('.') else 'folder'}")
            return call(first, *others, **named)

        setattr(os, name, watched)

    for name in ("open", "mkdir", "write", "fsync", "replace", "rename"):
        watch(name)


def _path_of(first: Any) -> str:
    if not isinstance(first, int):
        return os.fspath(first) if isinstance(first, str | os.PathLike) else ""
    try:
        return str(Path(f"/proc/self/fd/{first}").readlink())
    except OSError:
        return ""


def _watch_spawning(injection: _Injection) -> None:
    def watch(module: Any, name: str) -> None:
        call: Callable[..., Any] = getattr(module, name)

        def watched(*arguments: Any, **named: Any) -> Any:
            injection.pass_by(f"before {name}")
            result = call(*arguments, **named)
            injection.pass_by(f"after {name}")
            return result

        setattr(module, name, watched)

    for name in ("socketpair", "send_fds", "recv_fds"):
        watch(socket, name)
    watch(os, "pidfd_open")
    watch(os, "fork")
