"""Faults of the file system: strace lets one call of one process on one file of the run's folder fail, wait, or kill the process.

The points are the calls that the submitter and the workers' children make on the files of a run: which process, which call, which
file, its first and its last time. They come from plays under strace without a fault.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmark.report import read_report
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.runs.verdict import Verdict, rollout_ids
from tests.faults.judge import judge
from tests.faults.kinds import LATE_SECONDS
from tests.faults.play import Outcome, Play
from tests.faults.playground import ITEMS, WORKERS, Playground
from tests.faults.points import RUNNING, SUBMITTER
from tests.faults.session import Task
from tests.faults.strace import CALLS, Call, Tracer, calls_in

ENOSPC, EIO, KILL, SLOW, UNSEEN = "enospc", "eio", "kill", "slow", "unseen"
_INJECTIONS = {
    ENOSPC: "error=ENOSPC",
    EIO: "error=EIO",
    KILL: "signal=KILL",
    SLOW: f"delay_enter={int(LATE_SECONDS * 1_000_000)}",
    UNSEEN: "error=ENOENT",
}
"""``unseen``: a file that is there is not seen yet, as on a shared folder that lags."""


@dataclass(frozen=True, slots=True)
class FilePoint:
    """One call of one process on one file."""

    role: str
    call: str
    file: str
    """Below the run's folder, with ``{item}`` and ``{pid}`` in place of those."""
    watched: str
    """The file by which strace knows the call: of a rename or a link, its old name. Empty where the file has no name: then the
    call is known by its number among all that its process makes of its kind."""
    which: str
    """first or last."""
    number: int
    makes: bool
    """Whether the call makes or changes something."""
    by_one: bool
    """Whether only one child did it, as in finalising."""

    @property
    def id(self) -> str:
        """How it is called on the command line."""
        return f"{self.role}/{self.call}/{self.file}/{self.which}"

    @property
    def kinds(self) -> list[str]:
        """The faults it can meet."""
        if self.call.startswith("unlink"):
            return [EIO, KILL]
        if self.call == "openat" and not self.makes:
            return [EIO, KILL, SLOW, UNSEEN]
        return [ENOSPC, EIO, KILL, SLOW]  # a file server may say only at an fsync that it is full


def points_of_calls(recordings: Iterable[Sequence[Call]]) -> list[FilePoint]:
    """The points of some recordings: calls that came in each of them, as often as where they came least."""
    per_recording = [_by_name(calls) for calls in recordings]
    points = []
    for role, name, file in sorted(set.intersection(*(set(calls) for calls in per_recording))):
        same = [calls[role, name, file] for calls in per_recording]
        of_items = "{item}" in file
        times = (
            1 if of_items else min(count for calls in same for count in Counter(call.pid for call in calls).values())
        )
        by_one = not of_items and all(len({call.pid for call in calls}) == 1 for calls in same)
        watched = same[0][0].watched
        if not watched:
            firsts = {call.pid: call.number for calls in reversed(same) for call in reversed(calls)}
            (number, _), *_ = Counter(firsts.values()).most_common(1)
            points.append(FilePoint(role, name, file, watched, "first", number, same[0][0].makes, by_one=False))
            continue
        for which, number in [("first", 1), *([("last", times)] if times > 1 else [])]:
            points.append(FilePoint(role, name, file, watched, which, number, same[0][0].makes, by_one))
    return points


def _by_name(calls: Sequence[Call]) -> dict[tuple[str, str, str], list[Call]]:
    named: dict[tuple[str, str, str], list[Call]] = {}
    for call in calls:
        named.setdefault((call.role, call.name, call.file), []).append(call)
    return named


class FilePlay(Play):
    """A play in which the file system fails once."""

    def __init__(self, ground: Playground, name: str) -> None:
        super().__init__(ground, name)
        self._tracers: list[tuple[str, int, Tracer]] = []
        self._submitter_options: Callable[[int], Sequence[str]] | None = None

    def record_calls(self) -> list[Call]:
        """Plays under strace without a fault."""
        self._begin()
        options = ["-e", f"trace={CALLS}"]
        for pid in self._children():
            self._trace("child", pid, options)
        self._submitter_options = lambda _pid: options
        try:
            self._play_on()
        finally:
            texts = self._detach()
        if self.problems:
            raise RuntimeError(f"a play without any fault went wrong: {'; '.join(self.problems)}")
        folder = self.ground.results / self.run_id
        traced = zip(self._tracers, texts, strict=True)
        return [call for (role, pid, _), text in traced for call in calls_in(text, folder, role, pid)]

    def run_with(self, point: FilePoint, kind: str) -> Outcome:
        """Plays with a fault at a point, and judges."""
        self._begin()
        if point.role == SUBMITTER:
            self._submitter_options = lambda pid: self._injection(point, kind, pid)
        else:
            children = self._children()
            for pid in children if point.by_one else children[:1]:
                self._trace(point.role, pid, self._injection(point, kind, pid))
        try:
            self._play_on(strict=False)
        finally:
            texts = self._detach()
        said = [
            line
            for text in texts
            for line in text.splitlines()
            if re.search(r"INJECTED|DELAYED|killed by SIGKILL", line)
        ]
        return self._outcome(point.id, kind, met=bool(said), said=said[:3])

    def _detach(self) -> list[str]:
        """Ends the tracing; returns what was seen."""
        return [tracer.close() for _, _, tracer in self._tracers]

    def _children(self) -> list[int]:
        return [pid for name in WORKERS for pid in self.ground.services[name].children]

    def _injection(self, point: FilePoint, kind: str, pid: int) -> list[str]:
        folder = self.ground.results / self.run_id
        names = {point.watched.replace("{pid}", str(pid)).replace("{item}", str(item["id"])) for item in ITEMS}
        paths = [word for name in sorted(names) for word in ("-P", str(folder / name))] if point.watched else []
        return [
            *paths,
            "-e",
            f"trace={point.call}",
            "-e",
            f"inject={point.call}:{_INJECTIONS[kind]}:when={point.number}",
        ]

    def _before_submitter(self, pid: int) -> None:
        if self._submitter_options is not None:
            options, self._submitter_options = self._submitter_options(pid), None
            self._trace(SUBMITTER, pid, options)

    def _trace(self, role: str, pid: int, options: Sequence[str]) -> None:
        output = self.ground.folder / f"{self.run_id}.{pid}.strace.log"
        self._tracers.append((role, pid, Tracer(pid, output, options)))

    def _play_on(self, *, strict: bool = True) -> None:
        self.ground.director.stage = RUNNING
        self._submit()
        if not self._over(forgettable=False):
            return
        if not strict and (trouble := honest_trouble(self.ground, self.run_id)):
            if dishonest := [sentence for sentence in trouble if sentence.startswith("!")]:
                self.problems += dishonest
            self._detach()
            self._resume()
            if not self._over(forgettable=False):
                return
        self.problems += judge(self.ground, self.run_id, self.restarts)


def honest_trouble(ground: Playground, run_id: str) -> list[str]:
    """What a run that is over lacks; a sentence begins with ``!`` when the run does not say so itself."""
    store, folder = ground.store, RunFolder(ground.results / run_id)
    progress = store.progress(run_id)
    trouble = []
    try:
        read_report(folder.evaluation)
    except (OSError, ValueError, KeyError) as error:
        said = progress is not None and bool(progress.problem)
        trouble.append(f"{'' if said else '!'}there is no report: {error}")
    committed = {verdict.rollout_id: verdict for verdict in store.verdicts(run_id)}
    for name in rollout_ids(folder.description.items(), folder.description.config().rollouts_per_item):
        trouble += _trouble_of(name, folder.verdict(name), committed.get(name))
    return trouble


def _trouble_of(name: str, on_disk: Verdict | None, stored: Verdict | None) -> list[str]:
    if stored is None:
        return [f"!{name} has no verdict"]
    if stored.status == "completed":
        return [] if on_disk == stored else [f"!{name} is committed as completed; the folder says {on_disk}"]
    if stored.failure_class is None or stored.failure_class.counted_as != "infrastructure" or not stored.error:
        return [f"!{name} ended as {stored.failure_class}: {stored.error}"]
    return [f"{name} was lost: {stored.error}"]


class Files:
    """Faults of the file system, as a `Game`."""

    where = "files"

    def record(self, play: Callable[[], str], ground: Playground, times: int) -> list[tuple[Any, list[str]]]:
        """See `Recorded`."""
        FilePlay(ground, play()).record_calls()  # what is read only once is read here
        points = points_of_calls([FilePlay(ground, play()).record_calls() for _ in range(times)])
        return [(point, point.kinds) for point in points]

    def point(self, values: dict[str, Any]) -> FilePoint:
        """See `Recorded`."""
        return FilePoint(**values)

    def play(self, ground: Playground, name: str, task: Task) -> Outcome:
        """See `Game`."""
        return FilePlay(ground, name).run_with(task.point, task.kind)
