"""Many rollouts that have ended, each with calls of its own: agents that drop pictures, word prompts anew, branch.

A made-up chat template renders the prompts to ids, and chance that is the same each time samples the replies.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from benchmark.items import Item
from rollout_tasks.config import RunConfig
from rollout_tasks.errors import FailureClass
from rollout_tasks.models.base import Reply, Usage
from rollout_tasks.models.sent_messages import LeftOut, pictures_in, sent_messages
from rollout_tasks.models.served import Served
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.runs.verdict import Verdict
from rollout_tasks.trajectories.writer import TrajectoryWriter

ROLLOUTS_PER_ITEM = 4
LOST_EVERY = 51
"""Every 51st rollout is lost to the infrastructure."""
START, END, PICTURE, ANEW = 1, 2, 3, 4
ROLES = {"system": 5, "user": 6, "assistant": 7, "tool": 8}
_PICTURE_TOKENS = 4
_PICTURES = [b"\x89PNG\r\n\x1a\n" + hashlib.sha256(bytes([number])).digest() * 8 for number in range(40)]


@dataclass(frozen=True)
class SampledReply:
    """One call as its engine knows it."""

    messages: tuple[Mapping[str, Any], ...]
    reply: Mapping[str, Any]
    prompt_ids: list[int]
    owners: list[int]
    """For each id of the prompt, the index of its message; -1 for the beginning of the reply."""
    output_ids: list[int]
    logprobs: list[float]
    pictures: list[str]
    """By SHA-256, in order."""


@dataclass(frozen=True)
class Made:
    """One rollout."""

    item_id: str
    index: int
    reward: float
    calls: list[SampledReply]


def write_rollouts(path: Path, rollouts: int) -> tuple[RunFolder, list[Made]]:
    """Writes a run; returns it and those of its rollouts that count, with about one in 50 more that do not."""
    folder = RunFolder(path)
    written = rollouts * LOST_EVERY // (LOST_EVERY - 1)
    items = [
        Item(f"task-{number}", "?", metadata={"domain": "os"}) for number in range(-(-written // ROLLOUTS_PER_ITEM))
    ]
    folder.description.create(RunConfig(rollouts_per_item=ROLLOUTS_PER_ITEM), items, data_path="x.jsonl", data_name="x")
    counting: list[Made] = []
    for number in range(len(items) * ROLLOUTS_PER_ITEM):
        item_id, index = items[number // ROLLOUTS_PER_ITEM].id, number % ROLLOUTS_PER_ITEM
        lost = number % LOST_EVERY == 0 or len(counting) == rollouts
        made = _write(folder, item_id, index, Random(number), lost=lost)
        if not lost:
            counting.append(made)
    return folder, counting


def _write(folder: RunFolder, item_id: str, index: int, chance: Random, *, lost: bool) -> Made:
    rollout_id = f"{item_id}#{index}"
    number = folder.begin_attempt(rollout_id, 1)
    writer = TrajectoryWriter(folder.attempt(rollout_id, number))
    writer.start({})
    kind = chance.choice(["text", "pictures", "pictures", "anew", "branching", "own prompts"])
    calls = list(_calls(writer, kind, chance))
    writer.finish()
    score = chance.choice([0.0, 0.25, 1.0])
    failure = FailureClass.VM_LOST if lost else chance.choice([None, None, None, FailureClass.MAX_TURNS])
    status = "failed" if failure else "completed"
    verdict = Verdict(rollout_id, number, status, score=None if failure else score, failure_class=failure)
    folder.write_attempt(verdict)
    folder.settle(verdict, written=True)
    return Made(item_id, index, 0.0 if failure else score, calls)


def _calls(writer: TrajectoryWriter, kind: str, chance: Random) -> Iterator[SampledReply]:
    """Yields the calls of an episode, which are recorded as agents record theirs."""
    with_logprobs, conversation, ids_of_replies = chance.random() < 0.8, [{"role": "system", "content": "s"}], {}
    writer.message(conversation[0])
    for turn in range(1, chance.randint(1, 6) + 1):
        shown = kind not in {"text", "branching"} or chance.random() < 0.2
        conversation.append(_seen(turn, chance) if shown else {"role": "user", "content": f"turn {turn}"})
        writer.message(conversation[-1], turn=turn)
        for _ in range(2 if kind == "branching" else 1):
            dropped = max(0, sum(map(pictures_in, conversation)) - 2)
            sent = sent_messages(conversation, {}, LeftOut(dropped))
            if kind == "own prompts":
                sent = [sent[0], *sent[-chance.randint(1, 3) :]]
            prompt, owners = _rendered(sent, ids_of_replies, anew=kind == "anew" and turn % 3 == 0)
            call = _sampled(sent, prompt, owners, chance, with_logprobs=with_logprobs)
            ids_of_replies[call.reply["content"]] = call.output_ids
            left_out, own = LeftOut(dropped), sent if kind in {"own prompts", "branching"} else None
            writer.message(call.reply, turn=turn, reply=_reply(call), left_out=left_out, prompt=own)
            yield call
        conversation.append(call.reply)


def _seen(turn: int, chance: Random) -> dict[str, Any]:
    url = "data:image/png;base64," + b64encode(chance.choice(_PICTURES)).decode()
    parts = [{"type": "text", "text": f"turn {turn}"}, {"type": "image_url", "image_url": {"url": url}}]
    return {"role": "user", "content": parts}


def _rendered(
    messages: Sequence[Mapping[str, Any]], ids_of_replies: Mapping[str, list[int]], *, anew: bool
) -> tuple[list[int], list[int]]:
    """Returns a prompt's ids and whose each is; `anew`: the template writes old replies differently."""
    ids, owners = [], []
    for number, message in enumerate(messages):
        content = message["content"]
        if message["role"] == "assistant":
            body = [*([ANEW] if anew else []), *ids_of_replies[content]]
        else:
            parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
            body = [one for part in parts for one in _part(part)] + [END]
        ids += [START, ROLES[message["role"]], *body]
        owners += [number] * (len(body) + 2)
    return [*ids, START, ROLES["assistant"]], [*owners, -1, -1]


def _part(part: Mapping[str, Any]) -> list[int]:
    return [100 + byte for byte in part["text"].encode()] if part["type"] == "text" else [PICTURE] * _PICTURE_TOKENS


def _sampled(
    sent: Sequence[Mapping[str, Any]], prompt: list[int], owners: list[int], chance: Random, *, with_logprobs: bool
) -> SampledReply:
    output = [chance.randint(1_000, 9_999) for _ in range(chance.randint(1, 8))] + [END]
    text = " ".join(map(str, output))
    logprobs = [-chance.random() for _ in output] if with_logprobs else []
    pictures = [
        hashlib.sha256(_bytes_of(part)).hexdigest()
        for message in sent
        if isinstance(message["content"], list)
        for part in message["content"]
        if part["type"] == "image_url"
    ]
    reply = {"role": "assistant", "content": text}
    return SampledReply(tuple(sent), reply, prompt, owners, output, logprobs, pictures)


def _bytes_of(part: Mapping[str, Any]) -> bytes:
    encoded = part["image_url"]["url"].partition(",")[2]
    return next(one for one in _PICTURES if b64encode(one).decode() == encoded)


def _reply(call: SampledReply) -> Reply:
    tokens = {"prompt_token_ids": call.prompt_ids, "token_ids": call.output_ids, "logprobs": call.logprobs}
    return Reply(
        dict(call.reply),
        str(call.reply["content"]),
        (),
        "stop",
        Usage(),
        served_by="policy",
        served=Served("r", "7", "7"),
        token_data={name: values for name, values in tokens.items() if values},
    )
