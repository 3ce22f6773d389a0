"""Reads what was sampled in an attempt's model calls from its record, whichever kind of agent made them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from rollout_tasks.models.base import Message
from rollout_tasks.models.served import VersionSpan
from rollout_tasks.trajectories.call_reader import read_calls
from rollout_tasks.trajectories.calls import CALLS_NAME, PICTURES_NAME
from rollout_tasks.trajectories.data_urls import KINDS
from rollout_tasks.trajectories.reader import RecordedReply, Trajectory, TrajectoryError, read_trajectory
from rollout_tasks.trajectories.traces import SampledCall
from rollout_tasks.trajectories.writer import FILE_KEY, RECORD_NAME, with_parts


def sampled_calls(directory: Path) -> list[SampledCall]:
    """Returns the calls whose replies an attempt's agent got, in the order in which they began.

    Args:
        directory: The attempt's folder.

    Raises:
        CallRecordError: The record of a session cannot be read.
        TrajectoryError: The record of an agent of this project cannot be read, or a picture of it is missing.
    """
    if (directory / CALLS_NAME).exists():
        return _of_session(directory)
    trajectory = read_trajectory(directory, images=False)
    return [_of_reply(directory, trajectory, number, reply) for number, reply in enumerate(trajectory.replies, 1)]


def picture_files(directory: Path) -> dict[str, Path]:
    """Returns the files of an attempt's pictures by their SHA-256."""
    folder = directory / PICTURES_NAME if (directory / CALLS_NAME).exists() else directory
    return (
        {_hash(folder, path.name): path for path in sorted(folder.iterdir()) if path.suffix.removeprefix(".") in KINDS}
        if folder.is_dir()
        else {}
    )


def _of_session(directory: Path) -> list[SampledCall]:
    record = read_calls(directory, images=False)
    return [
        SampledCall(
            number=call.number,
            prompt_ids=call.sampled.prompt_ids,
            output_ids=call.sampled.output_ids,
            logprobs=call.sampled.logprobs,
            pictures=record.pictures[call.number],
            spans=call.served.spans,
        )
        for call in sorted(record.calls, key=lambda one: one.number)
        if call.outcome == "served"
    ]


def _of_reply(directory: Path, trajectory: Trajectory, number: int, reply: RecordedReply) -> SampledCall:
    tokens = reply.token_data
    output = tuple(tokens.get("token_ids", ()))
    at_start, at_end = (reply.served.get(name, "") for name in ("version_at_start", "version_at_end"))
    known = (
        bool(at_start) and at_start == at_end
    )  # changed meanwhile: by which weights each token was sampled is not known
    return SampledCall(
        number=number,
        prompt_ids=tuple(tokens.get("prompt_token_ids", ())),
        output_ids=output,
        logprobs=tuple(tokens.get("logprobs", ())),
        pictures=tuple(_hash(directory, name) for name in _pictures(trajectory.prompt(reply))),
        spans=(VersionSpan(at_start, 0, len(output)),) if known else (),
    )


def _pictures(messages: list[Message]) -> list[str]:
    """Returns the files of the pictures in a prompt, in order."""
    found: list[str] = []

    def collect(part: Any) -> Any:
        found.extend(_files_in(part))
        return part

    for message in messages:
        with_parts(message, collect)
    return found


def _files_in(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        if FILE_KEY in part:
            yield str(part[FILE_KEY])
        else:
            for inner in part.values():
                yield from _files_in(inner)
    elif isinstance(part, list):
        for inner in part:
            yield from _files_in(inner)


def _hash(directory: Path, name: str) -> str:
    path = directory / name
    if path.parent != directory or name == "..":
        raise TrajectoryError(f"{directory / RECORD_NAME}: {name!r} is not a file name")
    try:
        return _hash_of(path, path.stat().st_mtime_ns)
    except OSError as error:
        raise TrajectoryError(f"{directory / RECORD_NAME}: {path}: {error.strerror}") from error


@lru_cache(maxsize=4096)
def _hash_of(path: Path, _changed: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
