"""Rows in ShareGPT's form, as LLaMA-Factory reads them: one for each model call, whose last turn is to be learned.

sharegpt/dataset_info.json   names the data set `rollouts`
sharegpt/rollouts.jsonl      one row for each call: its prompt and its reply as `conversations`, `system`, `tools`, `images`
sharegpt/pictures/           each picture once

LLaMA-Factory has no mask for single messages, so a row has one reply to learn, and `mask_history` masks those before it.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.training.exports.chat_messages import ChatMessage, Picture, chat_message, functions_of
from rollout_tasks.training.exports.linked_files import LinkedFiles
from rollout_tasks.training.scored_rollouts import NoCalls, ScoredRollout
from rollout_tasks.trajectories.model_calls import ModelCall, read_model_calls

FOLDER = "sharegpt"
ROWS_NAME, INFO_NAME, PICTURES_NAME = "rollouts.jsonl", "dataset_info.json", "pictures"
DATASET = "rollouts"
"""The data set's name in `dataset_info.json`."""
MARK = "<image>"
"""Stands in a text where a picture is."""
_MARKS = (MARK, "<video>", "<audio>")
_CALL_MARKS: tuple[str, str] = ("<tool_call>", "</tool_call>")
"""Around calls that follow a text, as most of LLaMA-Factory's templates expect."""
_THINKING_MARKS: tuple[str, str] = ("<think>\n", "\n</think>\n\n")
"""Around thinking, likewise."""
_SYSTEM = frozenset({"system", "developer"})


@dataclass(frozen=True, slots=True)
class _Row:
    content: Mapping[str, Any]
    has_pictures: bool


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of one rollout."""

    rows: tuple[_Row, ...]
    left_out: int
    """Calls that cannot be written in this form."""
    pictures: Mapping[str, Path]


class Files:
    """The files while they are written."""

    def __init__(self, run: RunFolder, folder: Path) -> None:
        """Opens nothing yet.

        Args:
            run: The run that is exported.
            folder: Where to write.
        """
        self._run_id = run.path.name
        self._folder = folder / FOLDER
        self._stack = ExitStack()
        self._linked = LinkedFiles()
        self.counted: Counter[str] = Counter(rollouts=0, calls=0, calls_left_out=0, pictures=0)

    def __enter__(self) -> Files:
        (self._folder / PICTURES_NAME).mkdir(parents=True)
        self._shown = self._stack.enter_context((self._folder / ROWS_NAME).open("w+", encoding="ascii"))
        # Readers learn the columns' types from the first rows: those with pictures are these.
        self._texts = self._stack.enter_context((self._folder / f".{ROWS_NAME}.part").open("w+", encoding="ascii"))
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._stack:
            if kind is None:
                self._complete()
        (self._folder / f".{ROWS_NAME}.part").unlink()

    def read(self, rollout: ScoredRollout) -> Rows:
        """Reads a rollout's calls.

        Raises:
            CallRecordError: Its record cannot be read.
            NoCalls: No model replied in it.
            OtherApi: Its model was asked in the Responses or the Messages API.
            TrajectoryError: As `CallRecordError`.
            ValueError: None of its calls can be written in this form.
        """
        episode = read_model_calls(rollout.folder)
        if not episode.calls:
            raise NoCalls
        rows: list[_Row] = []
        problem: ValueError | None = None
        for call in episode.calls:
            try:
                rows.append(self._row(rollout, call))
            except ValueError as error:
                problem = problem or error
        if problem is not None and not rows:
            raise ValueError(f"{rollout.folder}: {problem}") from problem
        return Rows(tuple(rows), len(episode.calls) - len(rows), episode.pictures.files)

    def write(self, content: Rows) -> None:
        """Adds a rollout's rows, and those of its pictures that are not there yet.

        Raises:
            OSError: A file cannot be written, or a picture cannot be read.
        """
        self.counted.update(rollouts=1, calls=len(content.rows), calls_left_out=content.left_out)
        for row in content.rows:
            for image in row.content["images"]:
                name = Path(image).name
                self._linked.add_picture(name, content.pictures[name], self._folder / image)
            (self._shown if row.has_pictures else self._texts).write(json.dumps(row.content) + "\n")
        self.counted["pictures"] = self._linked.count

    def _row(self, rollout: ScoredRollout, call: ModelCall) -> _Row:
        prompt = [chat_message(message) for message in call.prompt]
        head = sum(1 for _ in _leading(prompt))
        turns = [*_turns(prompt[head:]), _reply(chat_message(call.reply), call.thinking)]
        if [turn["from"] in {"human", "observation"} for turn in turns] != [True, False] * (len(turns) // 2):
            raise ValueError(f"call {call.number}: the turns of the user and the model do not take turns")
        images = [
            f"{PICTURES_NAME}/{part.name}" for message in prompt for part in message.parts if isinstance(part, Picture)
        ]
        functions = functions_of(call.tools)
        row = {
            "conversations": turns,
            "system": "\n\n".join(_value(message) for message in prompt[:head]),
            "tools": json.dumps(list(map(_function, functions)), allow_nan=False) if functions else "",
            "images": images,
            "run_id": self._run_id,
            "item_id": rollout.item_id,
            "rollout": rollout.index,
            "attempt": rollout.attempt,
            "call": call.number,
            "reward": rollout.reward,
        }
        return _Row(row, bool(images))

    def _complete(self) -> None:
        has_pictures = self._shown.tell() > 0
        self._texts.seek(0)
        shutil.copyfileobj(self._texts, self._shown)
        names = {"messages": "conversations", "system": "system", "tools": "tools"}
        columns = {**names, "images": "images"} if has_pictures else names
        info = {DATASET: {"file_name": ROWS_NAME, "formatting": "sharegpt", "columns": columns}}
        (self._folder / INFO_NAME).write_text(json.dumps(info, indent=2) + "\n", encoding="utf-8")


def _leading(messages: Iterable[ChatMessage]) -> Iterator[ChatMessage]:
    """Yields the messages of the system at the beginning."""
    for message in messages:
        if message.role not in _SYSTEM:
            return
        yield message


def _turns(messages: Sequence[ChatMessage]) -> Iterator[dict[str, str]]:
    """Yields the turns of a prompt; what stands between two replies is one of them."""
    for is_models, group in groupby(messages, lambda message: message.role == "assistant"):
        if is_models:
            for message in group:
                yield _reply(message, "")
        else:
            together = list(group)
            if any(message.role in _SYSTEM for message in together):
                raise ValueError("a message of the system stands behind others")
            answers = any(message.role == "tool" for message in together)
            yield {"from": "observation" if answers else "human", "value": "\n\n".join(map(_value, together))}


def _reply(message: ChatMessage, thinking: str) -> dict[str, str]:
    if message.role != "assistant":
        raise ValueError(f"a reply has the role {message.role}")
    text = _between(_THINKING_MARKS, _without(_MARKS, thinking)) if thinking else ""
    text += _value(message)
    if not message.calls:
        return {"from": "gpt", "value": text}
    calls = json.dumps([{"name": call.name, "arguments": _arguments(call.arguments)} for call in message.calls])
    calls = calls.replace("<", "\\u003c")  # which JSON takes for the same, and nobody for a mark
    return {
        "from": "function_call",
        "value": _without(_CALL_MARKS, text) + _between(_CALL_MARKS, calls) if text else calls,
    }


def _between(marks: tuple[str, str], text: str) -> str:
    return f"{marks[0]}{text}{marks[1]}"


def _arguments(text: str) -> dict[str, Any]:
    found = json.loads(text or "{}", parse_constant=_refuse)
    if not isinstance(found, dict):
        raise ValueError("the arguments of a call are not a JSON object")
    return found


def _refuse(constant: str) -> None:
    raise ValueError(f"the arguments of a call have {constant}")


def _function(function: Mapping[str, Any]) -> dict[str, Any]:
    parameters = function.get("parameters")
    given = parameters if isinstance(parameters, dict) else {}
    return {
        "name": function["name"],
        "description": str(function.get("description") or ""),
        "parameters": {"type": "object", "properties": {}, **given},
    }


def _value(message: ChatMessage) -> str:
    """Returns a message's text, with a mark for each picture and no other."""
    return "\n".join(MARK if isinstance(part, Picture) else _without(_MARKS, part) for part in message.parts)


def _without(marks: Iterable[str], text: str) -> str:
    """Returns a text in which nothing passes for a mark: a blank follows its first character."""
    for mark in marks:
        text = text.replace(mark, f"{mark[0]} {mark[1:]}")
    return text
