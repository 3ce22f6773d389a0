"""Rollouts that have ended: each of two calls, the second of which has only the newer of two pictures."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmark.items import Item
from rollout_tasks.config import RunConfig
from rollout_tasks.errors import FailureClass
from rollout_tasks.models.base import Reply, Usage
from rollout_tasks.models.sent_messages import LeftOut
from rollout_tasks.models.served import Served
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.runs.verdict import Verdict
from rollout_tasks.trajectories.writer import TrajectoryWriter

PICTURES = [b"\x89PNG\r\n\x1a\n" + bytes(range(start, start + 100)) for start in (0, 100)]
SHA = [hashlib.sha256(one).hexdigest() for one in PICTURES]


def seen(number: int) -> dict[str, Any]:
    url = "data:image/png;base64," + b64encode(PICTURES[number]).decode()
    return {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}


def reply(prompt: list[int], output: list[int], version: str = "7") -> Reply:
    tokens = {"prompt_token_ids": prompt, "token_ids": output, "logprobs": [-0.25] * len(output)} if prompt else {}
    message = {"role": "assistant", "content": "x"}
    return Reply(
        message, "x", (), "stop", Usage(), served_by="policy", served=Served("r", version, version), token_data=tokens
    )


def end(
    folder: RunFolder,
    rollout_id: str,
    score: float = 0.0,
    failure: FailureClass | None = None,
    *,
    told: bool = True,
    version: str = "7",
    finished: float = 0.0,
) -> None:
    number = folder.begin_attempt(rollout_id, 1)
    writer = TrajectoryWriter(folder.attempt(rollout_id, number))
    writer.start({})
    for turn, (picture, prompt, output, dropped) in enumerate([(0, [1, 2], [3], 0), (1, [1, 9, 3, 5], [6, 7], 1)], 1):
        writer.message(seen(picture))
        said = reply(prompt if told else [], output, version)
        writer.message(said.message, turn=turn, reply=said, left_out=LeftOut(dropped))
    writer.finish()
    status = "failed" if failure else "completed"
    score_of = None if failure else score
    verdict = Verdict(rollout_id, number, status, score=score_of, failure_class=failure, finished=finished)
    folder.write_attempt(verdict)
    folder.settle(verdict, written=True)


def run_of(path: Path, names: Sequence[str], *, rollouts_per_item: int) -> RunFolder:
    """A run none of whose rollouts has ended."""
    folder = RunFolder(path)
    items = [Item(name, "?") for name in names]
    folder.description.create(RunConfig(rollouts_per_item=rollouts_per_item), items, data_path="x.jsonl", data_name="x")
    return folder
