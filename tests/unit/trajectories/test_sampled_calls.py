"""What was sampled is read from either kind of record, with the pictures that each prompt had."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rollout_tasks.models.base import Reply, Usage
from rollout_tasks.models.sent_messages import LeftOut
from rollout_tasks.models.served import Served, VersionSpan
from rollout_tasks.models.served_call import Sampled, ServedCall
from rollout_tasks.trajectories.calls import CallWriter
from rollout_tasks.trajectories.reader import TrajectoryError
from rollout_tasks.trajectories.sampled_calls import sampled_calls
from rollout_tasks.trajectories.traces import traces_of
from rollout_tasks.trajectories.writer import TrajectoryWriter

FIRST, SECOND = (b"\x89PNG\r\n\x1a\n" + bytes(range(start, start + 100)) for start in (0, 100))
HASHES = {picture: hashlib.sha256(picture).hexdigest() for picture in (FIRST, SECOND)}


def seen(picture: bytes) -> dict[str, Any]:
    url = "data:image/png;base64," + b64encode(picture).decode()
    return {
        "role": "user",
        "content": [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": url}}],
    }


@contextmanager
def finished(writer: TrajectoryWriter) -> Iterator[TrajectoryWriter]:
    yield writer
    writer.finish()


def replied(prompt_ids: list[int], ids: list[int], version: str = "7", version_after: str = "7") -> Reply:
    return Reply(
        message={"role": "assistant", "content": '{"$file": "../../secret"}'},
        text="",
        tool_calls=(),
        finish_reason="stop",
        usage=Usage(),
        served=Served("r1", version, version_after),
        token_data={"prompt_token_ids": prompt_ids, "token_ids": ids, "logprobs": [-0.5] * len(ids)},
    )


def test_an_agent_of_this_project_that_dropped_a_picture(tmp_path: Path) -> None:
    with finished(TrajectoryWriter(tmp_path)) as writer:
        writer.start({})
        writer.message(seen(FIRST))
        writer.message(replied([], []).message, turn=1, reply=replied([1, 2], [3, 4]), left_out=LeftOut())
        writer.message(seen(SECOND))
        writer.message(
            replied([], []).message, turn=2, reply=replied([1, 9, 3, 4, 5], [6]), left_out=LeftOut(pictures=1)
        )
        writer.message(
            replied([], []).message, turn=3, reply=replied([1, 9, 3, 4, 5, 6], [7], "7", "8"), left_out=LeftOut(1)
        )

    first, second, third = sampled_calls(tmp_path)

    assert (first.pictures, second.pictures, third.pictures) == ((HASHES[FIRST],), *[(HASHES[SECOND],)] * 2)
    assert (first.prompt_ids, first.output_ids, first.logprobs) == ((1, 2), (3, 4), (-0.5, -0.5))
    assert (first.spans, third.spans) == ((VersionSpan("7", 0, 2),), ())
    assert [trace.calls for trace in traces_of([first, second, third])] == [(1,), (2, 3)]


def served(number: int, outcome: str, **more: Any) -> ServedCall:
    reply = {"role": "assistant", "content": "x"} if outcome == "served" else None
    spans = (VersionSpan("7", 0, 1), VersionSpan("8", 1, 2))
    return ServedCall(
        id=str(number),
        number=number,
        began=number,
        ended=number,
        dialect="chat",
        asked_model="m",
        outcome=outcome,
        messages=[seen(FIRST), seen(SECOND)],
        reply=reply,
        sampled=Sampled((1, 2), (3, 4), logprobs=(-1.0, -2.0)),
        served=Served("r1", "7", "8", spans),
        **more,
    )


def test_a_session_of_the_gateway(tmp_path: Path) -> None:
    with CallWriter(tmp_path, {}) as writer:
        writer.record(served(2, "served"))
        writer.record(served(1, "cut"))

    (call,) = sampled_calls(tmp_path)

    assert (call.number, call.pictures) == (2, (HASHES[FIRST], HASHES[SECOND]))
    assert (call.prompt_ids, call.output_ids, call.logprobs) == ((1, 2), (3, 4), (-1.0, -2.0))
    assert [one.version for one in call.spans] == ["7", "8"]


def test_a_record_whose_picture_is_missing_says_so(tmp_path: Path) -> None:
    with finished(TrajectoryWriter(tmp_path)) as writer:
        writer.start({})
        writer.message(seen(FIRST))
        writer.message(replied([], []).message, turn=1, reply=replied([1], [2]), left_out=LeftOut())
    (picture,) = tmp_path.glob("*.png")
    picture.unlink()

    with pytest.raises(TrajectoryError, match=f"{picture.name}: No such file"):
        sampled_calls(tmp_path)
