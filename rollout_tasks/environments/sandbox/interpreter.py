"""A sandboxed Python interpreter for one episode: runs code, returns its output, and is stopped if it exceeds a limit.

Its answers count as written by untrusted code: they are limited, parsed with care, and never trusted.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import struct
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from rollout_tasks.environments.sandbox import bubblewrap
from rollout_tasks.environments.sandbox.bubblewrap import SandboxUnavailable
from vm_pool.processes import end_with_children

_PROGRAM = Path(__file__).with_name("program.py")
_READY = b"ready\n"
_CREDENTIALS = struct.Struct("3i")
_NUMBER = struct.Struct("i")
_MAX_REQUEST = 60_000
"""Bytes; less than a socket's buffer, so that sending a request never blocks."""
_MAX_ANSWER = 2_000_000
"""Bytes; `program.py` writes less than six for each character of output."""
_START_SECONDS = 20.0
_END_SECONDS = 10.0
"""From SIGKILL to the end of its last process."""
_LOOK_SECONDS = 0.25
"""How often the files of running code are counted."""


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """What the code of one episode may use."""

    seconds: float = 10.0
    """Wall time of one call."""
    cpu_seconds: int = 120
    """CPU time of the whole episode; stops the code even if this process cannot."""
    memory_bytes: int = 512 * 2**20
    """Address space."""
    scratch_bytes: int = 16 * 2**20
    """All files together."""
    scratch_files: int = 1_000
    output_characters: int = 20_000
    """Of one call."""


@dataclass(frozen=True, slots=True)
class Output:
    """The result of a call's code."""

    ok: bool
    """Whether nothing raised an error."""
    text: str
    not_run: int
    """Expressions after the one that raised."""


class InterpreterStopped(Exception):
    """The interpreter is gone, with its variables; the message says why."""


class CodeRefused(ValueError):
    """The code was not sent; the interpreter still runs."""


class Interpreter:
    """A sandboxed process. It starts at once; callers must always `stop` it."""

    def __init__(self, limits: SandboxLimits | None = None) -> None:
        """Starts it and waits until it is ready.

        Raises:
            SandboxUnavailable: It does not start.
        """
        self._limits = limits or SandboxLimits()
        self._scratch = -1
        self._child = -1
        self._channel, theirs = socket.socketpair()
        self._channel.setblocking(False)
        self._channel.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        with theirs:
            self._process = self._start(theirs)
        try:
            self._welcome()
        except BaseException:
            self.stop()
            raise

    def run(self, expressions: list[str]) -> Output:
        """Runs code in the episode's namespace, in order, up to the first that raises.

        Raises:
            CodeRefused: The code is too long.
            InterpreterStopped: It took too long, died, or sent an invalid answer.
        """
        request = json.dumps(expressions).encode() + b"\n"
        if len(request) > _MAX_REQUEST:
            raise CodeRefused(f"{len(request)} bytes of code are more than the {_MAX_REQUEST} allowed")
        try:
            self._signal(signal.SIGCONT)
            self._send(request)
            output = self._output(self._read_line(self._limits.seconds))
            self._signal(signal.SIGSTOP)  # between calls, alarms and handlers must not run unwatched
        except BaseException:
            self.stop()
            raise
        return output

    def stop(self) -> None:
        """Kills the interpreter with all its processes. Harmless when repeated."""
        try:
            end_with_children(self._process, _END_SECONDS)  # bubblewrap's second process holds the others
        finally:
            if self._process.stderr is not None:
                self._process.stderr.close()
            self._channel.close()
            for descriptor in (self._scratch, self._child):
                if descriptor >= 0:
                    os.close(descriptor)
            self._scratch = self._child = -1

    def _start(self, theirs: socket.socket) -> subprocess.Popen[bytes]:
        limits = self._limits
        sizes = (limits.memory_bytes, limits.cpu_seconds, limits.scratch_bytes, limits.output_characters)
        program = bubblewrap.filter_descriptor()
        try:
            command = bubblewrap.command(
                _PROGRAM,
                [str(size) for size in sizes],
                scratch_bytes=limits.scratch_bytes,
                seccomp_descriptor=program,
            )
            return subprocess.Popen(  # noqa: S603
                command,
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=subprocess.PIPE,
                env={},
                cwd="/",
                pass_fds=(program,),
                start_new_session=True,
            )
        finally:
            os.close(program)

    def _welcome(self) -> None:
        """Receives the greeting, with the scratch folder's descriptor, before any untrusted code runs."""
        poll = select.poll()
        poll.register(self._channel, select.POLLIN)
        greeting = b""
        if poll.poll(_START_SECONDS * 1000):
            room = socket.CMSG_SPACE(_CREDENTIALS.size) + socket.CMSG_SPACE(_NUMBER.size)
            greeting, ancillary, _, _ = self._channel.recvmsg(len(_READY), room)
            for _, kind, content in ancillary:
                if kind == socket.SCM_RIGHTS:
                    (self._scratch,) = _NUMBER.unpack(content)
                elif kind == socket.SCM_CREDENTIALS and greeting == _READY:
                    self._child = os.pidfd_open(_CREDENTIALS.unpack(content)[0])
        if greeting != _READY or self._scratch < 0 or self._child < 0:
            end_with_children(self._process, _END_SECONDS)
            _, printed = self._process.communicate()
            raise SandboxUnavailable(bubblewrap.reason_of(printed.decode(errors="replace")))

    def _signal(self, number: signal.Signals) -> None:
        """Stops or continues the code; a process that has ended is noticed when it does not answer."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._child, number)

    def _send(self, request: bytes) -> None:
        try:
            sent = self._channel.send(request)
        except BlockingIOError:
            sent = 0
        except ConnectionError as error:
            raise InterpreterStopped(self._death()) from error
        if sent != len(request):
            raise InterpreterStopped("it does not read what it is sent")

    def _read_line(self, seconds: float) -> bytes:
        deadline = time.monotonic() + seconds
        poll = select.poll()
        poll.register(self._channel, select.POLLIN)
        received = bytearray()
        while not received.endswith(b"\n"):
            left = deadline - time.monotonic()
            if left <= 0:
                raise InterpreterStopped(f"no result within {seconds:g} s")
            if poll.poll(min(left, _LOOK_SECONDS) * 1000):
                received += self._receive()
            self._check_files()
            if len(received) > _MAX_ANSWER:
                raise InterpreterStopped("it wrote more than an answer may have")
        return bytes(received)

    def _receive(self) -> bytes:
        try:
            piece = self._channel.recv(65_536)
        except ConnectionError:
            piece = b""
        if not piece:
            raise InterpreterStopped(self._death())
        return piece

    def _check_files(self) -> None:
        scratch = os.fstatvfs(self._scratch)
        if scratch.f_files - scratch.f_ffree > self._limits.scratch_files:
            raise InterpreterStopped(f"it made more than {self._limits.scratch_files} files")

    def _output(self, line: bytes) -> Output:
        try:
            match json.loads(line):
                case {"ok": bool(ok), "output": str(text), "not_run": int(not_run)}:
                    return Output(ok, text[: self._limits.output_characters + 100], not_run)
        except (ValueError, RecursionError):
            pass
        raise InterpreterStopped("its answer cannot be read")

    def _death(self) -> str:
        """Returns why the process is gone, as far as its exit status shows."""
        try:
            status = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return "it closed its output"
        if 0 <= status < 128:
            return f"it ended with exit status {status}"
        return (
            f"it was killed by signal {-status if status < 0 else status - 128}"  # bubblewrap itself, or what it runs
        )
