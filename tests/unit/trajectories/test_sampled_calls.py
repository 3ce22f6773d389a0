"""What was sampled is read from either kind of record, with the pictures that each prompt had."""

from __future__ import annotations

import hashlib
import json
import os
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rollout_tasks.models.base import Reply, Usage
from rollout_tasks.models.sent_messages import LeftOut
from rollout_tasks.models.served import Served, VersionSpan
from rollout_tasks.models.served_call import Sampled, ServedCall
from rollout_tasks.trajectories.calls import CallWriter
from rollout_tasks.trajectories.reader import TrajectoryError
from rollout_tasks.trajectories.sampled_calls import read_sampled
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
        served_by="m",
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

    first, second, third = read_sampled(tmp_path).calls

    assert (first.pictures, second.pictures, third.pictures) == ((HASHES[FIRST],), *[(HASHES[SECOND],)] * 2)
    assert (first.prompt_ids, first.output_ids, first.logprobs) == ((1, 2), (3, 4), (-0.5, -0.5))
    assert (first.spans, third.spans) == ((VersionSpan("7", 0, 2),), (VersionSpan("", 0, 1),))
    assert (first.model, first.finish_reason) == ("m", "stop")
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

    (call,) = read_sampled(tmp_path).calls

    assert (call.number, call.pictures) == (2, (HASHES[FIRST], HASHES[SECOND]))
    assert (call.prompt_ids, call.output_ids, call.logprobs) == ((1, 2), (3, 4), (-1.0, -2.0))
    assert [one.version for one in call.spans] == ["7", "8"]


@pytest.mark.parametrize(
    "url", ["https://pictures.example/a.png", "data:image/jpg;base64,/9j/4AAQ", "data:image/png;base64,!"]
)
def test_a_picture_that_is_in_no_file_is_not_passed_over(tmp_path: Path, url: str) -> None:
    """Two such pictures have the same tokens, and nothing would tell them apart."""
    part = {"type": "image_url", "image_url": {"url": url}}
    with finished(TrajectoryWriter(tmp_path / "own")) as writer:
        writer.start({})
        writer.message({"role": "user", "content": [part]})
        writer.message(replied([], []).message, turn=1, reply=replied([1], [2]), left_out=LeftOut())
    call = served(1, "served")
    with CallWriter(tmp_path / "session", {}) as calls:
        calls.record(replace(call, messages=[{"role": "user", "content": [part]}]))

    for record in ("own", "session"):
        with pytest.raises(TrajectoryError, match="a picture that is in no file"):
            read_sampled(tmp_path / record)


def test_pictures_of_a_session_that_changed_places_are_found(tmp_path: Path) -> None:
    with CallWriter(tmp_path, {}) as writer:
        writer.record(served(1, "served"))
    one, other = sorted((tmp_path / "pictures").iterdir())
    one.write_bytes(other.read_bytes())

    with pytest.raises(TrajectoryError, match=f"{one.name} has another content than its name says"):
        read_sampled(tmp_path)


@pytest.mark.parametrize("name", ["trajectory.jsonl", "calls.jsonl"])
def test_a_record_that_is_a_pipe_is_not_waited_for(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)

    with pytest.raises(TrajectoryError, match=f"{name}: not a file"):
        read_sampled(tmp_path)


@pytest.mark.parametrize("role", ["system", "developer"])
def test_a_picture_that_a_model_is_instructed_with_is_not_passed_over(tmp_path: Path, role: str) -> None:
    with finished(TrajectoryWriter(tmp_path)) as writer:
        writer.start({})
        writer.message({**seen(FIRST), "role": role})
        writer.message(replied([], []).message, turn=1, reply=replied([1], [2]), left_out=LeftOut())

    with pytest.raises(TrajectoryError, match="a picture that is in no file"):
        read_sampled(tmp_path)


def test_a_session_on_a_pool_has_the_versions_that_the_pool_knows(tmp_path: Path) -> None:
    with CallWriter(tmp_path, {}) as writer:
        writer.record(replace(served(1, "served"), served=Served("r1", "7", "7")))
        writer.record(replace(served(2, "served"), served=Served("r1", "7", "8")))

    assert [call.spans for call in read_sampled(tmp_path).calls] == [
        (VersionSpan("7", 0, 2),),
        (VersionSpan("", 0, 2),),
    ]


def picture_of_a_record(folder: Path) -> Path:
    """Writes the record of one reply; returns the file of the picture in its prompt."""
    with finished(TrajectoryWriter(folder)) as writer:
        writer.start({})
        writer.message(seen(FIRST))
        writer.message(replied([], []).message, turn=1, reply=replied([1], [2]), left_out=LeftOut())
    (picture,) = folder.glob("*.png")
    return picture


@pytest.mark.parametrize("kind", ["a link", "a folder", "a pipe"])
def test_a_picture_that_is_no_regular_file_is_not_read(tmp_path: Path, kind: str) -> None:
    """A run's folder may come from elsewhere."""
    picture = picture_of_a_record(tmp_path)
    picture.unlink()
    {
        "a link": lambda: picture.symlink_to("/etc/hostname"),
        "a folder": picture.mkdir,
        "a pipe": lambda: os.mkfifo(picture),
    }[kind]()

    with pytest.raises(TrajectoryError, match=picture.name):
        read_sampled(tmp_path)


@pytest.mark.parametrize(("tokens", "said"), [({"token_ids": 3}, "no list of token_ids"), (None, "no list of")])
def test_tokens_that_are_no_list_are_named(tmp_path: Path, tokens: object, said: str) -> None:
    with finished(TrajectoryWriter(tmp_path)) as writer:
        writer.start({})
        writer.message(replied([], []).message, turn=1, reply=replied([1], [2]), left_out=LeftOut())
    record = tmp_path / "trajectory.jsonl"
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    lines[-1]["reply"]["token_data"] = tokens
    record.write_text("".join(json.dumps(line) + "\n" for line in lines))

    with pytest.raises(TrajectoryError, match=said):
        read_sampled(tmp_path)


def test_a_record_whose_picture_is_missing_says_so(tmp_path: Path) -> None:
    picture = picture_of_a_record(tmp_path)
    picture.unlink()

    with pytest.raises(TrajectoryError, match=f"{picture.name}: No such file"):
        read_sampled(tmp_path)
