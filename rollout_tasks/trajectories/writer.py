"""Writes the record of one episode as it happens, so that kill -9 loses no complete step.

`trajectory.jsonl` is the record: one line per event, each appended by a single write. Pictures and long observation
texts have files of their own, complete before the line that names them. `messages.json`, made at the end, repeats the
conversation for people, if there was one; `rollout_tasks.trajectories.reader` needs only the record. The agent decides
what is recorded.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rollout_tasks.environments.base import Observation, ToolCall, ToolResult
from rollout_tasks.models.base import Message, Reply
from rollout_tasks.models.sent_messages import LeftOut
from rollout_tasks.trajectories.data_urls import picture_of

RECORD_NAME = "trajectory.jsonl"
MESSAGES_NAME = "messages.json"
FILE_KEY = "$file"
"""The record has ``{"$file": name}`` where a message had a picture's data URL; URLs are strings, so nothing collides."""
MAX_INLINE_TEXT = 2_000
"""Characters; a longer observation text gets its own file, so that the lines of steps stay easy to read."""

MAX_KNOWN = 64 << 20
"""Characters of base64 that are remembered; prompts with more pictures are longer than endpoints take."""


def with_parts(message: Message, change: Callable[[Any], Any]) -> Message:
    """Returns a message with those of its parts changed that may be pictures. What a model wrote is left as it is.

    Args:
        message: Of any API.
        change: Returns the part that replaces a part.
    """
    content, output = message.get("content"), message.get("output")
    if message.get("role") in ("user", "tool") and isinstance(content, list):
        return {**message, "content": [change(part) for part in content]}
    if message.get("type") == "computer_call_output" and isinstance(output, dict):
        return {**message, "output": change(output)}
    return message


class TrajectoryWriter:
    """The record of one attempt; one writer per directory."""

    def __init__(self, directory: Path, *, enabled: bool = True) -> None:
        """Writes nothing yet.

        Args:
            directory: The attempt's own folder; made when the record starts.
            enabled: If false, nothing is written, and only the messages are kept.
        """
        self.messages: list[Message] = []
        self._directory = directory
        self._enabled = enabled
        self._descriptor = -1
        self._header: dict[str, Any] = {}
        self._recorded_messages: list[Message] = []
        self._steps = 0
        self._images: dict[bytes, str] = {}
        self._known: dict[tuple[str, str], str] = {}
        """Files of pictures by their base64, the one that was used last at the end."""
        self._known_characters = 0
        self._sent: dict[bytes, int] = {}
        self._offered: list[list[Mapping[str, Any]]] = []
        self._names: set[str] = set()

    @property
    def folder(self) -> Path | None:
        """The attempt's folder, where its agent may keep more files; None if nothing is kept."""
        return self._directory if self._enabled else None

    def start(self, header: dict[str, Any]) -> None:
        """Begins the record; replaces one that an earlier process left.

        Args:
            header: What the episode is: ids, question, model; JSON values, never a secret.

        Raises:
            OSError: When the folder cannot be written.
        """
        self._header = header
        if self._enabled:
            self._directory.mkdir(parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
            self._descriptor = os.open(self._directory / RECORD_NAME, flags, 0o644)
        self._append({"kind": "start", "header": header})

    def observed(self, observation: Observation) -> None:
        """Records what the environment showed after its reset, as step 0."""
        if self._enabled:
            self._append({"kind": "observation", "step": 0, "observation": self._observation(observation)})

    def message(
        self,
        message: Message,
        *,
        turn: int | None = None,
        reply: Reply | None = None,
        left_out: LeftOut | None = None,
        prompt: Sequence[Message] | None = None,
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """Records a message of the conversation, whole, whatever prompts leave out of it.

        Args:
            message: Must not be changed afterwards.
            turn: The model's turn, from 1, when the message belongs to one.
            reply: For the model's own messages: what else is known of them (usage, thinking, token ids, who served it).
            left_out: For the model's own messages: what its prompt did not have of the messages before; default: `LeftOut()`.
            prompt: For the model's own messages: the messages it was sent, where they are not those before with something
                left out. Each distinct one is written once.
            tools: For the model's own messages: the tools that it was offered, as sent. Each distinct list is written once.
        """
        self.messages.append(message)
        if not self._enabled:
            return
        recorded = self._without_images(message)
        self._recorded_messages.append(recorded)
        line: dict[str, Any] = {
            "kind": "message",
            "index": len(self.messages) - 1,
            "message": recorded,
            "at": time.time(),
        }
        if turn is not None:
            line["turn"] = turn
        if reply is not None:
            line["reply"] = _reply_facts(reply, None if prompt is not None else left_out or LeftOut())
            if prompt is not None:
                line["reply"]["prompt"] = [self._number_of_sent(sent) for sent in prompt]
            if tools:
                line["reply"]["tools"] = self._number_of_tools(tools)
        self._append(line)

    def step(self, *, turn: int, call: ToolCall, result: ToolResult, seconds: float) -> None:
        """Records one executed call and its result.

        Args:
            turn: The model's turn that asked for it, from 1.
            call: The call.
            result: Its result, with the observation.
            seconds: Wall time the environment took.
        """
        self._steps += 1
        if not self._enabled:
            return
        outcome: dict[str, Any] = {"status": result.status, "response": result.response}
        if result.observation is not None:
            outcome["observation"] = self._observation(result.observation)
        if result.ends_episode is not None:
            outcome["ends_episode"] = result.ends_episode
        call_fields = {"id": call.id, "name": call.name, "arguments": dict(call.arguments)}
        line = {
            "kind": "step",
            "step": self._steps,
            "turn": turn,
            "call": call_fields,
            "result": outcome,
            "seconds": seconds,
            "at": time.time(),
        }
        self._append(line)

    def finish(self) -> None:
        """Makes the record durable and writes `messages.json`; called in every case, harmless when repeated."""
        if self._descriptor < 0:
            return
        descriptor, self._descriptor = self._descriptor, -1
        try:
            if self._recorded_messages:
                self._write_file(MESSAGES_NAME, self._conversation())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _append(self, line: dict[str, Any]) -> None:
        if not self._enabled:
            return
        data = _encode(line) + b"\n"
        before = os.fstat(self._descriptor).st_size
        if os.write(self._descriptor, data) != len(data):
            os.ftruncate(self._descriptor, before)
            raise OSError(errno.ENOSPC, "no room for the whole line", str(self._directory / RECORD_NAME))

    def _number_of_sent(self, message: Message) -> int:
        """Returns the number of a message of a prompt, which is written now if it is new."""
        recorded = self._without_images(message)
        key = hashlib.sha256(_encode(recorded)).digest()
        if key not in self._sent:
            self._append({"kind": "sent", "number": len(self._sent), "message": recorded})
            self._sent[key] = len(self._sent)
        return self._sent[key]

    def _number_of_tools(self, tools: Sequence[Mapping[str, Any]]) -> int:
        """Returns the number of a list of tools, which is written now if it is new."""
        offered = list(tools)
        if offered not in self._offered:
            self._append({"kind": "tools", "number": len(self._offered), "tools": offered})
            self._offered.append(offered)
        return self._offered.index(offered)

    def _conversation(self) -> bytes:
        """Returns the conversation as JSON, one message per line."""
        messages = b",\n".join(_encode(message) for message in self._recorded_messages)
        return b'{"header": ' + _encode(self._header) + b',\n"messages": [\n' + messages + b"\n]}\n"

    def _observation(self, observation: Observation) -> dict[str, Any]:
        recorded: dict[str, Any] = {}
        if len(observation.text) > MAX_INLINE_TEXT:
            name = self._free_name("_a11y", "txt")
            self._write_file(name, observation.text.encode("utf-8", "surrogatepass"))
            recorded["text"] = {FILE_KEY: name}
        elif observation.text:
            recorded["text"] = observation.text
        if observation.images:
            recorded["images"] = [self._save_image(image) for image in observation.images]
        return recorded

    def _save_image(self, image: bytes, kind: str = "png") -> str:
        name = self._free_name("", kind)
        self._write_file(name, image)
        self._images[hashlib.sha256(image).digest()] = name
        return name

    def _free_name(self, kind: str, extension: str) -> str:
        stem = f"step_{self._steps:03d}{kind}"
        name, number = f"{stem}.{extension}", 0
        while name in self._names:
            number += 1
            name = f"{stem}_{number}.{extension}"
        self._names.add(name)
        return name

    def _write_file(self, name: str, data: bytes) -> None:
        temporary = self._directory / f".{name}.part"
        temporary.write_bytes(data)
        temporary.replace(self._directory / name)

    def _without_images(self, message: Message) -> Message:
        return with_parts(message, self._part_without_image)

    def _part_without_image(self, part: Any) -> Any:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "tool_result" and isinstance(part.get("content"), list):
            return {**part, "content": [self._part_without_image(inner) for inner in part["content"]]}
        if kind == "image" and isinstance(part.get("source"), dict):
            return self._source_without_image(part)
        link = part.get("image_url") if isinstance(part, dict) else None
        name = self._file_of(link.get("url") if isinstance(link, dict) else link)
        if name is None:
            return part
        file = {FILE_KEY: name}
        return {**part, "image_url": {**link, "url": file} if isinstance(link, dict) else file}

    def _source_without_image(self, part: dict[str, Any]) -> dict[str, Any]:
        """Returns a picture of the Messages API with its file instead of its base64."""
        source = part["source"]
        name = self._file_of(source.get("data"), f"data:{source.get('media_type')};base64,")
        return part if name is None else {**part, "source": {**source, "data": {FILE_KEY: name}}}

    def _file_of(self, encoded: Any, head: str = "") -> str | None:
        """Returns the file of a picture, which is written now if it is new; None if it cannot be restored exactly.

        Prompts have the same pictures again and again: they are known by their base64, which is one object each time, so that
        they are not decoded again.

        Args:
            encoded: A data URL, or what follows the head of one.
            head: Its beginning, if that is missing.
        """
        if not isinstance(encoded, str):
            return None
        key = (head, encoded)
        name = self._known.pop(key, None)
        if name is None:
            found = picture_of(head + encoded)
            if found is None:
                return None
            kind, image = found
            name = self._images.get(hashlib.sha256(image).digest())
            name = name if name is not None and name.endswith(f".{kind}") else self._save_image(image, kind)
            self._known_characters += len(encoded)
        self._known[key] = name  # now the last, so that those used longest ago go first
        while self._known_characters > MAX_KNOWN:
            oldest = next(iter(self._known))
            del self._known[oldest]
            self._known_characters -= len(oldest[1])
        return name


def _reply_facts(reply: Reply, left_out: LeftOut | None) -> dict[str, Any]:
    usage = reply.usage
    facts: dict[str, Any] = {
        "finish_reason": reply.finish_reason,
        "served_by": reply.served_by,
        "usage": {"prompt_tokens": usage.prompt_tokens, "completion_tokens": usage.completion_tokens},
        "requests": usage.requests,
        "seconds": usage.seconds,
    }
    if reply.served.replica:
        served = reply.served
        facts["served"] = {
            "replica": served.replica,
            "version_at_start": served.version_at_start,
            "version_at_end": served.version_at_end,
        }
    if left_out is not None:
        facts["left_out"] = {"pictures": left_out.pictures, "thinking": left_out.thinking}
        if left_out.cut_off_after is not None:
            facts["left_out"]["cut_off_after"] = left_out.cut_off_after
        if left_out.unreadable_arguments:
            facts["left_out"]["unreadable_arguments"] = True
        if left_out.empty_replies:
            facts["left_out"]["empty_replies"] = True
    if reply.thinking:
        facts["thinking"] = dict(reply.thinking)
    if reply.token_data:
        facts["token_data"] = dict(reply.token_data)
    return facts


def _encode(value: Any) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # half a surrogate pair, which models do write
        return json.dumps(value).encode()
