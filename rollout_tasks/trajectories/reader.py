"""Reads an episode's record back: whole, or up to the last complete line when its writer was killed. Writes nothing."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rollout_tasks.models.base import CUT_OFF, THINKING_FIELDS, Message
from rollout_tasks.models.sent_messages import LeftOut, sent_messages
from rollout_tasks.trajectories.data_urls import data_url
from rollout_tasks.trajectories.writer import FILE_KEY, RECORD_NAME, with_parts


class TrajectoryError(Exception):
    """A record cannot be read: one sentence naming file and line."""


@dataclass(frozen=True, slots=True)
class RecordedObservation:
    """One observation; pictures are paths."""

    text: str = ""
    images: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """One executed call."""

    number: int
    """From 1, over the whole episode."""
    turn: int
    """The model's turn that asked for it, from 1."""
    call_id: str
    name: str
    arguments: Mapping[str, Any]
    status: str
    response: str
    observation: RecordedObservation | None
    ends_episode: str | None
    seconds: float
    at: float | None = None
    """When it had ended, in seconds since the epoch; None in records of earlier versions."""


@dataclass(frozen=True, slots=True)
class RecordedReply:
    """What is known of one of the model's messages, besides the message."""

    turn: int
    message_index: int
    """Where in `Trajectory.messages` the message stands."""
    finish_reason: str
    served_by: str
    prompt_tokens: int
    completion_tokens: int
    requests: int
    seconds: float
    token_data: Mapping[str, Any]
    thinking: Mapping[str, str]
    """What the model thought before it replied, by the fields in which the endpoint wrote it."""
    left_out: LeftOut
    """What its prompt did not have of the messages before it. Records of earlier versions: nothing but thinking was left out."""
    sent: tuple[Message, ...] | None = None
    """Its prompt, where that was recorded whole."""
    served: Mapping[str, str] = field(default_factory=dict)
    """Which replica of a model pool answered, and its weights at the start and the end; empty without a pool."""
    tools: tuple[Mapping[str, Any], ...] = ()
    """The tools that it was offered, as sent; empty in records of earlier versions."""
    at: float | None = None
    """When it came, in seconds since the epoch; None in records of earlier versions."""


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One episode as recorded."""

    header: Mapping[str, Any]
    first_observation: RecordedObservation | None
    messages: tuple[Message, ...]
    """The whole conversation; with `images=False`, pictures are ``{"$file": name}`` in place of their data URL."""
    replies: tuple[RecordedReply, ...]
    steps: tuple[RecordedStep, ...]
    torn: str | None
    """A sentence if the last line was incomplete and dropped."""

    def prompt(self, reply: RecordedReply) -> list[Message]:
        """Returns the messages that the model was sent for one of its replies, exactly as sent.

        Args:
            reply: One of `replies`.
        """
        if reply.sent is not None:
            return list(reply.sent)
        thinking = {known.message_index: known.thinking for known in self.replies}
        cut_off = {known.message_index for known in self.replies if known.finish_reason == CUT_OFF}
        return sent_messages(self.messages[: reply.message_index], thinking, reply.left_out, cut_off)


def read_trajectory(directory: Path, *, images: bool = True) -> Trajectory:
    """Reads one attempt's record.

    Args:
        directory: The attempt's folder.
        images: Whether to put pictures back into the messages, or leave them on disk.

    Raises:
        TrajectoryError: There is no record, a line other than an incomplete last one is invalid, or a file that it
            names is missing.
    """
    path = directory / RECORD_NAME
    try:
        data = path.read_bytes()
    except OSError as error:
        raise TrajectoryError(f"{path}: {error.strerror}") from error
    lines = data.split(b"\n")
    last = lines.pop()
    torn = f"{path}: line {len(lines) + 1} is cut off and was dropped" if last else None
    builder = _Builder(directory, images)
    for number, line in enumerate(lines, start=1):
        try:
            builder.add(json.loads(line))
        except TrajectoryError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
            reason = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
            raise TrajectoryError(f"{path}: line {number}: not a line of a trajectory: {reason}") from error
        except OSError as error:
            raise TrajectoryError(f"{path}: line {number}: {error.filename}: {error.strerror}") from error
    return builder.build(torn)


class _Builder:
    """Collects lines into a `Trajectory`."""

    def __init__(self, directory: Path, images: bool) -> None:
        self._directory = directory
        self._with_images = images
        self._header: Mapping[str, Any] = {}
        self._first: RecordedObservation | None = None
        self._messages: list[Message] = []
        self._sent: list[Message] = []
        self._offered: list[tuple[Mapping[str, Any], ...]] = []
        self._replies: list[RecordedReply] = []
        self._steps: list[RecordedStep] = []

    def add(self, line: dict[str, Any]) -> None:
        match line["kind"]:
            case "start":
                self._header = line["header"]
            case "observation":
                self._first = self._observation(line["observation"])
            case "message":
                self._add_message(line)
            case "sent":
                self._add_sent(line)
            case "tools":
                self._add_tools(line)
            case "step":
                self._steps.append(self._step(line))
            case unknown:
                raise ValueError(f"unknown kind {unknown!r}")

    def build(self, torn: str | None) -> Trajectory:
        return Trajectory(
            self._header, self._first, tuple(self._messages), tuple(self._replies), tuple(self._steps), torn
        )

    def _add_message(self, line: dict[str, Any]) -> None:
        if line["index"] != len(self._messages):
            raise ValueError(f"message {line['index']} where message {len(self._messages)} belongs")
        self._messages.append(self._with_pictures(line["message"]))
        if "reply" in line:
            facts = line["reply"]
            self._replies.append(
                RecordedReply(
                    turn=line["turn"],
                    message_index=line["index"],
                    finish_reason=facts["finish_reason"],
                    served_by=facts["served_by"],
                    prompt_tokens=facts["usage"]["prompt_tokens"],
                    completion_tokens=facts["usage"]["completion_tokens"],
                    requests=facts["requests"],
                    seconds=facts["seconds"],
                    token_data=facts.get("token_data", {}),
                    thinking=_thinking(facts.get("thinking", {})),
                    left_out=_left_out(facts.get("left_out")),
                    sent=None if facts.get("prompt") is None else tuple(map(self._sent_message, facts["prompt"])),
                    served=dict(facts.get("served", {})),
                    tools=self._tools(facts.get("tools")),
                    at=_moment(line),
                )
            )

    def _add_sent(self, line: dict[str, Any]) -> None:
        if line["number"] != len(self._sent):
            raise ValueError(f"message {line['number']} of prompts where message {len(self._sent)} belongs")
        self._sent.append(self._with_pictures(line["message"]))

    def _sent_message(self, number: Any) -> Message:
        if type(number) is not int or not 0 <= number < len(self._sent):
            raise ValueError(f"no message of prompts before has number {number!r}")
        return self._sent[number]

    def _add_tools(self, line: dict[str, Any]) -> None:
        if line["number"] != len(self._offered):
            raise ValueError(f"tools {line['number']} where tools {len(self._offered)} belong")
        if not isinstance(line["tools"], list) or not all(isinstance(one, dict) for one in line["tools"]):
            raise ValueError("tools must be a list of objects")
        self._offered.append(tuple(line["tools"]))

    def _tools(self, number: Any) -> tuple[Mapping[str, Any], ...]:
        if number is None:
            return ()
        if type(number) is not int or not 0 <= number < len(self._offered):
            raise ValueError(f"no tools before have number {number!r}")
        return self._offered[number]

    def _with_pictures(self, message: Message) -> Message:
        return with_parts(message, self._part_with_image) if self._with_images else message

    def _step(self, line: dict[str, Any]) -> RecordedStep:
        call, result = line["call"], line["result"]
        seen = result.get("observation")
        return RecordedStep(
            number=line["step"],
            turn=line["turn"],
            call_id=call["id"],
            name=call["name"],
            arguments=call["arguments"],
            status=result["status"],
            response=result["response"],
            observation=None if seen is None else self._observation(seen),
            ends_episode=result.get("ends_episode"),
            seconds=line["seconds"],
            at=_moment(line),
        )

    def _observation(self, recorded: dict[str, Any]) -> RecordedObservation:
        text = recorded.get("text", "")
        if isinstance(text, dict):
            text = self._path(text[FILE_KEY]).read_bytes().decode("utf-8", "surrogatepass")
        return RecordedObservation(text, tuple(self._path(name) for name in recorded.get("images", ())))

    def _part_with_image(self, part: Any) -> Any:
        if not isinstance(part, dict):
            return part
        if part.get("type") == "tool_result" and isinstance(part.get("content"), list):
            return {**part, "content": [self._part_with_image(inner) for inner in part["content"]]}
        source = part.get("source") if part.get("type") == "image" else None
        if isinstance(source, dict) and isinstance(source.get("data"), dict):
            data = self._url_of(source["data"][FILE_KEY]).partition(";base64,")[2]
            return {**part, "source": {**source, "data": data}}
        link = part.get("image_url")
        if not isinstance(link, dict):
            return part
        if isinstance(link.get("url"), dict):
            return {**part, "image_url": {**link, "url": self._url_of(link["url"][FILE_KEY])}}
        return {**part, "image_url": self._url_of(link[FILE_KEY])} if FILE_KEY in link else part

    def _url_of(self, name: Any) -> str:
        path = self._path(name)
        return data_url(path.read_bytes(), path.suffix[1:])

    def _path(self, name: str) -> Path:
        """Returns the path of a file beside the record; rejects any other, as records may come from elsewhere."""
        if not isinstance(name, str) or name in {"", ".."} or Path(name).name != name:
            raise ValueError(f"{name!r} is not a file name")
        return self._directory / name


def _moment(line: Mapping[str, Any]) -> float | None:
    at = line.get("at")
    if at is not None and (type(at) not in {int, float} or not math.isfinite(at)):
        raise ValueError("at must be a number of seconds")
    return at


def _thinking(recorded: Any) -> dict[str, str]:
    for name, text in recorded.items():
        if name not in THINKING_FIELDS or not isinstance(text, str):
            raise ValueError(f"{name!r} is not a field for thinking, or its value is not text")
    return dict(recorded)


def _left_out(recorded: Any) -> LeftOut:
    if recorded is None:
        return LeftOut()
    pictures, thinking, cut_off_after = recorded["pictures"], recorded["thinking"], recorded.get("cut_off_after")
    if type(pictures) is not int or pictures < 0 or not isinstance(thinking, bool):
        raise ValueError("left_out must have a number of pictures, and true or false for thinking")
    if cut_off_after is not None and (type(cut_off_after) is not int or cut_off_after < 0):
        raise ValueError("cut_off_after must be a number of characters")
    replaced = {name: recorded.get(name, False) for name in ("unreadable_arguments", "empty_replies")}
    for name, left_out in replaced.items():  # earlier versions sent them as they were
        if not isinstance(left_out, bool):
            raise ValueError(f"{name} must be true or false")
    return LeftOut(pictures, thinking, cut_off_after, **replaced)
