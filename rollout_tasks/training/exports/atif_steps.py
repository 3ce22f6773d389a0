"""The steps of an ATIF trajectory: the first prompt's messages, then the model's replies, each with what its calls did.

What an agent carried out is in its record, whichever API its model was asked in: a reply's step has those calls, and besides
them the calls of Chat Completions that were not carried out.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rollout_tasks.models.base import Message
from rollout_tasks.training.exports.message_texts import reply_text, reply_thinking
from rollout_tasks.trajectories.model_calls import CalledEpisode, ModelCall
from rollout_tasks.trajectories.reader import RecordedStep
from rollout_tasks.trajectories.writer import FILE_KEY

IMAGES_NAME = "images"
_SOURCES = {"developer": "system", "system": "system", "user": "user"}
"""Who a message of a prompt is from."""
_TEXTS = frozenset({"input_text", "text"})
"""Types of parts of these."""


class AtifSteps:
    """The steps of one episode while they are made."""

    def __init__(self, episode: CalledEpisode) -> None:
        """Has none yet."""
        self._episode = episode
        self._executed: dict[int, list[RecordedStep]] = defaultdict(list)
        for step in episode.trajectory.steps if episode.trajectory else ():
            self._executed[step.turn].append(step)
        self._said: set[bytes] = set()
        self.steps: list[dict[str, Any]] = []
        self.shown: dict[str, None] = {}
        """The names of the pictures in them, in order, each once."""

    def add_all(self) -> None:
        """Makes the steps.

        Raises:
            TrajectoryError: A picture cannot be read.
            ValueError: Something is not what it should be.
        """
        calls = self._episode.calls
        for place, call in enumerate(calls):
            self._add_prompt(call, first=place == 0)
            following = calls[place + 1] if place + 1 < len(calls) else None
            ends_turn = following is None or following.turn != call.turn
            self._add_reply(call, self._executed[call.turn] if ends_turn else [], following)

    def _add_prompt(self, call: ModelCall, *, first: bool) -> None:
        """Adds a prompt's messages: of the first those before any reply, of others words of the user after the last one.

        Pictures in later prompts are what calls showed, and stand there.
        """
        for message in _before_replies(call.prompt) if first else _after_replies(call.prompt):
            content = self._content(message)
            digest = hashlib.sha256(json.dumps(message, sort_keys=True).encode()).digest()
            if digest in self._said or (not first and _has_picture(content)):
                continue
            self._said.add(digest)
            self._add(source=_SOURCES[str(message.get("role"))], message=self._kept(content))

    def _add_reply(self, call: ModelCall, executed: Sequence[RecordedStep], following: ModelCall | None) -> None:
        written = [written for raw in _raw_calls(call.reply) if (written := _written_call(raw)) is not None]
        done = {step.call_id for step in executed}
        not_done = [one for one in written if one["tool_call_id"] not in done]
        results = [self._result(step) for step in executed]
        answers = _answers(following.prompt) if following else {}
        results += [
            {"source_call_id": one["tool_call_id"], "content": answers[one["tool_call_id"]]}
            for one in not_done
            if one["tool_call_id"] in answers
        ]
        step: dict[str, Any] = {
            "timestamp": _timestamp(call.at),
            "model_name": call.model,
            "reasoning_content": call.thinking or reply_thinking(call.reply) or None,
            "tool_calls": [*map(_executed_call, executed), *not_done],
            "observation": {"results": results} if results else None,
            "metrics": _metrics(call),
            "llm_call_count": 1,
            "extra": {"turn": call.turn, "finish_reason": call.finish_reason},
        }
        known = {name: value for name, value in step.items() if value not in (None, [])}
        self._add(source="agent", message=reply_text(call.reply), **known)

    def _add(self, **fields: Any) -> None:
        self.steps.append({"step_id": len(self.steps) + 1, **fields})

    def _result(self, step: RecordedStep) -> dict[str, Any]:
        seen = step.observation
        texts = [step.response, *([seen.text] if seen else [])]
        content = [{"type": "text", "text": _text(text)} for text in texts if text]
        content += [_picture(self._episode.pictures.name(path.name)) for path in (seen.images if seen else ())]
        return {
            "source_call_id": step.call_id,
            "content": self._kept(content),
            "extra": {"status": step.status, "seconds": step.seconds},
        }

    def _content(self, message: Message) -> str | list[dict[str, Any]]:
        content = message.get("content")
        if isinstance(content, str) or content is None:
            return content or ""
        if not isinstance(content, list):
            raise ValueError(f"a message has {ascii(content)[:50]} as its content")
        found = []
        for part in content:
            kind = part.get("type") if isinstance(part, dict) else None
            if isinstance(kind, str) and kind in _TEXTS:
                found.append({"type": "text", "text": _text(part.get("text"))})
            else:
                found += map(_picture, _files_in(part))
        return found

    def _kept(self, content: str | list[dict[str, Any]]) -> str | list[dict[str, Any]]:
        """Returns a content, whose pictures are in the trajectory now."""
        for part in content if isinstance(content, list) else ():
            if part["type"] == "image":
                self.shown[part["source"]["path"].removeprefix(f"{IMAGES_NAME}/")] = None
        return content


def _before_replies(prompt: Sequence[Message]) -> Iterator[Message]:
    for message in prompt:
        if message.get("role") not in _SOURCES:
            return
        yield message


def _after_replies(prompt: Sequence[Message]) -> Iterator[Message]:
    last = next((place for place in reversed(range(len(prompt))) if prompt[place].get("role") not in _SOURCES), -1)
    for message in prompt[last + 1 :]:
        if message.get("role") == "user":
            yield message


def _has_picture(content: str | list[dict[str, Any]]) -> bool:
    return isinstance(content, list) and any(part["type"] == "image" for part in content)


def _raw_calls(reply: Message) -> list[Any]:
    calls = reply.get("tool_calls")
    return calls if isinstance(calls, list) else []


def _written_call(raw: Any) -> dict[str, Any] | None:
    """Returns a call of Chat Completions; arguments that are no JSON object are kept as they were written."""
    function = raw.get("function") if isinstance(raw, dict) else None
    if not isinstance(function, dict):
        return None
    call = {"tool_call_id": str(raw.get("id") or ""), "function_name": str(function.get("name") or "")}
    text = str(function.get("arguments") or "{}")
    try:
        arguments = json.loads(text)
    except (ValueError, RecursionError):
        arguments = None
    if isinstance(arguments, dict):
        return {**call, "arguments": arguments}
    return {**call, "arguments": {}, "extra": {"arguments_as_written": text}}


def _executed_call(step: RecordedStep) -> dict[str, Any]:
    if not isinstance(step.arguments, dict):
        raise ValueError(f"the arguments of step {step.number} are no object")
    return {"tool_call_id": _text(step.call_id), "function_name": _text(step.name), "arguments": step.arguments}


def _answers(prompt: Sequence[Message]) -> Mapping[str, str]:
    """Returns what calls of Chat Completions were answered with, as text, by their ids."""
    return {str(one.get("tool_call_id")): reply_text(one) for one in prompt if one.get("role") == "tool"}


def _metrics(call: ModelCall) -> dict[str, Any]:
    tokens = call.token_data
    found: dict[str, Any] = {
        "prompt_tokens": _count(call.prompt_tokens),
        "completion_tokens": _count(call.completion_tokens),
        "prompt_token_ids": [_count(one) for one in tokens.get("prompt_token_ids") or ()],
        "completion_token_ids": [_count(one) for one in tokens.get("token_ids") or ()],
        "logprobs": [_number(one) for one in tokens.get("logprobs") or ()],
    }
    return {name: value for name, value in found.items() if value != []}


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{ascii(value)[:50]} stands where a number of tokens or a token's id should")
    return value


def _number(value: Any) -> float:
    if type(value) not in {int, float} or not math.isfinite(value):
        raise ValueError(f"{ascii(value)[:50]} stands where a log-probability should")
    return float(value)


def _picture(name: str) -> dict[str, Any]:
    kind = name.rpartition(".")[2]
    return {"type": "image", "source": {"media_type": f"image/{kind}", "path": f"{IMAGES_NAME}/{name}"}}


def _files_in(part: Any) -> Iterator[str]:
    for inner in part if isinstance(part, list) else part.values() if isinstance(part, dict) else ():
        yield from _files_in(inner)
    if isinstance(part, dict) and isinstance(part.get(FILE_KEY), str):
        yield part[FILE_KEY]


def _timestamp(at: float | None) -> str | None:
    return None if at is None else datetime.fromtimestamp(at, UTC).isoformat()


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{ascii(value)[:50]} stands where a text should")
    return value
