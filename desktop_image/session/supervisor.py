"""Starts processes, restarts them when they end, and reaps every orphan, as process 1 must."""

from __future__ import annotations

import heapq
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass

PAUSE_SECONDS = (0.2, 5.0)
"""First and longest pause before a process is restarted; doubled with each end within `RESTART_WINDOW` seconds."""
RESTART_WINDOW = 60.0


@dataclass(frozen=True, slots=True)
class Service:
    """One process of the session."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    as_user: int | None = None
    """User and group id; None: root."""
    groups: tuple[int, ...] = ()
    folder: str = "/"
    essential: bool = False
    """Whether the session ends with it."""
    listener: socket.socket | None = None
    """Its standard input: stays open during a restart, so that no other process can listen in its place."""


class Supervisor:
    """Keeps services running."""

    def __init__(self) -> None:
        self._running: dict[int, Service] = {}
        self._ended: dict[str, list[float]] = {}
        self._due: list[tuple[float, str, Service]] = []
        # Blocked from the start, so that no signal is lost before `run` waits for it; children get an empty mask.
        self._awaited = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
        signal.pthread_sigmask(signal.SIG_BLOCK, self._awaited)

    def start(self, service: Service) -> None:
        """Starts a service, to be kept running."""
        process = subprocess.Popen(  # noqa: S603
            service.command,
            env=dict(service.environment),
            cwd=service.folder,
            stdin=subprocess.DEVNULL if service.listener is None else service.listener.fileno(),
            stdout=sys.stderr,
            user=service.as_user,
            group=service.as_user,
            extra_groups=list(service.groups) if service.as_user is not None else None,
            start_new_session=True,
            preexec_fn=_unblock_signals,
        )
        process.returncode = 0  # `run` reaps it; Popen must not try.
        self._running[process.pid] = service

    def run(self) -> int:
        """Runs until an essential service or a signal ends it; returns the exit code."""
        while True:
            wait = max(self._due[0][0] - time.monotonic(), 0) if self._due else None
            got = signal.sigwait(self._awaited) if wait is None else self._wait_for_signal(wait)
            if got in (signal.SIGTERM, signal.SIGINT):
                return 0
            ended = self._reap()
            if any(service.essential for service in ended):
                sys.stderr.write("guest session: the display has ended, and the session with it\n")
                return 1
            while self._due and self._due[0][0] <= time.monotonic():
                self._start_again(heapq.heappop(self._due)[2])

    def _start_again(self, service: Service) -> None:
        try:
            self.start(service)
        except OSError as error:  # as when the agent has removed the program, or processes are at their limit
            self._plan_restart(service, f"cannot be started: {error.strerror}")

    def _wait_for_signal(self, seconds: float) -> int | None:
        found = signal.sigtimedwait(self._awaited, seconds)
        return found.si_signo if found else None

    def _reap(self) -> list[Service]:
        ended: list[Service] = []
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return ended
            if pid == 0:
                return ended
            if service := self._running.pop(pid, None):
                ended.append(service)
                self._plan_restart(service, f"ended ({os.waitstatus_to_exitcode(status)})")

    def _plan_restart(self, service: Service, why: str) -> None:
        now = time.monotonic()
        recent = [at for at in self._ended.get(service.name, []) if now - at < RESTART_WINDOW]
        self._ended[service.name] = [*recent, now]
        sys.stderr.write(f"guest session: {service.name} {why}; starting it again\n")
        shortest, longest = PAUSE_SECONDS
        heapq.heappush(self._due, (now + min(shortest * 2 ** len(recent), longest), service.name, service))


def _unblock_signals() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, set())
