"""Starts sessions' processes, by forking a process that has imported what sessions need: `python -m ...session_spawner`.

    the program -> spawner: one byte with the session's end of a channel
    spawner -> the program: one byte with a descriptor of the session's process, by which it can be waited for and killed

The spawner ends when the program does, after its sessions.
"""

from __future__ import annotations

import gc
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import NoReturn

from rollout_tasks.cells.channel import MessageChannel
from rollout_tasks.errors import UserError

logger = logging.getLogger(__name__)

_START_SECONDS = 180.0
"""How long the spawner may take to import what it needs, and to fork for the first time."""
_FORK_SECONDS = 20.0
"""How long it may take for each further process; if it takes longer, it or the machine is stuck, and it is replaced."""
_LAST_SESSIONS_SECONDS = 75.0
"""How long its sessions may take to end once the program is gone: longer than a hurried cleanup and its grace."""
_LOOK_SECONDS = 0.2
_END_SECONDS = 5.0


class SpawnedProcess:
    """A session's process, as the program holds it. Threads may share it."""

    def __init__(self, channel: MessageChannel, descriptor: int) -> None:
        """Takes over a process.

        Args:
            channel: Leads to it.
            descriptor: Its own (a pidfd), by which it is never mistaken for another one.
        """
        self.channel = channel
        self._descriptor = descriptor
        self._lock = threading.Lock()

    def kill(self) -> None:
        """Kills it, if it has not ended."""
        with self._lock, suppress(ProcessLookupError):
            if self._descriptor >= 0:
                signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)

    def close(self, seconds: float) -> None:
        """Waits until it has ended, kills it if that takes longer than `seconds`, and closes the channel."""
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        if not poll.poll(seconds * 1000):
            self.kill()
        with self._lock:
            os.close(self._descriptor)
            self._descriptor = -1
        self.channel.close()


class SessionSpawner:
    """The spawner, for the program that starts it. Threads may share it."""

    def __init__(self, environments: Iterable[str]) -> None:
        """Starts nothing yet.

        Args:
            environments: The environments that sessions will use; they are loaded once, before the first session.
        """
        self._environments = sorted(environments)
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket

    def start(self) -> None:
        """Starts it, or another one if the last has ended. It imports on while this returns."""
        with self._lock:
            self._start()

    def spawn(self) -> SpawnedProcess:
        """Starts a session's process, which waits for its order.

        Raises:
            UserError: It cannot be started.
        """
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            raise _not_started(error) from error
        with self._lock, theirs:
            try:
                self._start()
                socket.send_fds(self._control, [b"f"], [theirs.fileno()])
                answer, descriptors, _, _ = socket.recv_fds(self._control, 1, 1)
                self._control.settimeout(_FORK_SECONDS)
            except OSError as error:
                logger.warning("what starts sessions' processes is replaced: %s", error)
                ours.close()
                self._end()
                raise _not_started(error) from error
            if not answer or not descriptors:
                ours.close()
                self._end()
                raise UserError("a session's process cannot be started: what starts them has ended; see the log")
        return SpawnedProcess(MessageChannel(ours), descriptors[0])

    def close(self) -> None:
        """Ends it; its sessions must have ended before."""
        with self._lock:
            self._end()

    def _start(self) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        self._end()
        self._control, theirs = socket.socketpair()
        self._control.settimeout(_START_SECONDS)
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-P", "-m", __name__, str(theirs.fileno()), *self._environments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                env={name: value for name, value in os.environ.items() if name != "ROLLOUT_SERVICE_TOKENS"},
                start_new_session=True,  # a Ctrl-C is for the program, which then ends its sessions in order
            )

    def _end(self) -> None:
        if self._process is None:
            return
        self._control.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None


def _not_started(error: OSError) -> UserError:
    return UserError(f"a session's process cannot be started: {error.strerror or error}")


class _Spawner:
    """The spawner's own side."""

    def __init__(self, control: socket.socket, serve: Callable[[socket.socket], None]) -> None:
        self._control = control
        self._serve = serve
        self._sessions: set[int] = set()

    def run(self) -> None:
        """Forks a process for each byte that comes, until nobody can send any more."""
        while self._wanted():
            self._reap()
        self._control.close()  # whoever waits for an answer, as after a fork that failed, need not wait any longer
        deadline = time.monotonic() + _LAST_SESSIONS_SECONDS
        while self._reap() and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)

    def _wanted(self) -> bool:
        """Waits a moment for a request and carries it out; returns whether there may be others."""
        if not select.select([self._control], [], [], _LOOK_SECONDS)[0]:
            return True
        try:
            word, descriptors, _, _ = socket.recv_fds(self._control, 1, 1)
            if word:
                self._fork(descriptors[0])
        except OSError:
            return False
        return bool(word)

    def _fork(self, descriptor: int) -> None:
        pid = os.fork()
        if pid == 0:
            self._control.close()
            _serve_and_exit(self._serve, descriptor)
        self._sessions.add(pid)
        os.close(descriptor)
        process = os.pidfd_open(pid)  # it is not reaped yet, so this is no other process
        try:
            socket.send_fds(self._control, [b"p"], [process])
        finally:
            os.close(process)

    def _reap(self) -> bool:
        """Reaps sessions' processes that have ended; returns whether any is left."""
        self._sessions = {pid for pid in self._sessions if not os.waitpid(pid, os.WNOHANG)[0]}
        return bool(self._sessions)


def _serve_and_exit(serve: Callable[[socket.socket], None], descriptor: int) -> NoReturn:
    code = 1
    try:
        serve(socket.socket(fileno=descriptor))
        code = 0
    except BaseException:
        logger.exception("a session's process failed")
    finally:
        os._exit(code)


def _preload(names: Iterable[str]) -> None:
    """Imports and reads here what each session would otherwise import and read for itself, in tens of milliseconds."""
    from rollout_tasks import registry  # here, as in `main`
    from rollout_tasks.agents.tool_calls import ToolCallReader  # here, as in `main`
    from rollout_tasks.config import RunConfig  # here, as in `main`
    from rollout_tasks.environments.base import Tool  # here, as in `main`
    from rollout_tasks.settings import settings  # here, as in `main`
    from vm_pool import lua_scripts, processes  # here, as in `main`

    settings()
    RunConfig.model_validate(RunConfig().model_dump())  # checking options imports what they are about
    "localhost".encode("idna")  # so does connecting
    ToolCallReader([Tool("any", "", {"properties": {}})])  # reads what a schema is
    lua_scripts.scripts()
    processes.machine()
    for name in names:
        try:
            registry.environment(name).preload()
        except (Exception, SystemExit) as error:  # noqa: BLE001 (the border to environments: its sessions report it, too)
            logger.error("environment %r: preload: %s: %s", name, type(error).__name__, error)


def main() -> None:
    """Runs the spawner. Arguments: the descriptor of its socket, and the environments to load."""
    from rollout_tasks.service.session_process import (
        serve,
    )  # here, because the program that starts this needs none of it

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    control = socket.socket(fileno=int(sys.argv[1]))
    _preload(sys.argv[2:])
    gc.collect()
    gc.freeze()
    _Spawner(control, serve).run()


if __name__ == "__main__":
    main()
