"""events.jsonl: every attempt, in the order of time, whole or not at all."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rollout_tasks.errors import FailureClass
from rollout_tasks.runs.events import EventsFile
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.runs.verdict import LeaseRecord, Verdict
from rollout_tasks.trajectories.writer import TrajectoryWriter

ROLLOUT = "item-ü#0"


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path)


def attempt(number: int, allocated: float, released: float, rollout_id: str = ROLLOUT) -> Verdict:
    lease = LeaseRecord(f"vm-{number}", 7, 0.5, allocated, released)
    return Verdict(rollout_id, number, "completed", worker=f"worker-{number}", lease=lease)


def write_ended(folder: RunFolder, ended: Verdict) -> None:
    assert folder.begin_attempt(ended.rollout_id, ended.attempt) == ended.attempt
    folder.write_attempt(ended)


def write_dead(folder: RunFolder, number: int, began: float, last_seen: float, vm_id: str | None) -> Path:
    """What is left of an attempt whose process was killed."""
    folder.begin_attempt(ROLLOUT, number)
    path = folder.attempt(ROLLOUT, number)
    TrajectoryWriter(path).start({"started": began, "worker": f"worker-{number}", "vm_id": vm_id})
    os.utime(path / "trajectory.jsonl", (last_seen, last_seen))
    return path / "trajectory.jsonl"


def events_of(folder: RunFolder, *verdicts: Verdict) -> list[dict[str, Any]]:
    with EventsFile(folder) as events:
        assert events.note(verdicts) is verdicts
        events.publish()
    return [json.loads(line) for line in folder.events.read_text().splitlines()]


def told(events: list[dict[str, Any]]) -> list[tuple[float, str, str]]:
    return [(event["timestamp"], event["instance_id"], event["action"]) for event in events]


def test_events_are_in_the_order_of_time(folder: RunFolder) -> None:
    first, second = attempt(1, 5.0, 9.5, "a#0"), attempt(1, 1.5, 7.0, "b#0")
    for verdict in (first, second):
        write_ended(folder, verdict)

    events = events_of(folder, first, Verdict("none#0", 1, "completed"), second)

    assert [(event["timestamp"], event["task_id"], event["action"]) for event in events] == [
        (1.5, "b#0", "allocate"),
        (5.0, "a#0", "allocate"),
        (7.0, "b#0", "release"),
        (9.5, "a#0", "release"),
    ]
    assert events[0] == {
        "timestamp": 1.5,
        "worker_id": "worker-1",
        "instance_id": "vm-1",
        "task_id": "b#0",
        "action": "allocate",
    }
    assert not list(folder.path.glob(".*"))


def test_every_attempt_has_its_events(folder: RunFolder) -> None:
    lost = replace(attempt(1, 1.0, 2.0), status="failed", failure_class=FailureClass.VM_LOST, error="gone")
    write_ended(folder, lost)
    write_dead(folder, 2, began=3.0, last_seen=4.5, vm_id="vm-2")
    write_ended(folder, attempt(3, 6.0, 8.0))

    events = events_of(folder, attempt(3, 6.0, 8.0))

    assert told(events) == [
        (1.0, "vm-1", "allocate"),
        (2.0, "vm-1", "release"),
        (3.0, "vm-2", "allocate"),
        (4.5, "vm-2", "worker_exit"),
        (6.0, "vm-3", "allocate"),
        (8.0, "vm-3", "release"),
    ]
    assert [event["worker_id"] for event in events] == [f"worker-{number}" for number in (1, 1, 2, 2, 3, 3)]
    assert {event["task_id"] for event in events} == {ROLLOUT}


def test_a_rollout_whose_worker_died_in_its_only_attempt_has_that_attempts_events(folder: RunFolder) -> None:
    write_dead(folder, 1, began=3.0, last_seen=4.5, vm_id="vm-9")
    verdict = Verdict(ROLLOUT, 1, "failed", failure_class=FailureClass.WORKER_LOST, error="it died")

    assert told(events_of(folder, verdict)) == [(3.0, "vm-9", "allocate"), (4.5, "vm-9", "worker_exit")]


def test_an_attempt_that_could_not_be_written_has_its_events(folder: RunFolder) -> None:
    verdict = replace(attempt(1, 1.0, 2.0), status="failed", failure_class=FailureClass.INTERNAL, error="no space")
    expected = [(1.0, "vm-1", "allocate"), (2.0, "vm-1", "release")]

    assert told(events_of(folder, verdict)) == expected
    write_dead(folder, 1, began=0.5, last_seen=2.0, vm_id="vm-1")
    assert told(events_of(folder, verdict)) == expected


@pytest.mark.parametrize("record", ["", "{", "[]", '{"header": {}}', '{"header": {"started": null}}'])
def test_a_record_that_says_nothing_stops_nothing(folder: RunFolder, record: str) -> None:
    write_dead(folder, 1, began=3.0, last_seen=4.5, vm_id="vm-1").write_text(record)
    write_dead(folder, 2, began=3.0, last_seen=4.5, vm_id=None)
    (folder.attempt(ROLLOUT, 3)).mkdir()
    write_ended(folder, attempt(4, 6.0, 8.0))

    assert told(events_of(folder, attempt(4, 6.0, 8.0))) == [(6.0, "vm-4", "allocate"), (8.0, "vm-4", "release")]


def test_a_result_that_cannot_be_read_is_said_and_stops_nothing(
    folder: RunFolder, caplog: pytest.LogCaptureFixture
) -> None:
    write_ended(folder, attempt(1, 1.0, 2.0))
    (folder.attempt(ROLLOUT, 1) / "result.json").write_text("{")
    write_ended(folder, attempt(2, 6.0, 8.0))

    assert told(events_of(folder, attempt(2, 6.0, 8.0))) == [(6.0, "vm-2", "allocate"), (8.0, "vm-2", "release")]
    assert "events.jsonl may lack events" in caplog.text


def test_a_run_without_vms_has_an_empty_file(folder: RunFolder) -> None:
    assert events_of(folder) == []
    assert folder.events.read_bytes() == b""


def test_who_may_not_write_any_more_leaves_the_old_file(folder: RunFolder) -> None:
    folder.events.write_text("old\n")

    def refuse() -> None:
        raise InterruptedError

    with EventsFile(folder) as events, pytest.raises(InterruptedError):
        events.note([attempt(1, 5.0, 9.5)])
        events.publish(refuse)

    assert folder.events.read_text() == "old\n"
    assert list(folder.path.iterdir()) == [folder.events]
