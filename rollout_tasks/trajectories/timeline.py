"""What a record says of when its events were and what the agent did: read line by line, without texts and pictures.

For whole trajectories, `reader` is the place. This one needs little memory, so that a run's thousands of records can be read,
and believes nothing of them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rollout_tasks.errors import UserError
from rollout_tasks.trajectories.plain_files import check_plain
from rollout_tasks.trajectories.reader import TrajectoryError
from rollout_tasks.trajectories.writer import FILE_KEY, RECORD_NAME

_MOST_BYTES = 2 << 30
"""Of one record: hundreds of turns with sampled tokens are far below."""
_LONGEST_LINE = 64 << 20
_LONGEST_SECONDS = 1e9
_MOST_TURN = 100_000


@dataclass(frozen=True, slots=True)
class Seen:
    """An observation: its text or the file that has it, and the files of its pictures; names only."""

    text: str = ""
    text_file: str | None = None
    images: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a record."""

    kind: str
    """``observation``, ``message``, ``reply`` or ``step``."""
    turn: int | None
    """The model's turn, from 1; None for what belongs to none."""
    seconds: float
    """What the model took for a reply, or the environment for a step; 0 for others."""
    at: float | None
    """When it had ended, in seconds since the epoch; None in records of earlier versions."""
    name: str = ""
    """Of a step: the tool."""
    arguments: str = ""
    """Of a step: its arguments as JSON with sorted keys."""
    response: str = ""
    """Of a step: how it ended, and what the environment said."""
    seen: Seen | None = None


def events(root: Path, attempt: Path) -> Iterator[Event]:
    """Yields the events of an attempt's record, in order; an incomplete last line is left out.

    Args:
        root: The run's folder, out of which nothing is read.
        attempt: The attempt's folder.

    Raises:
        FileNotFoundError: It has no record.
        TrajectoryError: A line is not one of a record.
        UserError: The record is no plain file, or is too large.
    """
    path = attempt / RECORD_NAME
    check_plain(root, path, _MOST_BYTES)
    try:
        with path.open("rb") as file:
            number = 0
            while line := file.readline(_LONGEST_LINE + 1):
                number += 1
                if not line.endswith(b"\n"):
                    if len(line) > _LONGEST_LINE:
                        raise TrajectoryError(f"{path}: line {number} is longer than {_LONGEST_LINE:,} bytes")
                    return
                try:
                    event = _event(json.loads(line))
                except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
                    raise TrajectoryError(f"{path}: line {number}: is not a line of a trajectory") from error
                if event is not None:
                    yield event
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error


def _event(line: Mapping[str, Any]) -> Event | None:
    kind = line["kind"]
    if kind == "observation":
        return Event(kind, None, 0.0, None, seen=_seen(line["observation"]))
    if kind == "message":
        reply = line.get("reply")
        if reply is None:
            return Event(kind, None, 0.0, _moment(line.get("at")))
        return Event("reply", _turn(line["turn"]), _seconds(reply["seconds"]), _moment(line.get("at")))
    if kind == "step":
        call, result = line["call"], line["result"]
        observation = result.get("observation")
        return Event(
            kind,
            _turn(line["turn"]),
            _seconds(line["seconds"]),
            _moment(line.get("at")),
            name=_text(call["name"]),
            arguments=json.dumps(call["arguments"], sort_keys=True, ensure_ascii=False),
            response=f"{_text(result['status'])}: {_text(result['response'])}",
            seen=None if observation is None else _seen(observation),
        )
    return None


def _seen(observation: Mapping[str, Any]) -> Seen:
    text, images = observation.get("text", ""), observation.get("images", ())
    names = tuple(map(_file_name, images))
    if isinstance(text, dict):
        return Seen("", _file_name(text[FILE_KEY]), names)
    return Seen(_text(text), None, names)


def _file_name(name: Any) -> str:
    """Returns the name of a file beside the record; any other would lead out of its folder."""
    if type(name) is not str or name in {"", ".", ".."} or "/" in name or "\0" in name:
        raise ValueError("not a file name")
    return name


def _text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError
    return value


def _turn(value: Any) -> int:
    if type(value) is not int or not 1 <= value <= _MOST_TURN:
        raise ValueError("not a turn")
    return value


def _seconds(value: Any) -> float:
    if type(value) not in {int, float} or not 0.0 <= value <= _LONGEST_SECONDS:
        raise ValueError("not a number of seconds")
    return float(value)


def _moment(value: Any) -> float | None:
    if value is None:
        return None
    if type(value) not in {int, float} or not math.isfinite(value):
        raise ValueError("not a moment")
    return float(value)
