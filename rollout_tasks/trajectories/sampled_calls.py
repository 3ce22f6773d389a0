"""Reads what was sampled in an attempt's model calls from its record, whichever kind of agent made them."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rollout_tasks.models.base import Message
from rollout_tasks.models.served import Served, VersionSpan
from rollout_tasks.trajectories.call_reader import read_calls
from rollout_tasks.trajectories.calls import CALLS_NAME, PICTURES_NAME
from rollout_tasks.trajectories.reader import RecordedReply, Trajectory, TrajectoryError, read_trajectory
from rollout_tasks.trajectories.traces import SampledCall
from rollout_tasks.trajectories.writer import FILE_KEY, RECORD_NAME, with_parts

_PICTURE_PARTS = frozenset({"computer_screenshot", "image", "image_url", "input_image"})
"""Types of parts of messages, in any API."""
_LARGEST_PICTURE = 1 << 28
"""Bytes."""


@dataclass(frozen=True, slots=True)
class SampledEpisode:
    """The calls of one attempt, as far as its agent got replies."""

    calls: tuple[SampledCall, ...]
    """In the order in which they began."""
    pictures: Mapping[str, Path]
    """The files of the pictures in their prompts, by SHA-256."""


def read_sampled(directory: Path) -> SampledEpisode:
    """Reads what was sampled in an attempt.

    Args:
        directory: The attempt's folder.

    Raises:
        CallRecordError: The record of OSWorld's own agents cannot be read.
        TrajectoryError: That of an agent of this project cannot be read, or a picture is missing or in no file.
    """
    is_session = (directory / CALLS_NAME).exists()
    record = directory / (CALLS_NAME if is_session else RECORD_NAME)
    if record.exists() and not record.is_file():  # reading a pipe would take for ever
        raise TrajectoryError(f"{record}: not a file")
    if is_session:
        return _of_session(directory)
    trajectory = read_trajectory(directory, images=False)
    pictures = _Pictures(directory, directory / RECORD_NAME, named_by_hash=False)
    calls = [_of_reply(trajectory, number, reply, pictures) for number, reply in enumerate(trajectory.replies, 1)]
    return SampledEpisode(tuple(calls), pictures.files)


def read_picture(path: Path) -> bytes:
    """Reads a picture of a record, which may come from elsewhere: a regular file that is no link.

    Raises:
        OSError: It is none, is too large, or cannot be read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_size > _LARGEST_PICTURE:
            raise OSError(0, "not a picture's file", str(path))
        return file.read(_LARGEST_PICTURE)


def _of_session(directory: Path) -> SampledEpisode:
    record = read_calls(directory, images=False)
    pictures = _Pictures(directory / PICTURES_NAME, directory / CALLS_NAME, named_by_hash=True)
    calls = [
        SampledCall(
            number=call.number,
            prompt_ids=call.sampled.prompt_ids,
            output_ids=call.sampled.output_ids,
            logprobs=call.sampled.logprobs,
            pictures=pictures.of(call.messages),
            spans=_spans(call.served, len(call.sampled.output_ids)),
            model=call.model,
            finish_reason=call.finish_reason,
        )
        for call in sorted(record.calls, key=lambda one: one.number)
        if call.outcome == "served"
    ]
    return SampledEpisode(tuple(calls), pictures.files)


def _of_reply(trajectory: Trajectory, number: int, reply: RecordedReply, pictures: _Pictures) -> SampledCall:
    output = _list(reply, "token_ids")
    at_start, at_end = (str(reply.served.get(name, "")) for name in ("version_at_start", "version_at_end"))
    return SampledCall(
        number=number,
        prompt_ids=_list(reply, "prompt_token_ids"),
        output_ids=output,
        logprobs=_list(reply, "logprobs"),
        pictures=pictures.of(trajectory.prompt(reply)),
        spans=_spans(Served("", at_start, at_end), len(output)),
        model=reply.served_by,
        finish_reason=reply.finish_reason,
    )


def _spans(served: Served, tokens: int) -> tuple[VersionSpan, ...]:
    """Returns with which versions an output was sampled; where weights changed meanwhile, that may not be known of any token."""
    known = served.version_at_start if served.version_at_start == served.version_at_end else ""
    return served.spans or (VersionSpan(known, 0, tokens),)


def _list(reply: RecordedReply, name: str) -> tuple[Any, ...]:
    tokens = reply.token_data
    found = tokens.get(name, ()) if isinstance(tokens, Mapping) else None
    if not isinstance(found, list | tuple):
        raise TrajectoryError(f"the reply of turn {reply.turn} has no list of {name}")
    return tuple(found)


class _Pictures:
    """The pictures in the prompts of one record."""

    def __init__(self, folder: Path, record: Path, *, named_by_hash: bool) -> None:
        self._folder = folder
        self._record = record
        self._named_by_hash = named_by_hash
        self._hashes: dict[str, str] = {}
        self.files: dict[str, Path] = {}

    def of(self, messages: Sequence[Message]) -> tuple[str, ...]:
        """Returns the SHA-256 of each picture in a prompt, in order."""
        found: list[str] = []

        def collect(part: Any) -> Any:
            found.extend(map(self._hash, _files_in(part, self._record)))
            return part

        for message in messages:
            if message.get("role") in {"system", "developer"}:  # whose pictures are in no file
                collect(message.get("content"))
            else:
                with_parts(message, collect)
        return tuple(found)

    def _hash(self, name: str) -> str:
        if name not in self._hashes:
            path = self._folder / name
            try:
                if path.parent != self._folder or path.name != name:
                    raise ValueError(f"{name!r} is not a file name")
                found = hashlib.sha256(read_picture(path)).hexdigest()
                if self._named_by_hash and path.stem != found:
                    raise ValueError(f"{path} has another content than its name says")
                self._hashes[name] = found
            except OSError as error:
                raise TrajectoryError(f"{self._record}: {path}: {error.strerror}") from error
            except ValueError as error:
                raise TrajectoryError(f"{self._record}: {error}") from error
            self.files[self._hashes[name]] = path
        return self._hashes[name]


def _files_in(part: Any, record: Path) -> Iterator[str]:
    """Yields the files of the pictures in a part of a message."""
    if isinstance(part, list):
        for inner in part:
            yield from _files_in(inner, record)
    elif isinstance(part, dict):
        if FILE_KEY in part:
            yield str(part[FILE_KEY])
        elif part.get("type") in _PICTURE_PARTS and not _has_file(part):
            raise TrajectoryError(f"{record}: a prompt has a picture that is in no file")
        else:
            for inner in part.values():
                yield from _files_in(inner, record)


def _has_file(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(_has_file, value))
    return isinstance(value, dict) and (FILE_KEY in value or any(map(_has_file, value.values())))
