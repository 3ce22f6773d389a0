"""A worker's template process: started before the worker forks, restarted if it dies, used by all of the worker's children.

The worker does not wait for its imports; whoever wants the first cell does. A process without a template, such as a test or a
program, gets its own at first use.
"""

from __future__ import annotations

import atexit
import importlib.util
import logging
import os
import select
import socket
import subprocess
import time
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import IO, cast

from rollout_tasks.cells.filesystem import CellFilesystem, CellsUnavailable, cell_filesystem
from rollout_tasks.restarted_process import Process, RestartedProcess
from rollout_tasks.temporary_files import TemporaryFolder

logger = logging.getLogger(__name__)

START_SECONDS = 120.0
"""For the imports, which read hundreds of megabytes, maybe from a slow disk."""
_LOOK_SECONDS = 0.2
"""Between two looks whether a template that starts is still wanted."""
_BACKLOG = 128
_PACKAGES = ("rollout_tasks", "benchmark", "vm_pool", "desktop_image")


class TemplateProcess:
    """The template of this process and of those forked from it."""

    def __init__(
        self, module: str, packages: Sequence[Path] = (), way: CellFilesystem | None = None, *, wait: bool = True
    ) -> None:
        """Starts the template.

        Args:
            module: The module that cells run; see `template`.
            packages: Folders of packages that it imports besides this project's and the installed ones.
            way: How the cells' filesystem is made; default: the way that works on this machine.
            wait: Whether to wait until it can make cells; otherwise the first `connect` of each process does.

        Raises:
            CellsUnavailable: The template does not start, or this machine cannot make cells.
        """
        self._module = module
        self._packages = [*_own_packages(), *packages]
        self._way = way or cell_filesystem()
        self._owner = os.getpid()
        self._folder = TemporaryFolder("cells-")
        self._place = os.open(self._folder.path, os.O_RDONLY | os.O_DIRECTORY)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(self._address)
        self._listener.listen(_BACKLOG)
        self._stopped = False
        self._first: IO[bytes] | None = None
        """What the first process prints, if it is not waited for here: it stays unread, so that every child can see it there."""
        self._restarted: RestartedProcess | None = None
        start = self._start if wait else self._begin_then_start
        try:
            self._restarted = RestartedProcess("the template of cells", start, (CellsUnavailable,))
        except BaseException:
            self.stop()
            raise

    @property
    def _address(self) -> str:
        """The socket's address, through /proc: socket paths must be short, temporary folders' may be long."""
        return f"/proc/self/fd/{self._place}/template"

    @property
    def pid(self) -> int:
        """The template's process id."""
        if self._restarted is None:
            raise CellsUnavailable("the template of cells has not been started")
        return self._restarted.process.pid

    def connect(self, seconds: float) -> socket.socket:
        """Returns a connection to the template, to request one cell.

        Raises:
            OSError: The template cannot be reached, or imports for too long.
        """
        if self._first is not None and not _prints(self._first, START_SECONDS):
            raise TimeoutError(f"the template of cells was not ready within {START_SECONDS:g} s")
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(seconds)
            connection.connect(self._address)
        except BaseException:
            connection.close()
            raise
        return connection

    def stop(self) -> None:
        """Ends the template with all its cells; does nothing when repeated, or in a forked process."""
        if os.getpid() != self._owner or self._stopped:
            return
        self._stopped = True
        if self._restarted is not None:
            process = self._restarted.stop_restarting()
            process.kill()
            process.wait()
        if self._first is not None:
            self._first.close()
        self._listener.close()
        os.close(self._place)
        self._folder.remove()

    def _begin_then_start(self) -> Process:
        """Starts the first process without waiting for it, and later ones as `_start` does."""
        if self._first is not None:
            return self._start()
        process = self._begin()
        self._first = process.stdout
        return process

    def _start(self) -> Process:
        """Starts a process, and waits until it can make cells."""
        process = self._begin()
        try:
            with cast(IO[bytes], process.stdout) as output:
                self._wait_for(output)
                if output.readline() != b"ready\n":
                    raise CellsUnavailable("the template of cells does not start; what it printed says why")
        except BaseException:
            process.kill()
            process.wait()
            raise
        return process

    def _begin(self) -> Process:
        command = self._way.command(
            ["-m", "rollout_tasks.cells.template", str(self._listener.fileno()), self._module], self._packages
        )
        return subprocess.Popen(  # noqa: S603
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env={},
            cwd="/",
            pass_fds=(self._listener.fileno(),),
            process_group=0,
        )

    def _wait_for(self, output: IO[bytes]) -> None:
        """Waits until a template that starts prints something, or ends.

        Raises:
            CellsUnavailable: It takes too long, or is no longer wanted.
        """
        deadline = time.monotonic() + START_SECONDS
        while not _prints(output, _LOOK_SECONDS):
            if self._restarted is not None and self._restarted.stopping:
                raise CellsUnavailable("the template of cells is no longer wanted")
            if time.monotonic() > deadline:
                raise CellsUnavailable(f"the template of cells was not ready within {START_SECONDS:g} s")


def _prints(output: IO[bytes], seconds: float) -> bool:
    """Returns whether a process has printed something, or ended, within some time."""
    ready = select.poll()
    ready.register(output, select.POLLIN)
    return bool(ready.poll(seconds * 1000))


@lru_cache(maxsize=4)
def shared_template(module: str) -> TemplateProcess:
    """Returns this process's template: the one inherited by a fork, or else a new one. It may not have imported everything yet.

    Raises:
        CellsUnavailable: The template cannot be started, or this machine cannot make cells.
    """
    template = TemplateProcess(module, wait=False)
    atexit.register(template.stop)
    return template


def _own_packages() -> list[Path]:
    """Returns the folders of this project's packages, wherever they are installed."""
    found = []
    for name in _PACKAGES:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations:
            found.append(Path(next(iter(spec.submodule_search_locations))).resolve())
    return found
