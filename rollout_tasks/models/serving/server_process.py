"""The process of one server: in a session of its own, with a log, of which nothing is left once it is ended."""

from __future__ import annotations

import itertools
import logging
import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from rollout_tasks.cleanup_process import CleanupProcess, stop_sessions
from rollout_tasks.models.serving.server_records import write_record
from rollout_tasks.models.serving.vllm_command import END_SECONDS
from rollout_tasks.unicode_text import one_line

logger = logging.getLogger(__name__)

LONGEST_END_SECONDS = END_SECONDS + 5.0
"""How long a server that is asked to end may take: a little longer than it should."""
_LEFT_SECONDS = 1.0
"""How long those that it started may take after it has ended."""
_KILL_SECONDS = 10.0
"""From SIGKILL to the end of a process."""
_LOOK_SECONDS = 0.05
_MORE_LINES = 2
"""Of an error that has several."""
_READ_OF_LOG = 64 << 10
"""The end of a log, in bytes, in which its last error is looked for."""
_ERROR = re.compile(r"[\w.]*(?:Error|Exception): ?\S|[\w ]+: error: ")
"""How a line begins that says what went wrong: the last one of a traceback, or of wrong options."""
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
        self._record: Path | None = None
        with log.open("ab") as output:
            self._began = output.tell()
            self._process = subprocess.Popen(  # noqa: S603
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            cleanup.stop_afterwards(self._process.pid)
            self._record = write_record(self._process.pid)
        except BaseException:  # no room for another process
            self.end()
            raise

    def end_code(self) -> int | None:
        """Returns its exit code, or the number of the signal that ended it, negative; None while it runs."""
        # It is not waited for before `end`: until then, its id is that of its session, and of nothing else.
        found = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if found is None:
            return None
        return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status

    def end(self) -> None:
        """Asks it to end, and kills what is left of it and of the processes that it started."""
        deadline = time.monotonic() + LONGEST_END_SECONDS
        os.kill(self._process.pid, signal.SIGTERM)
        while self.end_code() is None and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
        stop_sessions([self._process.pid], _LEFT_SECONDS)
        try:
            self._process.wait(_KILL_SECONDS)
        except subprocess.TimeoutExpired:  # as in a GPU's driver
            logger.error("process %d does not end within %g s after SIGKILL", self._process.pid, _KILL_SECONDS)
            return
        if self._record is not None:
            self._record.unlink(missing_ok=True)

    def last_line(self) -> str:
        """Returns the last line that it printed; other programs wrote it."""
        return _sentence(self._lines()[-1:]) or "it has said nothing yet"

    def why_it_ended(self) -> str:
        """Returns how it ended, as the rest of a sentence about it, with the last error that it printed."""
        code = self.end_code() or 0
        if code < 0:
            return f"was ended by signal {-code}"
        lines = self._lines()
        last = max((place for place, line in enumerate(lines) if _ERROR.match(line)), default=len(lines) - 1)
        # An error may go on in lines that are indented, as those of pydantic do.
        more = itertools.takewhile(lambda line: line[:1].isspace(), lines[last + 1 : last + 1 + _MORE_LINES])
        return f"ended with exit code {code}: {_sentence([*lines[last : last + 1], *more]) or 'it said nothing'}"

    def _lines(self) -> list[str]:
        """Returns the last lines that it printed, without what vLLM writes before each of them."""
        try:
            with self._log.open("rb") as log:
                log.seek(max(self._began, log.seek(0, os.SEEK_END) - _READ_OF_LOG))
                lines = log.read(_READ_OF_LOG).decode(errors="replace").splitlines()
        except OSError:  # somebody has taken it away
            return []
        return [text for line in lines if (text := _DECORATION.sub("", _DECORATION.sub("", line)).rstrip())]


def _sentence(lines: Sequence[str]) -> str:
    return one_line(" ".join(line.strip() for line in lines))[:500]
