"""Where two rollouts of one item part: the first step at which the agents did something else, and whether they saw the same."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from rollout_tasks.trajectories.plain_files import check_plain
from rollout_tasks.trajectories.reader import TrajectoryError
from rollout_tasks.trajectories.timeline import Event, Seen, events

_LONGEST_ACTION = 200
"""Characters of a step that are shown."""
_MOST_BYTES = 64 << 20
"""Of a picture, or of a text that was seen."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """How two rollouts of one item part."""

    step: int | None
    """The first step whose calls differ, from 1; None if they are the same to the end."""
    first: str | None
    """What the first rollout did in that step; None if it had ended before, or none differs."""
    second: str | None
    seen_after: int | None
    """The first step before that one after which they saw something else; 0 for what they saw first. None if they saw the same."""
    steps: tuple[int, int]
    """How many steps each has."""


@dataclass(frozen=True, slots=True)
class Record:
    """Where a rollout's record is."""

    root: Path
    """The run's folder."""
    attempt: Path


def first_divergence(first: Record, second: Record) -> Divergence:
    """Compares two rollouts step by step: tool and arguments, then what the environment answered and showed.

    Args:
        first: One rollout.
        second: The other one.

    Raises:
        FileNotFoundError: One has no record.
        TrajectoryError: A record is broken.
        UserError: A file of one must not be read.
    """
    ones, others = ([*_shown(record)] for record in (first, second))
    steps = (_count(ones), _count(others))
    action = _first_difference(ones, others)
    until = action if action is not None else min(steps) + 1
    seen_after = None
    for number in range(min(until, len(ones), len(others))):
        if _answer(first, ones[number]) != _answer(second, others[number]):
            seen_after = number
            break
    if action is None:
        return Divergence(None, None, None, seen_after, steps)
    return Divergence(action, _action_at(ones, action), _action_at(others, action), seen_after, steps)


def _shown(record: Record) -> Iterable[Event]:
    """Yields the first observation, or an empty one, and the steps: each at the place of its number."""
    pending: Event | None = Event("observation", None, 0.0, None)
    for event in events(record.root, record.attempt):
        if event.kind == "observation":
            pending = event
        elif event.kind == "step":
            if pending is not None:
                yield pending
                pending = None
            yield event
    if pending is not None:
        yield pending


def _count(shown: Sequence[Event]) -> int:
    return len(shown) - 1


def _first_difference(ones: Sequence[Event], others: Sequence[Event]) -> int | None:
    for number, (one, other) in enumerate(zip_longest(ones, others)):
        if one is None or other is None or (one.name, one.arguments) != (other.name, other.arguments):
            return number
    return None


def _action_at(shown: Sequence[Event], number: int) -> str | None:
    if number >= len(shown):
        return None
    text = f"{shown[number].name}({shown[number].arguments})"
    return text if len(text) <= _LONGEST_ACTION else f"{text[: _LONGEST_ACTION - 1]}…"


def _answer(record: Record, event: Event) -> tuple[str, bytes]:
    return event.response, b"" if event.seen is None else _digest(record, event.seen)


def _digest(record: Record, seen: Seen) -> bytes:
    """Returns a digest of the text that was seen; where there is none, of the pictures, which differ by a clock's minute."""
    if seen.text_file is not None:
        return _digest_of_file(record, seen.text_file)
    if seen.text:
        return hashlib.sha256(seen.text.encode("utf-8", "surrogatepass")).digest()
    return b"".join(_digest_of_file(record, name) for name in seen.images)


def _digest_of_file(record: Record, name: str) -> bytes:
    path = record.attempt / name
    try:
        check_plain(record.root, path, _MOST_BYTES)
        return hashlib.sha256(path.read_bytes()).digest()
    except OSError as error:
        raise TrajectoryError(f"{path}: {error.strerror}") from error
