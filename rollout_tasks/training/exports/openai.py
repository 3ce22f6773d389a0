"""OpenAI's fine-tuning files for chat with vision and tools, which other services and trainers read, too.

openai/conversations.jsonl   one row for each conversation: `messages`, `tools`, `parallel_tool_calls`
openai/rollouts.jsonl        for each of these rows, in order: which rollout it is of, and its reward

Replies that another row has as its own get ``"weight": 0``, so that each is learned once. The format has no place for thinking,
and its pictures are URLs or data URLs: each row has its own pictures whole.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.training.exports.chat_messages import ChatMessage, Picture, chat_message, functions_of
from rollout_tasks.training.scored_rollouts import NoCalls, ScoredRollout
from rollout_tasks.trajectories.conversations import Conversation, conversations_of
from rollout_tasks.trajectories.data_urls import data_url
from rollout_tasks.trajectories.model_calls import read_model_calls
from rollout_tasks.trajectories.sampled_calls import read_picture
from rollout_tasks.trajectories.writer import FILE_KEY

FOLDER = "openai"
CONVERSATIONS_NAME, ROLLOUTS_NAME = "conversations.jsonl", "rollouts.jsonl"
_KINDS = frozenset({"jpeg", "png", "webp"})
"""Of pictures that the format takes."""


@dataclass(frozen=True, slots=True)
class _Row:
    content: Mapping[str, Any]
    """The row, with pictures' names in the place of their URLs."""
    conversation: Conversation


@dataclass(frozen=True, slots=True)
class Conversations:
    """The rows of one rollout."""

    rollout: ScoredRollout
    rows: tuple[_Row, ...]
    pictures: Mapping[str, Path]


class Files:
    """The two files while they are written."""

    def __init__(self, run: RunFolder, folder: Path) -> None:
        """Opens them.

        Args:
            run: The run that is exported.
            folder: Where to write.
        """
        self._run_id = run.path.name
        self._parallel = run.description.config().model.extra_body.get("parallel_tool_calls")
        self._folder = folder / FOLDER
        self._stack = ExitStack()
        self.counted: Counter[str] = Counter(rollouts=0, conversations=0, replies=0, replies_without_their_thinking=0)

    def __enter__(self) -> Files:
        self._folder.mkdir()
        self._conversations = self._stack.enter_context((self._folder / CONVERSATIONS_NAME).open("w", encoding="ascii"))
        self._rollouts = self._stack.enter_context((self._folder / ROLLOUTS_NAME).open("w", encoding="ascii"))
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._stack.close()

    def read(self, rollout: ScoredRollout) -> Conversations:
        """Reads a rollout's conversations.

        Raises:
            CallRecordError: Its record cannot be read.
            NoCalls: No model replied in it.
            OtherApi: Its model was asked in the Responses or the Messages API.
            TrajectoryError: As `CallRecordError`.
            ValueError: It has something that the format does not take.
        """
        episode = read_model_calls(rollout.folder)
        if not episode.calls:
            raise NoCalls
        try:
            rows = tuple(_Row(self._row(one), one) for one in conversations_of(episode.calls))
        except ValueError as error:
            raise ValueError(f"{rollout.folder}: {error}") from error
        return Conversations(rollout, rows, episode.pictures.files)

    def write(self, content: Conversations) -> None:
        """Adds a rollout's rows.

        Raises:
            OSError: A file cannot be written, or a picture cannot be read.
        """
        rollout = content.rollout
        self.counted["rollouts"] += 1
        for number, row in enumerate(content.rows):
            calls = row.conversation.sampled.values()
            thinking = sum(1 for call in calls if call.thinking)
            self.counted.update(conversations=1, replies=len(calls), replies_without_their_thinking=thinking)
            self._conversations.write(json.dumps(_with_pictures(row.content, content.pictures)) + "\n")
            facts = {
                "run_id": self._run_id,
                "item_id": rollout.item_id,
                "rollout": rollout.index,
                "attempt": rollout.attempt,
                "conversation": number,
                "reward": rollout.reward,
                "failure_class": rollout.failure_class,
                "model": row.conversation.model,
                "calls": [call.number for call in calls],
            }
            self._rollouts.write(json.dumps(facts) + "\n")

    def _row(self, conversation: Conversation) -> Mapping[str, Any]:
        messages = [
            (chat_message(message), index in conversation.sampled)
            for index, message in enumerate(conversation.messages)
        ]
        row: dict[str, Any] = {"messages": list(_written(messages))}
        if functions := functions_of(conversation.tools):
            row["tools"] = [{"type": "function", "function": function} for function in functions]
            if isinstance(self._parallel, bool):
                row["parallel_tool_calls"] = self._parallel
        json.dumps(row, allow_nan=False)  # refuses numbers that JSON does not have
        return row


def _written(messages: list[tuple[ChatMessage, bool]]) -> Iterator[dict[str, Any]]:
    """Yields messages as the format has them; pictures of tools' results follow in a message of the user."""
    shown: list[dict[str, Any]] = []
    for message, is_sampled in messages:
        if shown and message.role != "tool":
            yield {"role": "user", "content": shown}
            shown = []
        written = _message(message)
        if message.role == "assistant":
            written["weight"] = int(is_sampled)
        if message.role == "tool" and isinstance(written["content"], list):
            shown += [part for part in written["content"] if part["type"] != "text"]
            written["content"] = [part for part in written["content"] if part["type"] == "text"]
        yield written
    if shown:
        yield {"role": "user", "content": shown}


def _message(message: ChatMessage) -> dict[str, Any]:
    content = message.content
    written: dict[str, Any] = {
        "role": message.role,
        "content": list(map(_part, content)) if isinstance(content, tuple) else content,
    }
    if message.calls:
        written["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.calls
        ]
    elif content is None:
        written["content"] = ""
    if message.role == "tool":
        written["tool_call_id"] = message.answers
    return written


def _part(part: str | Picture) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if part.kind not in _KINDS:
        raise ValueError(f"a picture is a {part.kind}, which the format does not take")
    link = {"url": {FILE_KEY: part.name}}
    return {"type": "image_url", "image_url": {**link, "detail": part.detail} if part.detail else link}


def _with_pictures(row: Mapping[str, Any], files: Mapping[str, Path]) -> dict[str, Any]:
    """Returns a row with data URLs in the place of pictures' names."""

    def shown(part: dict[str, Any]) -> dict[str, Any]:
        if part["type"] != "image_url":
            return part
        link = part["image_url"]
        path = files[link["url"][FILE_KEY]]
        return {**part, "image_url": {**link, "url": data_url(read_picture(path), path.suffix[1:])}}

    messages = [
        {**message, "content": list(map(shown, content))}
        if isinstance(content := message["content"], list)
        else message
        for message in row["messages"]
    ]
    return {**row, "messages": messages}
