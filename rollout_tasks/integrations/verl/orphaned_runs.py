"""Cancels the runs of a process that has ended: their model ended with it, and workers would wait for that for hours.

`python -m rollout_tasks.integrations.verl.orphaned_runs`, started by that process. Standard input names the runs' folders:
``["begun", PATH]`` when one begins, ``["over", PATH]`` when it is over, as JSON, one a line. It ends when the other process
ends, however that happens.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

from rollout_tasks.errors import UserError


class UnfinishedRuns:
    """The runs of this process that are not over, for the process that cancels them afterwards."""

    def __init__(self) -> None:
        """Starts it."""
        self._saying = threading.Lock()
        # In a session of its own, and not this process's child for long: whoever stops a Ray worker stops its children, too.
        self._process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-P", "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._process.wait()

    def begun(self, folder: Path) -> None:
        """Names a run that is about to begin."""
        self._say("begun", folder)

    def over(self, folder: Path) -> None:
        """Names a run that is not to be cancelled any more."""
        self._say("over", folder)

    def _say(self, what: str, folder: Path) -> None:
        assert self._process.stdin is not None  # noqa: S101 - it is a pipe
        with self._saying, contextlib.suppress(BrokenPipeError):  # it was killed: then they are left as they are
            self._process.stdin.write(json.dumps([what, str(folder)]).encode() + b"\n")
            self._process.stdin.flush()


def main() -> None:
    """Waits for the end of the other process in a child of its own, and cancels what that has left."""
    if os.fork():
        os._exit(0)
    left: set[str] = set()
    for line in sys.stdin.buffer:
        what, folder = json.loads(line)
        (left.add if what == "begun" else left.discard)(folder)
    for folder in sorted(left):
        _cancel(Path(folder))


def _cancel(folder: Path) -> None:
    from rollout_tasks.cli.run_progress import cancel  # here, because it imports Celery, and most often nothing is left

    with contextlib.suppress(UserError):  # it is over, or never began
        cancel(str(folder), None, as_json=True)


if __name__ == "__main__":
    main()
