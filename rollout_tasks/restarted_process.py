"""A process that is started again whenever it ends by itself; ever more rarely, as long as it keeps ending soon."""

from __future__ import annotations

import logging
import subprocess
import threading
import time
from collections.abc import Callable

from vm_pool.processes import end_with_children

logger = logging.getLogger(__name__)

RESTART_SECONDS = (1.0, 60.0)
"""The pause before a restart: the first one, and the longest one."""

_END_SECONDS = 10.0
"""From SIGKILL to the end of a process."""

Process = subprocess.Popen[bytes]


class RestartedProcess:
    """Runs a process until `stop_restarting`.

    Args:
        what: Its name in messages, as in "the VM host".
        start: Starts it, now and after each end. One that takes long looks at `stopping`, and then fails soon.
        failures: The errors of `start` after which it is tried again later; at first, they are raised.
    """

    def __init__(self, what: str, start: Callable[[], Process], failures: tuple[type[Exception], ...] = ()) -> None:
        self._what = what
        self._start = start
        self._failures: tuple[type[Exception], ...] = (OSError, *failures)
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._process = start()
        try:
            threading.Thread(target=self._keep_running, name=f"restarts {what}", daemon=True).start()
        except BaseException:  # no room for another thread
            end_with_children(self._process, _END_SECONDS)
            raise

    @property
    def process(self) -> Process:
        """The process that was started last; it may have ended."""
        return self._process

    @property
    def stopping(self) -> bool:
        """Whether it is to be started no more; a start that is under way is being waited for."""
        return self._stopping.is_set()

    def stop_restarting(self) -> Process:
        """Starts it no more; waits for a start that is under way. The caller ends the process that is returned."""
        self._stopping.set()
        with self._lock:
            return self._process

    def _keep_running(self) -> None:
        pause, longest = RESTART_SECONDS
        while True:
            began = time.monotonic()
            code = self._process.wait()
            if self._stopping.is_set():
                return
            if time.monotonic() - began > longest:
                pause = RESTART_SECONDS[0]
            logger.error("%s ended by itself (exit code %d); starting it again in %.0f s", self._what, code, pause)
            if self._stopping.wait(pause):
                return
            pause = min(pause * 2, longest)
            with self._lock:
                if self._stopping.is_set():
                    return
                try:
                    self._process = self._start()
                except self._failures as error:  # no memory or process left, which may also have ended the last one
                    if self._stopping.is_set():
                        return
                    logger.error("%s cannot be started: %s", self._what, error)
