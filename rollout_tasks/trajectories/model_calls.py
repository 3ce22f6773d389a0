"""Reads an attempt's model calls as messages, whichever kind of agent made them: what the model was sent, and what it replied.

Pictures are named by their content: messages have ``{"$file": "<SHA-256>.png"}`` where they had a picture's data, in any API.
`sampled_calls` reads the same calls as tokens.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rollout_tasks.models.base import THINKING_FIELDS, Message
from rollout_tasks.models.served_call import ServedCall
from rollout_tasks.trajectories.call_reader import CallRecord, read_calls
from rollout_tasks.trajectories.calls import CALLS_NAME, PICTURES_NAME
from rollout_tasks.trajectories.data_urls import KINDS
from rollout_tasks.trajectories.reader import RecordedReply, Trajectory, TrajectoryError, read_trajectory
from rollout_tasks.trajectories.sampled_calls import read_picture
from rollout_tasks.trajectories.writer import FILE_KEY, RECORD_NAME, with_parts
from rollout_tasks.unicode_text import storable, storable_json

_PICTURE_PARTS = frozenset({"computer_screenshot", "image", "image_url", "input_image"})
"""Types of parts of messages, in any API."""
_DEEPEST = 60
"""How deeply messages and tools may be nested."""


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One call that was replied to."""

    number: int
    """In its episode, from 1."""
    prompt: tuple[Message, ...]
    reply: Message
    """The model's message, without thinking that its endpoint wrote in a field of its own."""
    thinking: str
    """That thinking; empty if there was none."""
    tools: tuple[Mapping[str, Any], ...]
    """The tools on offer, as sent; empty in records of earlier versions."""
    model: str
    """The name that the endpoint gave."""
    finish_reason: str
    turn: int = 0
    """The agent's turn, from 1; 0 if that is not known."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    token_data: Mapping[str, Any] = field(default_factory=dict)
    """``prompt_token_ids``, ``token_ids`` and ``logprobs`` where the endpoint told them."""
    at: float | None = None
    """When the reply came, in seconds since the epoch; None in records of earlier versions."""


@dataclass(frozen=True, slots=True)
class CalledEpisode:
    """The calls of one attempt."""

    calls: tuple[ModelCall, ...]
    """In the order in which they were made."""
    pictures: PictureFiles
    """The pictures in their messages, and others beside the record that somebody asks for."""
    trajectory: Trajectory | None
    """The whole record of an agent of this project; None for a session of another program."""


def read_model_calls(directory: Path) -> CalledEpisode:
    """Reads the calls of an attempt.

    Args:
        directory: The attempt's folder.

    Raises:
        CallRecordError: The record of a session cannot be read.
        TrajectoryError: That of an agent cannot be read, or a picture is missing or in no file.
        ValueError: Messages are nested too deeply.
    """
    is_session = not (directory / RECORD_NAME).exists() and (directory / CALLS_NAME).exists()
    record = directory / (CALLS_NAME if is_session else RECORD_NAME)
    if record.exists() and not record.is_file():  # reading a pipe would take for ever
        raise TrajectoryError(f"{record}: not a file")
    if is_session:
        return _of_session(read_calls(directory, images=False), _Messages(directory / PICTURES_NAME, record))
    trajectory = read_trajectory(directory, images=False)
    messages = _Messages(directory, record)
    calls = [_of_reply(trajectory, number, reply, messages) for number, reply in enumerate(trajectory.replies, 1)]
    return CalledEpisode(tuple(calls), messages.pictures, trajectory)


class PictureFiles:
    """The pictures beside one record, named by their content."""

    def __init__(self, folder: Path, record: Path) -> None:
        self._folder = folder
        self._record = record
        self._names: dict[str, str] = {}
        self.files: dict[str, Path] = {}
        """By name: the SHA-256 and the kind, as in ``<SHA-256>.png``."""

    def name(self, file_name: str) -> str:
        """Returns a picture's name.

        Args:
            file_name: What the record calls it.

        Raises:
            TrajectoryError: It is not a picture's file beside the record.
        """
        if file_name not in self._names:
            path = self._folder / file_name
            kind = path.suffix.removeprefix(".")
            if path.parent != self._folder or path.name != file_name or kind not in KINDS:
                raise TrajectoryError(f"{self._record}: {file_name!r} is not the name of a picture's file")
            try:
                found = f"{hashlib.sha256(read_picture(path)).hexdigest()}.{kind}"
            except OSError as error:
                raise TrajectoryError(f"{self._record}: {path}: {error.strerror}") from error
            self._names[file_name] = found
            self.files.setdefault(found, path)
        return self._names[file_name]


class _Messages:
    """Names the pictures in messages; each message is read once, however many prompts have it."""

    def __init__(self, folder: Path, record: Path) -> None:
        self._record = record
        self.pictures = PictureFiles(folder, record)
        self._known: dict[int, tuple[Any, Any]] = {}
        """By identity; the message itself is kept, so that no other gets its identity."""

    def of(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """Returns messages with their pictures named, and text that files can hold."""
        return tuple(map(self.one, messages))

    def one(self, message: Message) -> Message:
        """Returns one message, likewise."""
        known = self._known.get(id(message))
        if known is None:
            known = self._known[id(message)] = (message, with_parts(_storable(message), self._named))
        found: Message = known[1]
        return found

    def tools(self, tools: Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
        """Returns tools with text that files can hold."""
        if not tools:
            return ()
        known = self._known.get(id(tools))
        if known is None:
            known = self._known[id(tools)] = (tools, tuple(_storable(dict(tool)) for tool in tools))
        found: tuple[Mapping[str, Any], ...] = known[1]
        return found

    def _named(self, part: Any) -> Any:
        if isinstance(part, list):
            return [self._named(inner) for inner in part]
        if not isinstance(part, dict):
            return part
        if FILE_KEY in part:
            return {FILE_KEY: self.pictures.name(str(part[FILE_KEY]))}
        kind = part.get("type")
        if isinstance(kind, str) and kind in _PICTURE_PARTS and not _has_file(part):
            raise TrajectoryError(f"{self._record}: a prompt has a picture that is in no file")
        return {name: self._named(inner) for name, inner in part.items()}


def _storable(message: Message) -> Message:
    found: Message = storable_json(message, _DEEPEST)
    return found


def _has_file(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(_has_file, value))
    return isinstance(value, dict) and (FILE_KEY in value or any(map(_has_file, value.values())))


def _of_reply(trajectory: Trajectory, number: int, reply: RecordedReply, messages: _Messages) -> ModelCall:
    return ModelCall(
        number=number,
        prompt=messages.of(trajectory.prompt(reply)),
        reply=_storable(trajectory.messages[reply.message_index]),
        thinking=_thinking(reply.thinking),
        tools=messages.tools(reply.tools),
        model=reply.served_by,
        finish_reason=reply.finish_reason,
        turn=reply.turn,
        prompt_tokens=reply.prompt_tokens,
        completion_tokens=reply.completion_tokens,
        token_data=reply.token_data,
        at=reply.at,
    )


def _of_session(record: CallRecord, messages: _Messages) -> CalledEpisode:
    served = sorted((call for call in record.calls if call.outcome == "served"), key=lambda call: call.number)
    return CalledEpisode(tuple(_of_served(call, messages) for call in served), messages.pictures, None)


def _of_served(call: ServedCall, messages: _Messages) -> ModelCall:
    said = _storable(call.reply or {})
    sampled = call.sampled
    tokens = {
        "prompt_token_ids": sampled.prompt_ids,
        "token_ids": sampled.output_ids,
        "logprobs": sampled.logprobs,
    }
    return ModelCall(
        number=call.number,
        prompt=messages.of(call.messages),
        reply={name: value for name, value in said.items() if name not in THINKING_FIELDS},
        thinking=_thinking(said),
        tools=messages.tools(call.tools),
        model=call.model,
        finish_reason=call.finish_reason,
        prompt_tokens=call.usage.prompt_tokens,
        completion_tokens=call.usage.completion_tokens,
        token_data={name: list(values) for name, values in tokens.items() if values},
        at=call.ended,
    )


def _thinking(fields: Mapping[str, Any]) -> str:
    """Returns thinking that an endpoint wrote in fields of its own; some write the same in two."""
    texts = [text for name in THINKING_FIELDS if isinstance(text := fields.get(name), str) and text]
    return storable(texts[0]) if texts else ""
