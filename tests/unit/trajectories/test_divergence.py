"""Where two rollouts part, from their records; and what is refused of records that come from elsewhere."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rollout_tasks.environments.base import Observation
from rollout_tasks.errors import UserError
from rollout_tasks.trajectories.divergence import Divergence, Record, first_divergence
from rollout_tasks.trajectories.plain_files import check_plain
from rollout_tasks.trajectories.reader import TrajectoryError
from rollout_tasks.trajectories.timeline import events
from rollout_tasks.trajectories.writer import TrajectoryWriter
from tests.unit.cli.recorded_runs import steps


def parted(root: Path, first: Sequence[str], second: Sequence[str], *, seen: str = "") -> Divergence:
    steps(root / "one", first)
    steps(root / "two", second, seen=seen)
    return first_divergence(Record(root, root / "one"), Record(root, root / "two"))


def test_the_first_other_call_is_found(tmp_path: Path) -> None:
    found = parted(tmp_path, ["open", "type", "save"], ["open", "wait", "save", "close"])

    assert found == Divergence(2, 'press({"key": "type"})', 'press({"key": "wait"})', None, (3, 4))


def test_one_that_ends_before_the_other_parts_there(tmp_path: Path) -> None:
    found = parted(tmp_path, ["open"], ["open", "save"])

    assert (found.step, found.first, found.second) == (2, None, 'press({"key": "save"})')


def test_what_was_seen_may_part_before(tmp_path: Path) -> None:
    found = parted(tmp_path, ["open", "save"], ["open", "close"], seen="of another colour")

    assert (found.step, found.seen_after) == (2, 0)


def test_the_same_rollout_does_not_part(tmp_path: Path) -> None:
    assert parted(tmp_path, ["open", "save"], ["open", "save"]) == Divergence(None, None, None, None, (2, 2))


def test_episodes_without_a_step_are_compared_by_what_they_saw(tmp_path: Path) -> None:
    assert parted(tmp_path, [], []) == Divergence(None, None, None, None, (0, 0))
    assert parted(tmp_path, [], [], seen="x").seen_after == 0


def test_long_texts_and_pictures_are_compared_by_their_files(tmp_path: Path) -> None:
    for name, end in (("one", "x"), ("two", "y")):
        writer = TrajectoryWriter(tmp_path / name)
        writer.start({})
        writer.observed(Observation("a" * 3000 + end))
        writer.finish()
    assert first_divergence(Record(tmp_path, tmp_path / "one"), Record(tmp_path, tmp_path / "two")).seen_after == 0

    for name, end in (("three", b"x"), ("four", b"x"), ("five", b"y")):
        writer = TrajectoryWriter(tmp_path / name)
        writer.start({})
        writer.observed(Observation("", (b"\x89PNG" + end,)))
        writer.finish()
    same, other = (
        first_divergence(Record(tmp_path, tmp_path / "three"), Record(tmp_path, tmp_path / name))
        for name in ("four", "five")
    )
    assert (same.seen_after, other.seen_after) == (None, 0)


STEP: dict[str, Any] = {
    "kind": "step",
    "step": 1,
    "turn": 1,
    "call": {"id": "c", "name": "press", "arguments": {}},
    "result": {"status": "success", "response": "ok"},
    "seconds": 1.0,
    "at": 5.0,
}


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"[]",
        b"null",
        b"{}",
        b"[" * 100_000,
        json.dumps({**STEP, "seconds": -1}).encode(),
        json.dumps({**STEP, "seconds": float("nan")}).encode(),
        json.dumps({**STEP, "seconds": True}).encode(),
        json.dumps({**STEP, "seconds": 10**400}).encode(),
        json.dumps({**STEP, "at": float("inf")}).encode(),
        json.dumps({**STEP, "at": "now"}).encode(),
        json.dumps({**STEP, "turn": 0}).encode(),
        json.dumps({**STEP, "turn": 10**9}).encode(),
        json.dumps({**STEP, "call": {"name": 1, "arguments": {}}}).encode(),
        json.dumps({**STEP, "call": None}).encode(),
        json.dumps({**STEP, "result": {**STEP["result"], "observation": {"images": ["../../secret"]}}}).encode(),
        json.dumps({**STEP, "result": {**STEP["result"], "observation": {"images": [".."]}}}).encode(),
        json.dumps({**STEP, "result": {**STEP["result"], "observation": {"text": {"$file": "/etc/hosts"}}}}).encode(),
    ],
    ids=lambda line: str(line[:60]),
)
def test_a_line_of_another_kind_is_named(tmp_path: Path, line: bytes) -> None:
    (tmp_path / "trajectory.jsonl").write_bytes(json.dumps(STEP).encode() + b"\n" + line + b"\n")

    with pytest.raises(TrajectoryError, match=r"line 2: is not a line of a trajectory$"):
        list(events(tmp_path, tmp_path))


def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "trajectory.jsonl").write_bytes(json.dumps(STEP).encode() + b'\n{"kind": "st')

    assert [(one.kind, one.turn, one.seconds, one.at) for one in events(tmp_path, tmp_path)] == [("step", 1, 1.0, 5.0)]


def test_no_link_and_no_odd_file_is_read(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "trajectory.jsonl").write_text("secret\n")
    root = tmp_path / "run"
    root.mkdir()
    (root / "link").symlink_to(outside)
    (root / "trajectory.jsonl").symlink_to(outside / "trajectory.jsonl")
    os.mkfifo(root / "pipe")
    (root / "large").write_bytes(b"12345")

    for place in (root / "link", root):
        with pytest.raises(UserError, match="a link leads to it"):
            list(events(root, place))
    with pytest.raises(UserError, match="it is not a plain file"):
        check_plain(root, root / "pipe", 100)
    with pytest.raises(UserError, match="it has 5 bytes, more than 4"):
        check_plain(root, root / "large", 4)
    check_plain(root, root / "large", 5)
    for missing in (root / "none", root / "large" / "below"):
        with pytest.raises(FileNotFoundError):
            check_plain(root, missing, 100)


def test_a_run_that_is_reached_through_a_link_is_read(tmp_path: Path) -> None:
    steps(tmp_path / "run" / "one", ["open"])
    (tmp_path / "alias").symlink_to("run")

    root = tmp_path / "alias"
    assert first_divergence(Record(root, root / "one"), Record(root, root / "one")).steps == (1, 1)
