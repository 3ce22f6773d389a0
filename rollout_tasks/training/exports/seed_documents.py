"""What DART's trajectory folders say of one rollout; writes nothing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmark.items import Item
from rollout_tasks.models.base import Message
from rollout_tasks.runs.item_paths import encode_id
from rollout_tasks.training.scored_rollouts import NoCalls, ScoredRollout
from rollout_tasks.trajectories.model_calls import CalledEpisode, ModelCall, read_model_calls
from rollout_tasks.trajectories.reader import Trajectory
from rollout_tasks.trajectories.traces import SampledCall, TraceError, traces_of
from rollout_tasks.trajectories.writer import FILE_KEY, with_parts
from rollout_tasks.unicode_text import storable_json

_LONGEST_NAME = 100
"""Bytes of an item's or a run's name in that of a folder; longer ones are named by their hash."""
_DEEPEST = 60
"""How deeply a task's lists and objects may be nested."""


@dataclass(frozen=True, slots=True)
class SeedTrajectory:
    """One folder."""

    name: str
    steps: tuple[SampledCall, ...]
    texts: Mapping[str, str]
    """The text files, by their names."""
    images: Mapping[str, str]
    """The pictures, by the names of their files in the folder, in order: each named by its content."""
    files: Mapping[str, Path]
    """Where the run has them."""
    shown: tuple[tuple[int, ...], ...]
    """For each step, which of the pictures its prompt has, in order."""


def seed_trajectory(run_id: str, item: Item, rollout: ScoredRollout) -> SeedTrajectory:
    """Reads what a rollout's folder has.

    Args:
        run_id: The run.
        item: The rollout's item.
        rollout: The rollout.

    Raises:
        CallRecordError: Its record cannot be read.
        NoCalls: No model replied in it.
        TokensUnknown: Its model did not return its tokens.
        TraceError: Its record contradicts itself.
        TrajectoryError: As `CallRecordError`.
        ValueError: A text or a number cannot be written.
    """
    episode = read_model_calls(rollout.folder)
    if not episode.calls:
        raise NoCalls
    try:
        steps = tuple(map(_step, episode.calls))
        traces_of(steps)  # which checks each
    except TraceError as error:
        raise type(error)(f"{rollout.folder}: {error}") from error
    images = _Images()
    texts: dict[str, Any] = {"task_config.json": _task(item)}
    shown = []
    for number, call in enumerate(episode.calls, 1):
        texts[f"msg_for_prompt_{number}.json"], numbers = images.named(call.prompt)
        shown.append(tuple(numbers))
        texts[f"timestamp_info_{number}.json"] = _times(number, call, episode.trajectory)
    texts["final_messages.json"], _ = images.named(_conversation(episode))
    written = {file: json.dumps(value, indent=2, allow_nan=False) + "\n" for file, value in texts.items()}
    reward = str(rollout.reward)
    return SeedTrajectory(
        name=f"{_short(item.id)}_{_short(run_id)}-{rollout.index}",
        steps=steps,
        texts={**written, "reward.txt": reward, "reward_from_env.txt": reward},
        images=images.by_place(),
        files=episode.pictures.files,
        shown=tuple(shown),
    )


def _short(text: str) -> str:
    """Returns a text as a part of a folder's name, without ``_``: DART takes what stands before the first one for the task."""
    encoded = encode_id(text).replace("_", "=5F")
    if len(encoded) <= _LONGEST_NAME:
        return encoded
    return f"=={hashlib.sha256(text.encode()).hexdigest()}"  # which nothing is encoded as


class _Images:
    """The pictures of one trajectory, numbered in the order in which they are named."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def named(self, messages: Sequence[Message]) -> tuple[list[Message], list[int]]:
        """Returns messages with the names of the folder's files in the place of pictures, and the pictures' numbers."""
        numbers: list[int] = []
        return [with_parts(message, lambda part: self._named(part, numbers)) for message in messages], numbers

    def by_place(self) -> dict[str, str]:
        """Returns the pictures by the names of their files in the folder."""
        return {_place(number, picture): picture for picture, number in self._numbers.items()}

    def _named(self, part: Any, numbers: list[int]) -> Any:
        if isinstance(part, list):
            return [self._named(one, numbers) for one in part]
        if not isinstance(part, dict):
            return part
        if FILE_KEY in part:
            picture = part[FILE_KEY]
            numbers.append(self._numbers.setdefault(picture, len(self._numbers)))
            return _place(numbers[-1], picture)
        link = part.get("image_url")
        if part.get("type") == "image_url" and isinstance(link, dict) and isinstance(link.get("url"), dict):
            return {"type": "image_url", "image_url": self._named(link["url"], numbers)}
        return {name: self._named(one, numbers) for name, one in part.items()}


def _place(number: int, picture: str) -> str:
    return f"image_{number:04d}.{picture.rpartition('.')[2]}"


def _step(call: ModelCall) -> SampledCall:
    tokens = call.token_data if isinstance(call.token_data, Mapping) else {}
    prompt, output, logprobs = (tokens.get(name, []) for name in ("prompt_token_ids", "token_ids", "logprobs"))
    for values in (prompt, output, logprobs):
        if not isinstance(values, list | tuple):
            raise TraceError(f"call {call.number} has tokens that are no list")
    return SampledCall(call.number, tuple(prompt), tuple(output), tuple(logprobs), model=call.model)


def _task(item: Item) -> Any:
    """Returns the item as a task of OSWorld, which it is in most runs of desktops."""
    task = {**item.metadata, **item.env_config, "id": item.id, "instruction": item.question}
    return storable_json({**task, "answer": item.answer} if item.answer else task, _DEEPEST)


def _conversation(episode: CalledEpisode) -> list[Message]:
    """Returns the whole conversation; of a program that words each prompt anew, the last prompt and its reply."""
    last, trajectory = episode.calls[-1], episode.trajectory
    if trajectory is None or any(reply.sent is not None for reply in trajectory.replies):
        return [*last.prompt, last.reply]
    messages: list[Message] = storable_json(list(trajectory.messages), _DEEPEST)
    return [with_parts(message, lambda part: _by_content(part, episode)) for message in messages]


def _by_content(value: Any, episode: CalledEpisode) -> Any:
    """Returns parts of messages with pictures named by their content, as those of prompts are."""
    if isinstance(value, list):
        return [_by_content(one, episode) for one in value]
    if not isinstance(value, dict):
        return value
    if FILE_KEY in value:
        return {FILE_KEY: episode.pictures.name(str(value[FILE_KEY]))}
    return {name: _by_content(one, episode) for name, one in value.items()}


def _times(number: int, call: ModelCall, trajectory: Trajectory | None) -> dict[str, Any]:
    steps = [step for step in trajectory.steps if step.turn == call.turn] if trajectory is not None else []
    ended = [step.at for step in steps if step.at is not None]
    return {
        "step": number,
        "model": call.model,
        "reply_at": call.at,
        "actions_ended_at": ended[-1] if ended else None,
        "action_seconds": [step.seconds for step in steps],
    }
