"""A worker's template process: started before the worker forks, restarted if it dies, used by all of the worker's children.

The worker does not wait for its imports; whoever wants the first cell does. A process without a template, such as a test or a
program, gets its own at first use.
"""

from __future__ import annotations

import importlib.util
import logging
import mmap
import os
import select
import socket
import subprocess
import threading
import time
from collections.abc import Sequence
from functools import lru_cache
from multiprocessing.util import Finalize
from pathlib import Path
from typing import IO, cast

from rollout_tasks.cells.filesystem import CellFilesystem, CellsUnavailable, cell_filesystem
from rollout_tasks.restarted_process import Process, RestartedProcess
from rollout_tasks.temporary_files import TemporaryFolder
from vm_pool.processes import end_with_children

logger = logging.getLogger(__name__)

START_SECONDS = 120.0
"""For the imports, which read hundreds of megabytes, maybe from a slow disk."""
_END_SECONDS = 10.0
"""From SIGKILL to the end of its last process."""
_LOOK_SECONDS = 0.2
"""Between two looks whether a template that starts is still wanted, or has become ready."""
_IMPORTS, _READY, _FAILED = range(3)
"""What the template last did, as far as its owner knows."""
_DOES_NOT_START = "the template of cells does not start; what it printed says why"
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
            wait: Whether to wait until it can make cells.

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
        self._state = mmap.mmap(-1, 1)  # shared with all children
        self._waits = wait
        """Whether the next start is waited for, as all but the first one are."""
        self._restarted: RestartedProcess | None = None
        try:
            self._restarted = RestartedProcess("the template of cells", self._start, (CellsUnavailable,))
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

    def wait_until_ready(self) -> None:
        """Waits while it imports.

        Raises:
            CellsUnavailable: It imports for too long, or does not start.
        """
        deadline = time.monotonic() + START_SECONDS
        while (state := self._state[0]) == _IMPORTS:
            if time.monotonic() > deadline:
                raise CellsUnavailable(_too_slow())
            time.sleep(_LOOK_SECONDS)
        if state == _FAILED:
            raise CellsUnavailable(_DOES_NOT_START)

    def connect(self, seconds: float) -> socket.socket:
        """Returns a connection to the template, to request one cell; waits while it imports.

        Raises:
            CellsUnavailable: It imports for too long, or does not start.
            OSError: It cannot be reached.
        """
        self.wait_until_ready()
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
        try:
            if self._restarted is not None:
                _end(self._restarted.stop_restarting())
        finally:
            self._listener.close()
            os.close(self._place)
            self._folder.remove()

    def _start(self) -> Process:
        """Starts a process, and waits until it can make cells; in a thread, if it is the first and is not to be waited for."""
        process = self._begin()
        if self._waits:
            self._wait_for(process)
        else:
            self._waits = True
            watch = threading.Thread(target=self._watch_first, args=(process,), name="template of cells", daemon=True)
            try:
                watch.start()
            except BaseException:  # no room for another thread
                _end(process)
                raise
        return process

    def _watch_first(self, process: Process) -> None:
        try:
            self._wait_for(process)
        except CellsUnavailable as error:
            if not self._stopped:
                logger.error("%s", error)

    def _begin(self) -> Process:
        self._state[0] = _IMPORTS
        command = self._way.command(
            ["-m", "rollout_tasks.cells.template", str(self._listener.fileno()), self._module], self._packages
        )
        return subprocess.Popen(  # noqa: S603
            command,
            stdin=subprocess.PIPE,  # its end tells the template that nobody is left who wants it
            stdout=subprocess.PIPE,
            env={},
            cwd="/",
            pass_fds=(self._listener.fileno(),),
            process_group=0,
        )

    def _wait_for(self, process: Process) -> None:
        """Waits until a process that starts can make cells; ends it otherwise.

        Raises:
            CellsUnavailable: It takes too long, ends, or is no longer wanted.
        """
        state = _FAILED
        try:
            with cast(IO[bytes], process.stdout) as output:
                self._wait_for_output(output)
                if output.readline() != b"ready\n":
                    raise CellsUnavailable(_DOES_NOT_START)
            state = _READY
        except BaseException:
            _end(process)
            raise
        finally:
            self._state[0] = state

    def _wait_for_output(self, output: IO[bytes]) -> None:
        ready = select.poll()
        ready.register(output, select.POLLIN)
        deadline = time.monotonic() + START_SECONDS
        while not ready.poll(_LOOK_SECONDS * 1000):
            if self._restarted is not None and self._restarted.stopping:
                raise CellsUnavailable("the template of cells is no longer wanted")
            if time.monotonic() > deadline:
                raise CellsUnavailable(_too_slow())


def _end(process: Process) -> None:
    """Ends a template with all its cells, and closes the pipe to it."""
    try:
        end_with_children(process, _END_SECONDS)  # bubblewrap's second process holds the others
    finally:
        if process.stdin is not None:
            process.stdin.close()


def _too_slow() -> str:
    return f"the template of cells was not ready within {START_SECONDS:g} s"


@lru_cache(maxsize=4)
def shared_template(module: str) -> TemplateProcess:
    """Returns this process's template: the one inherited by a fork, or else a new one. It may not have imported everything yet.

    Raises:
        CellsUnavailable: The template cannot be started, or this machine cannot make cells.
    """
    template = TemplateProcess(module, wait=False)
    Finalize(None, template.stop, exitpriority=0)
    return template


def _own_packages() -> list[Path]:
    """Returns the folders of this project's packages, wherever they are installed."""
    found = []
    for name in _PACKAGES:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations:
            found.append(Path(next(iter(spec.submodule_search_locations))).resolve())
    return found
