"""The points of a run at which a fault can happen: who sends what at which stage, its first, a middle and its last time.

They come from recordings of plays without a fault. A point is found again by counting what its sender's role sends at its stage.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import redis

from tests.faults import naming
from tests.faults.kinds import AFTER_THE_ANSWER, Flags, Kind, applies
from tests.faults.request import Request, Sender
from tests.faults.server import ForgetfulServer

IDLE, SUBMITTING, RUNNING, FINALISING, AFTER = STAGES = ("idle", "submitting", "running", "finalising", "after")
SUBMITTER = "submitter"


@dataclass(frozen=True, slots=True)
class Place:
    """Who sends what when."""

    role: str
    stage: str
    name: str


@dataclass(frozen=True, slots=True)
class Point:
    """One request of a play."""

    role: str
    stage: str
    name: str
    which: str
    """first, middle or last."""
    number: int
    """The how-manieth of its kind it is."""
    commands: tuple[str, ...]
    """The Redis commands it may carry out."""

    @property
    def id(self) -> str:
        """How it is called on the command line."""
        return f"{self.role}/{self.stage}/{self.name}/{self.which}"

    @property
    def place(self) -> Place:
        """Without the number."""
        return Place(self.role, self.stage, self.name)

    @property
    def by_answer(self) -> bool:
        """Whether it is counted by its answer."""
        return self.name.endswith(")")

    def kinds(self, flags: Flags) -> list[Kind]:
        """The faults it can meet."""
        inside = frozenset(self.commands)
        return [kind for kind in Kind if applies(kind, inside, answered=self.by_answer, flags=flags)]


class Director:
    """Counts the requests of a play, and lets the armed one meet its fault."""

    def __init__(self, server: ForgetfulServer) -> None:
        self.server = server
        self.stage = IDLE
        self.counts: Counter[Place] = Counter()
        self.commands: dict[Place, set[str]] = {}
        self.last_heard: dict[tuple[int, bool], float] = {}
        """When each process last sent something, and something blocking; monotonic seconds."""
        self.met = threading.Event()
        """Set once the armed request has come."""
        self.what_happened: list[str] = []
        self.killed_pids: set[int] = set()
        self.serving = threading.Event()
        self.serving.set()
        self._armed: tuple[Point, Kind] | None = None
        self._memory: redis.Redis | None = None

    def begin(self, point: Point | None, kind: Kind | None) -> None:
        """Begins a play."""
        self.stage = IDLE
        self.counts.clear()
        self.commands.clear()
        self.what_happened.clear()
        self.killed_pids.clear()
        self.met.clear()
        self._armed = (point, kind) if point is not None and kind is not None else None

    # -- what the proxies ask ---------------------------------------------------------------------------------------

    def asked(self, request: Request) -> Kind | None:
        """Counts a request as it is sent."""
        self.last_heard[request.sender.pid, request.blocking] = time.monotonic()
        if request.name == "run begin_finalize" and self.stage == RUNNING:
            self.stage = FINALISING
        return self._count(request, request.name, by_answer=False)

    def answered(self, request: Request) -> Kind | None:
        """Counts a blocking request that brought something; looks for the end of the run."""
        kind = None
        if request.brought_something:
            name = naming.name_of_answer(request.commands, request.replies[0])
            kind = self._count(request, name, by_answer=True)
        if request.name == "run end_finalize" and self.stage == FINALISING:
            self.stage = AFTER
        return kind

    def _count(self, request: Request, name: str, *, by_answer: bool) -> Kind | None:
        role = request.sender.role
        place = Place(role, SUBMITTING if role == SUBMITTER else self.stage, name)
        self.counts[place] += 1
        if place not in self.commands:
            self.commands[place] = naming.commands_inside(request.commands)
        if self._armed is None or self._armed[0].place != place or self._armed[0].number != self.counts[place]:
            return None
        (point, kind), self._armed = self._armed, None
        words = [b" ".join(command.words)[:200].decode("utf-8", "replace") for command in request.commands]
        self.what_happened.append(f"{kind} at {point.id}: process {request.sender.pid} sent {' | '.join(words)[:600]}")
        if kind in {Kind.RESTART, Kind.LOSS}:
            self.serving.clear()
        self.met.set()
        assert not by_answer or kind in AFTER_THE_ANSWER
        return kind

    async def server_killed(self, *, lose_last_second: bool) -> None:
        """Kills the server and starts it again."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, lambda: self.server.come_back(lose_last_second=lose_last_second))
        self.serving.set()

    def killed(self, sender: Sender) -> None:
        """Kills a process."""
        self.killed_pids.add(sender.pid)
        if sender.pid:
            os.kill(sender.pid, signal.SIGKILL)

    def memory(self, *, full: bool) -> None:
        """Takes the server's memory away, or gives it back."""
        if self._memory is None:
            self._memory = redis.Redis.from_url(self.server.url)
        self._memory.config_set("maxmemory", "1" if full else "0")


# -- from recordings to points ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Recording:
    """What a play without a fault sent."""

    counts: dict[Place, int]
    commands: dict[Place, set[str]]


def points_of(recordings: Iterable[Recording]) -> list[Point]:
    """The points of some recordings: what was sent in two of them (if there are two), as often as where it was sent least."""
    recordings = list(recordings)
    counts: dict[Place, list[int]] = {}
    inside: dict[Place, set[str]] = {}
    for recording in recordings:
        for place, count in recording.counts.items():
            counts.setdefault(place, []).append(count)
            inside.setdefault(place, set()).update(recording.commands[place])
    least = {place: min(times) for place, times in counts.items() if len(times) > 1 or len(recordings) == 1}
    points = []
    for place in sorted(least, key=lambda place: (STAGES.index(place.stage), place.role, place.name)):
        commands = tuple(sorted(inside[place]))
        for which, number in _times(1 if place.stage in (IDLE, AFTER) else least[place]):
            points.append(Point(place.role, place.stage, place.name, which, number, commands))
    return points


def _times(count: int) -> list[tuple[str, int]]:
    times = [("first", 1)]
    if count > 2:
        times.append(("middle", (count + 1) // 2))
    if count > 1:
        times.append(("last", count))
    return times
