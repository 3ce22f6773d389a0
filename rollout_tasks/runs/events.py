"""events.jsonl of a run: which worker used which VM for which rollout, from when to when."""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryFile

from benchmark.whole_file import WholeFile
from rollout_tasks.runs.verdict import Verdict


def write_events(path: Path, verdicts: Iterable[Verdict], check: Callable[[], None] = lambda: None) -> None:
    """Writes the events in the order of their times; of each, only its place is held in memory.

    Args:
        path: Where to.
        verdicts: How the run's rollouts ended, in any order.
        check: Called before the file takes its place; raises when it must not any more.

    Raises:
        OSError: It cannot be written; names the path.
    """
    times, places = array("d"), array("q")
    with WholeFile(path) as file, TemporaryFile(dir=path.parent) as unsorted:
        for when, line in _events(verdicts):
            times.append(when)
            places.append(unsorted.tell())
            unsorted.write(line.encode() + b"\n")
        for event in sorted(range(len(times)), key=times.__getitem__):
            unsorted.seek(places[event])
            file.write(unsorted.readline().decode())
        check()
        file.publish()


def _events(verdicts: Iterable[Verdict]) -> Iterator[tuple[float, str]]:
    """Each event with its time, in seconds since the epoch."""
    for verdict in verdicts:
        if verdict.lending is None:
            continue
        for action, when in (("allocate", verdict.lending.allocated), ("release", verdict.lending.released)):
            event = {
                "timestamp": when,
                "worker_id": verdict.worker,
                "instance_id": verdict.lending.vm_id,
                "task_id": verdict.rollout_id,
                "action": action,
            }
            yield when, json.dumps(event, ensure_ascii=False)
