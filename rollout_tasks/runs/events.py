"""events.jsonl of a run: which worker used which VM for which rollout, from when to when, in every attempt.

An attempt that ended has ``allocate`` and ``release``. One whose process died has ``allocate``, when its record begins, and
``worker_exit``, when its record was last written to.
"""

from __future__ import annotations

import json
import logging
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Self

from benchmark.whole_file import WholeFile
from rollout_tasks.errors import UserError
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.runs.verdict import Verdict
from rollout_tasks.trajectories.writer import RECORD_NAME

logger = logging.getLogger(__name__)

_Event = tuple[float, str, str, str]
"""When (seconds since the epoch), which worker, which VM, what."""


class EventsFile:
    """The file while its events are collected, of which only the places are held in memory; a context manager."""

    def __init__(self, folder: RunFolder) -> None:
        """Opens nothing yet; takes the run's folder, which must be there when this is entered."""
        self._folder = folder
        self._opened = ExitStack()
        self._times = array("d")
        self._places = array("q")

    def __enter__(self) -> Self:
        self._unsorted = self._opened.enter_context(TemporaryFile(dir=self._folder.path))
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def note(self, verdicts: Sequence[Verdict | None]) -> Sequence[Verdict | None]:
        """Adds the events of some rollouts, given by their verdicts, which it returns.

        Raises:
            OSError: There is no room for them.
        """
        for verdict in verdicts:
            if verdict is None:
                continue
            for when, worker, vm_id, action in self._of(verdict):
                event = {
                    "timestamp": when,
                    "worker_id": worker,
                    "instance_id": vm_id,
                    "task_id": verdict.rollout_id,
                    "action": action,
                }
                self._times.append(when)
                self._places.append(self._unsorted.tell())
                self._unsorted.write(json.dumps(event, ensure_ascii=False).encode() + b"\n")
        return verdicts

    def publish(self, check: Callable[[], None] = lambda: None) -> None:
        """Writes events.jsonl in the order of time.

        Args:
            check: Called before the file takes its place; raises when it must not any more.

        Raises:
            OSError: It cannot be written; names the path.
        """
        with WholeFile(self._folder.events) as file:
            for event in sorted(range(len(self._times)), key=self._times.__getitem__):
                self._unsorted.seek(self._places[event])
                file.write(self._unsorted.readline().decode())
            check()
            file.publish()

    def _of(self, verdict: Verdict) -> Iterator[_Event]:
        if verdict.lease is None and verdict.attempt == 1 and verdict.status == "completed":
            return  # it used no VM, and there was no other attempt: the folder need not be looked at
        begun = self._folder.begun_attempts(verdict.rollout_id)
        ended = self._ended(verdict)
        for path in begun:
            attempt = ended.get(int(path.name.removeprefix("attempt-")))
            yield from _lent(attempt) if attempt is not None else _died(path)
        if verdict.attempt in ended and self._folder.attempt(verdict.rollout_id, verdict.attempt) not in begun:
            yield from _lent(verdict)

    def _ended(self, verdict: Verdict) -> dict[int, Verdict]:
        """How attempts ended, by number; the verdict knows of its own also where that could not be written."""
        ended = {verdict.attempt: verdict} if verdict.lease is not None else {}
        try:
            ended |= {attempt.attempt: attempt for attempt in self._folder.attempts(verdict.rollout_id)}
        except UserError as error:
            logger.warning("%s: events.jsonl may lack events of earlier attempts: %s", verdict.rollout_id, error)
        return ended


def _lent(attempt: Verdict) -> Iterator[_Event]:
    if attempt.lease is not None:
        yield attempt.lease.allocated, attempt.worker, attempt.lease.vm_id, "allocate"
        yield attempt.lease.released, attempt.worker, attempt.lease.vm_id, "release"


def _died(attempt: Path) -> Iterator[_Event]:
    """Tells from its record what an attempt was that has no result; nothing where it recorded no VM."""
    path = attempt / RECORD_NAME
    try:
        with path.open(encoding="utf-8") as file:
            header: Any = json.loads(file.readline())["header"]
        began, worker, vm_id = float(header["started"]), str(header["worker"]), header["vm_id"]
        last_seen = path.stat().st_mtime
    except (OSError, ValueError, TypeError, KeyError):
        return
    if vm_id is not None:
        yield began, worker, str(vm_id), "allocate"
        yield max(began, last_seen), worker, str(vm_id), "worker_exit"
