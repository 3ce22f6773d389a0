"""Many plays: which, on how many playgrounds at a time, and a ledger of those done, so that a session can be interrupted."""

from __future__ import annotations

import json
import queue
import random
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from tests.faults.kinds import Flags, Kind
from tests.faults.play import Outcome, Play
from tests.faults.playground import Playground
from tests.faults.points import Point, points_of

RECORDINGS = 3
_PLAYS_PER_PLAYGROUND = 150
"""After so many a playground is made anew: its server's append-only file grows."""
_TRIES = 2
"""How often a point is looked for, at most."""


@dataclass(frozen=True, slots=True)
class Task:
    """One play to do."""

    point: Any
    """Of the game's own kind; has an ``id``."""
    kind: str


class Game(Protocol):
    """Where the faults happen: on the way to Redis (`Requests`), in the file system (files.py), or everywhere (monkey.py)."""

    where: str
    """As in `Outcome`."""

    def play(self, ground: Playground, name: str, task: Task) -> Outcome:
        """Plays once."""


@runtime_checkable
class Recorded(Game, Protocol):
    """A game whose points come from plays without a fault."""

    def record(self, play: Callable[[], str], ground: Playground, times: int) -> list[tuple[Any, list[str]]]:
        """Plays without a fault; returns the points, each with its kinds."""

    def point(self, values: dict[str, Any]) -> Any:
        """A point from its fields."""


class Requests:
    """Faults on the way to Redis."""

    where = ""

    def record(self, play: Callable[[], str], ground: Playground, times: int) -> list[tuple[Any, list[str]]]:
        """See `Recorded`. The first play loads scripts and makes connections that last, and does not count."""
        Play(ground, play()).record()
        points = points_of([Play(ground, play()).record() for _ in range(times)])
        flags = Flags(ground.client)
        return [(point, [str(kind) for kind in point.kinds(flags)]) for point in points]

    def point(self, values: dict[str, Any]) -> Point:
        """See `Recorded`."""
        return Point(**{**values, "commands": tuple(values["commands"])})

    def play(self, ground: Playground, name: str, task: Task) -> Outcome:
        """See `Game`."""
        return Play(ground, name).run(task.point, Kind(task.kind))


class Session:
    """A folder with the points, the ledger of plays and what was kept of those that went wrong.

    Args:
        folder: Made when it is not there.
        game: Where faults happen; default: on the way to Redis.
        recordings: How many plays without a fault say which points there are.
    """

    def __init__(self, folder: Path, *, game: Game | None = None, recordings: int = RECORDINGS) -> None:
        self.folder = folder
        self._game = game or Requests()
        self._recordings = recordings
        self._lock = threading.Lock()
        self._grounds = 0
        self._plays = 0
        folder.mkdir(parents=True, exist_ok=True)

    def say(self, line: str) -> None:
        """Tells whoever watches."""
        print(line, file=sys.stderr, flush=True)

    @property
    def ledger(self) -> Path:
        """One JSON object a play."""
        return self.folder / "ledger.jsonl"

    def outcomes(self) -> list[Outcome]:
        """The plays done so far."""
        if not self.ledger.exists():
            return []
        return [Outcome(**json.loads(line)) for line in self.ledger.read_text().splitlines()]

    def tasks(self) -> list[Task]:
        """Every play there is: recorded once, then read."""
        game = self._game
        assert isinstance(game, Recorded)
        path = self.folder / "points.jsonl"
        if not path.exists():
            ground = self._playground()
            try:
                found = game.record(self._name, ground, self._recordings)
            finally:
                self._end(ground)
            path.write_text("".join(json.dumps([asdict(point), kinds]) + "\n" for point, kinds in found))
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        return [Task(game.point(values), kind) for values, kinds in rows for kind in kinds]

    def run(self, tasks: Sequence[Task], *, jobs: int, until: float | None = None) -> list[Outcome]:
        """Plays, `jobs` at a time.

        Args:
            tasks: What to play.
            jobs: Playgrounds at a time.
            until: Monotonic time after which no other play is begun.

        Returns:
            How each ended, in the order of their ends.
        """
        waiting: queue.SimpleQueue[Task] = queue.SimpleQueue()
        for task in tasks:
            waiting.put(task)
        done: list[Outcome] = []
        broken: list[BaseException] = []

        def play_on() -> None:
            try:
                self._play_from(waiting, done, len(tasks), until)
            except BaseException as error:  # noqa: BLE001 (raised again below)
                broken.append(error)

        threads = [threading.Thread(target=play_on, name=f"playground {number}") for number in range(jobs)]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                while thread.is_alive():
                    thread.join(0.5)
        except KeyboardInterrupt:
            while not waiting.empty():
                waiting.get()
            raise
        if broken:
            raise broken[0]
        return done

    def _play_from(
        self, waiting: queue.SimpleQueue[Task], done: list[Outcome], total: int, until: float | None
    ) -> None:
        ground: Playground | None = None
        plays = 0
        try:
            while until is None or time.monotonic() < until:
                try:
                    task = waiting.get_nowait()
                except queue.Empty:
                    return
                if ground is None:
                    ground, plays = self._playground(), 0
                outcome = self._play_one(ground, task)
                plays += 1
                with self._lock:
                    done.append(outcome)
                    with self.ledger.open("a") as ledger:
                        ledger.write(json.dumps(asdict(outcome)) + "\n")
                    self._report(outcome, len(done), total)
                if outcome.result == "wrong" or plays >= _PLAYS_PER_PLAYGROUND:
                    ground, ended = None, ground
                    self._end(ended)
        finally:
            if ground is not None:
                self._end(ground)

    def _play_one(self, ground: Playground, task: Task) -> Outcome:
        outcome = None
        for _ in range(_TRIES):
            name = self._name()
            try:
                outcome = self._game.play(ground, name, task)
            except Exception as error:  # noqa: BLE001 (the border to what is judged: whatever broke the play is a finding)
                outcome = Outcome(task.point.id, task.kind, "wrong", 0.0, [f"the play broke: {error!r}"])
            outcome.where = self._game.where
            if outcome.result == "wrong":
                kept = self.folder / "wrong" / name
                ground.keep(name, kept)
                (kept / "outcome.json").write_text(json.dumps(asdict(outcome), indent=1))
                outcome.logs = str(kept)
            if outcome.result != "not met":
                break
        assert outcome is not None
        return outcome

    def _report(self, outcome: Outcome, number: int, total: int) -> None:
        self.say(f"{number}/{total} {outcome.result}: {outcome.kind} at {outcome.point} ({outcome.seconds} s)")
        if outcome.result == "wrong":
            for problem in outcome.problems:
                self.say(f"    {problem[:600]}")
            self.say(f"    logs: {outcome.logs}\n    again: {outcome.again}")

    def _name(self) -> str:
        with self._lock:
            self._plays += 1
            return f"play-{time.strftime('%H%M%S')}-{self._plays}"

    def _playground(self) -> Playground:
        with self._lock:
            self._grounds += 1
            folder = self.folder / "grounds" / f"{time.strftime('%H%M%S')}-{self._grounds}"
        ground = Playground(folder)
        try:
            ground.start()
        except BaseException:
            ground.end()
            raise
        return ground

    def _end(self, ground: Playground) -> None:
        ground.end()
        shutil.rmtree(ground.folder, ignore_errors=True)


def chosen(
    tasks: Iterable[Task],
    *,
    points: Sequence[str] = (),
    kinds: Sequence[str] = (),
    seed: int = 0,
    shard: tuple[int, int] = (1, 1),
    limit: int | None = None,
    done: Iterable[Outcome] = (),
) -> list[Task]:
    """A part of the plays, in an order drawn by a seed.

    Args:
        tasks: All.
        points: Parts of points' names; a whole name means that point alone. None given: all points.
        kinds: Names of kinds; none given: all kinds.
        seed: Draws the order.
        shard: Which of how many equal parts, counted from 1.
        limit: How many at most.
        done: What need not be played again.
    """
    every = list(tasks)
    ids = {task.point.id for task in every}
    wanted = [
        task
        for task in every
        if not points or any(part == task.point.id or (part not in ids and part in task.point.id) for part in points)
    ]
    wanted = [task for task in wanted if not kinds or task.kind in kinds]
    random.Random(seed).shuffle(wanted)
    number, of = shard
    over = {(outcome.point, outcome.kind) for outcome in done}
    mine = [task for task in wanted[number - 1 :: of] if (task.point.id, task.kind) not in over]
    return mine[:limit]
