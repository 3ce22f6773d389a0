"""The process of one server: in a session of its own, with a log, of which nothing is left once it is ended."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from rollout_tasks.cleanup_process import CleanupProcess, stop_sessions
from rollout_tasks.models.serving.vllm_command import END_SECONDS
from rollout_tasks.unicode_text import one_line

_LATE_SECONDS = 5.0
"""How much longer than it should a server may take to end."""
_LEFT_SECONDS = 1.0
"""How long those that it started may take after it has ended."""
_LOOK_SECONDS = 0.05
_READ_OF_LOG = 64 << 10
"""The end of a log, in bytes, in which its last error is looked for."""
_ERROR = re.compile(r"\b\w*(?:Error|Exception)\b: ?\S")
_DECORATION = re.compile(r"\x1b\[[0-9;]*m|^\([^)]*\) |^[A-Z]+ \d\d-\d\d \d\d:\d\d:\d\d \[[^\]]*\] ")
"""Colours, and what vLLM writes before each line: the process, and time and place."""


class ServerProcess:
    """A running server. It ends with `end`, and also if this process is killed."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], log: Path, cleanup: CleanupProcess
    ) -> None:
        """Starts it.

        Args:
            command: The program and its arguments.
            environment: Its environment.
            log: Gets what it prints, after what is there.
            cleanup: Ends it if this process is killed.

        Raises:
            OSError: It cannot be started, or the log not be written.
        """
        self._log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(  # noqa: S603
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        cleanup.stop_afterwards(self._process.pid)

    @property
    def pid(self) -> int:
        """Its process id, which is its session's as well."""
        return self._process.pid

    def end_code(self) -> int | None:
        """Returns its exit code, or the number of the signal that ended it, negative; None while it runs."""
        # It is not waited for before `end`: until then, its id is that of its session, and of nothing else.
        found = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if found is None:
            return None
        return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status

    def end(self) -> None:
        """Asks it to end, and kills what is left of it and of the processes that it started."""
        deadline = time.monotonic() + END_SECONDS + _LATE_SECONDS
        os.kill(self._process.pid, signal.SIGTERM)
        while self.end_code() is None and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
        stop_sessions([self._process.pid], _LEFT_SECONDS)
        self._process.wait()

    def last_words(self) -> str:
        """Returns the last error in its log, else the last line; it was written by other programs."""
        try:
            with self._log.open("rb") as log:
                log.seek(max(0, log.seek(0, 2) - _READ_OF_LOG))
                lines = log.read().decode(errors="replace").splitlines()
        except OSError:
            return ""
        plain = [text for line in lines if (text := _DECORATION.sub("", _DECORATION.sub("", line)).strip())]
        errors = [text for text in plain if _ERROR.search(text)]
        return one_line((errors or plain or ["it said nothing"])[-1])[:500]
