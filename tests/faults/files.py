"""Faults of the file system: strace lets one call of one process on one file of the run's folder fail, wait, or kill the process.

The points are the calls that the submitter and the workers' children make on the files of a run: which process, which call, which
file, its first and its last time. They come from plays under strace without a fault.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmark.report import read_report
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.runs.verdict import Verdict, rollout_ids
from tests.faults.judge import judge
from tests.faults.kinds import LATE_SECONDS
from tests.faults.play import Outcome, Play
from tests.faults.playground import ITEMS, WORKERS, Playground
from tests.faults.points import RUNNING, SUBMITTER
from tests.faults.processes import wait_until
from tests.faults.session import Task

CALLS = "openat,write,pwrite64,fsync,fdatasync,rename,renameat,renameat2,link,linkat,mkdir,mkdirat,unlink,unlinkat,fallocate"
_CALL = re.compile(r"^(?P<pid>\d+) +(?P<call>\w+)\((?P<arguments>.*)\) += (?P<result>.*)$")
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
_DESCRIPTOR = re.compile(r"^\w+<([^>]*)>")
_MAKING = {"write", "pwrite64", "rename", "renameat", "renameat2", "link", "linkat", "mkdir", "mkdirat", "fallocate"}
_THREAD = re.compile(r"-\d{9,}\.tmp$")
"""How a temporary name ends that has the thread's address in it."""
_NAMELESS = "(nameless)"
"""How a file is called that has no name yet."""
_ATTACH_SECONDS = 20.0

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


class Tracer:
    """strace, attached to a process and its threads until it is closed."""

    def __init__(self, pid: int, output: Path, options: Sequence[str]) -> None:
        self._pid = pid
        self._output = output
        self._process = subprocess.Popen(
            ["strace", "-f", "-y", "-s", "4096", "-o", str(output), *options, "-p", str(pid)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        if not wait_until(self._attached, _ATTACH_SECONDS):
            self.close()
            raise RuntimeError(f"strace did not attach to process {pid}")

    def _attached(self) -> bool:
        with contextlib.suppress(OSError):
            return f"TracerPid:\t{self._process.pid}\n" in Path(f"/proc/{self._pid}/status").read_text()
        return self._process.poll() is not None

    @property
    def text(self) -> str:
        """What it saw."""
        return self._output.read_text(errors="replace") if self._output.exists() else ""

    def close(self) -> str:
        """Detaches; returns what it saw. Harmless when repeated."""
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        return self.text


@dataclass(frozen=True, slots=True)
class Call:
    """A call on a file of the run's folder."""

    role: str
    pid: int
    name: str
    file: str
    watched: str
    makes: bool
    number: int = 1
    """The how-manieth call of its kind it was, of all that the process made."""


def calls_in(text: str, folder: Path, role: str, pid: int) -> list[Call]:
    """The successful calls on a folder's files in what strace wrote; `pid` is the traced process, not its thread."""
    found = []
    numbers: Counter[str] = Counter()
    for line in text.splitlines():
        match = _CALL.match(line)
        if match is None:
            continue
        numbers[match["call"]] += 1
        if match["result"].startswith(("-1", "?")):
            continue
        paths = _paths_of(match["call"], match["arguments"])
        if not paths or not all(path.is_relative_to(folder) for path in paths):
            continue
        makes = match["call"] in _MAKING or "O_CREAT" in match["arguments"] or "O_TMPFILE" in match["arguments"]
        if match["call"] == "openat" and not makes and "O_DIRECTORY" in match["arguments"]:
            continue
        if _THREAD.search(str(paths[0])):
            continue  # nobody outside can tell the name in another play
        watched, file = (_template(str(paths[at].relative_to(folder)), pid) for at in (0, -1))
        if file.endswith(_NAMELESS):
            if not match["call"].startswith("f"):
                continue  # other calls of its kind, as on a log, come at any number
            watched = ""
        found.append(Call(role, pid, match["call"], file, watched, makes, numbers[match["call"]]))
    return found


def _paths_of(call: str, arguments: str) -> list[Path]:
    """The file that a call makes, changes or reads; of a rename or a link, the old name and the new one."""
    descriptor = _DESCRIPTOR.match(arguments)
    strings: list[str] = _STRING.findall(arguments)
    if call in {"write", "pwrite64", "fsync", "fdatasync", "fallocate"}:
        return [Path(descriptor[1])] if descriptor else []
    if call in {"linkat", "renameat", "renameat2"}:
        strings = strings[-1:]
    paths = [Path(string) for string in (strings if call.startswith(("rename", "link")) else strings[:1])]
    return [path if path.is_absolute() or descriptor is None else Path(descriptor[1]) / path for path in paths]


def _template(file: str, pid: int) -> str:
    file = re.sub(r"#\d+( \(deleted\))?$", _NAMELESS, file)
    file = re.sub(r"\bitem-\d+\b", "{item}", file)
    return re.sub(rf"\b{pid}\b", "{pid}", file)


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
        outcome = self._outcome(point.id, kind, met=bool(said), said=said[:3])
        outcome.where = "files"
        return outcome

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
    for name in rollout_ids(folder.items(), folder.config().rollouts_per_item):
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

    def record(self, play: Callable[[], str], ground: Playground, times: int) -> list[tuple[Any, list[str]]]:
        """See `Game`."""
        FilePlay(ground, play()).record_calls()  # what is read only once is read here
        points = points_of_calls([FilePlay(ground, play()).record_calls() for _ in range(times)])
        return [(point, point.kinds) for point in points]

    def point(self, values: dict[str, Any]) -> FilePoint:
        """See `Game`."""
        return FilePoint(**values)

    def play(self, ground: Playground, name: str, task: Task) -> Outcome:
        """See `Game`."""
        return FilePlay(ground, name).run_with(task.point, task.kind)


def strace_is_there() -> bool:
    """Whether strace can attach to a process here."""
    with contextlib.suppress(OSError):
        held = subprocess.Popen(["sleep", "30"])
        try:
            Tracer(held.pid, Path(os.devnull), ["-e", "trace=none"]).close()
            return True
        except RuntimeError:
            return False
        finally:
            held.kill()
            held.wait()
    return False
