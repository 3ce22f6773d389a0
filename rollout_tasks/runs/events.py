"""A run's events.jsonl: which worker used which VM for which rollout, and when, in every attempt.

An attempt that ended has ``allocate`` and ``release``. One whose process died has ``allocate``, at the beginning of its
record, and ``worker_exit``, at the last write to its record.
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
"""Time (seconds since the epoch), worker, VM, action."""


class EventsFile:
    """Collects the events of events.jsonl on disk; only times and offsets are in memory. A context manager."""

    def __init__(self, folder: RunFolder) -> None:
        """Takes the run's folder, which must exist on entry; opens nothing yet."""
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
        """Adds the events of some rollouts, given their verdicts; returns the verdicts.

        Raises:
            OSError: The disk has no room for them.
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
        """Writes events.jsonl in order of time.

        Args:
            check: Called before the file is put in place; raises when that is no longer allowed.

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
            return  # no VM and no other attempt: the folder need not be read
        begun = self._folder.begun_attempts(verdict.rollout_id)
        ended = self._ended(verdict)
        for path in begun:
            attempt = ended.get(int(path.name.removeprefix("attempt-")))
            yield from _lease_events(attempt) if attempt is not None else _died(path)
        if verdict.attempt in ended and self._folder.attempt(verdict.rollout_id, verdict.attempt) not in begun:
            yield from _lease_events(verdict)

    def _ended(self, verdict: Verdict) -> dict[int, Verdict]:
        """Returns how attempts ended, by number; the verdict covers its own attempt even if that was not written."""
        ended = {verdict.attempt: verdict} if verdict.lease is not None else {}
        try:
            ended |= {attempt.attempt: attempt for attempt in self._folder.attempts(verdict.rollout_id)}
        except UserError as error:
            logger.warning("%s: events.jsonl may lack events of earlier attempts: %s", verdict.rollout_id, error)
        return ended


def _lease_events(attempt: Verdict) -> Iterator[_Event]:
    if attempt.lease is not None:
        yield attempt.lease.allocated, attempt.worker, attempt.lease.vm_id, "allocate"
        yield attempt.lease.released, attempt.worker, attempt.lease.vm_id, "release"


def _died(attempt: Path) -> Iterator[_Event]:
    """Yields the events of an attempt without a result, from its record; none if it recorded no VM."""
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
