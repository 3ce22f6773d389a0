"""What the service loop has begun and ended, in a file: where it goes on after it was stopped or killed.

`journal.jsonl` has one line for each beginning and each end of a group; a line is durable before what it says is done.
"""

from __future__ import annotations

import errno
import json
import os
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rollout_tasks.errors import UserError
from rollout_tasks.training.sampling_policy import PastRollout

JOURNAL_NAME = "journal.jsonl"
_REMEMBERED = 64
"""Rollouts of an item that a sampling policy gets to see."""


@dataclass(frozen=True, slots=True)
class Begun:
    """A group that was begun."""

    number: int
    """From 1, in the order in which groups begin."""
    key: str
    """What its source calls it: no two groups have the same."""
    item_id: str
    run_id: str
    rollouts: int
    max_turns: int


@dataclass(frozen=True, slots=True)
class Ended:
    """How a group ended."""

    number: int
    rewards: Sequence[float] = ()
    """Those of the rollouts that count."""
    turns: Sequence[int] = ()
    """The turns of each of them."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """How many others there were, by the reason."""
    stopped_early: bool = False
    """Whether its other rollouts were cancelled, because the policy found the group large enough."""


class Journal:
    """The journal of one service loop."""

    def __init__(self, folder: Path) -> None:
        """Reads what there is.

        Args:
            folder: The loop's folder, which exists.

        Raises:
            UserError: The file cannot be read, or has a line that no journal has.
        """
        self.under_way: dict[int, Begun] = {}
        """The groups that were begun and not ended, by their numbers."""
        self.keys: set[str] = set()
        """Of all groups that were begun."""
        self.last_number = 0
        self.ended = 0
        self.rewards = 0
        """How many rollouts counted."""
        self._path = folder / JOURNAL_NAME
        self._past: defaultdict[str, deque[PastRollout]] = defaultdict(lambda: deque(maxlen=_REMEMBERED))
        self._read()

    def past(self, item_id: str) -> list[PastRollout]:
        """Returns the newest rollouts of an item that count, the oldest of them first."""
        return list(self._past[item_id])

    def begin(self, begun: Begun) -> None:
        """Writes down that a group is about to be submitted.

        Raises:
            OSError: It cannot be written.
        """
        self._append({"kind": "begun", **asdict(begun)})
        self._take_begun(begun)

    def end(self, ended: Ended) -> None:
        """Writes down how a group ended.

        Raises:
            OSError: It cannot be written.
        """
        if ended.number in self.under_way:
            self._append({"kind": "ended", **asdict(ended)})
            self._take_ended(ended)

    def withdraw(self, number: int) -> None:
        """Writes down that a group was never submitted; its source may offer it again.

        Raises:
            OSError: It cannot be written.
        """
        self._append({"kind": "withdrawn", "number": number})
        self._take_withdrawn(number)

    def _take_begun(self, begun: Begun) -> None:
        self.under_way[begun.number] = begun
        self.keys.add(begun.key)
        self.last_number = max(self.last_number, begun.number)

    def _take_ended(self, ended: Ended) -> None:
        begun = self.under_way.pop(ended.number, None)
        if begun is None:
            if not 0 < ended.number <= self.last_number:
                raise ValueError(f"group {ended.number} was never begun")
            return  # said before: what came after it failed
        self.ended += 1
        self.rewards += len(ended.rewards)
        self._past[begun.item_id].extend(map(PastRollout, ended.rewards, ended.turns))

    def _take_withdrawn(self, number: int) -> None:
        self.keys.discard(self.under_way.pop(number).key)
        if number == self.last_number:
            self.last_number -= 1

    def _append(self, line: Mapping[str, Any]) -> None:
        data = json.dumps(line).encode() + b"\n"
        with self._path.open("ab", buffering=0) as file:
            before = file.tell()
            try:
                if file.write(data) != len(data):
                    raise OSError(errno.ENOSPC, "no room for the whole line", str(self._path))
                os.fsync(file.fileno())
            except OSError:
                file.truncate(before)
                raise

    def _read(self) -> None:
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            raise UserError(f"{self._path}: {error.strerror}") from error
        whole = data[: data.rfind(b"\n") + 1]
        if len(whole) < len(data):  # cut off by a kill: what it would have said was not done
            os.truncate(self._path, len(whole))
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                self._take(json.loads(line))
            except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
                raise UserError(f"{self._path}: line {number} is not one of a journal: {error}") from error

    def _take(self, line: dict[str, Any]) -> None:
        match line.pop("kind"):
            case "begun":
                self._take_begun(Begun(**line))
            case "ended":
                self._take_ended(Ended(**line))
            case "withdrawn":
                self._take_withdrawn(line["number"])
            case unknown:
                raise ValueError(f"unknown kind {unknown!r}")
