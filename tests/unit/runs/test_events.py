"""events.jsonl: in the order of time, whole or not at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rollout_tasks.runs.events import write_events
from rollout_tasks.runs.verdict import Lending, Verdict


def verdict(number: int, allocated: float, released: float) -> Verdict:
    lending = Lending(f"vm-{number}", 7, 0.5, allocated, released)
    return Verdict(f"item-ü{number}#0", 1, "completed", worker=f"worker-{number}", lending=lending)


def test_events_are_in_the_order_of_time(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"

    write_events(path, [verdict(1, 5.0, 9.5), Verdict("none#0", 1, "completed"), verdict(2, 1.5, 7.0)])

    events = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(event["timestamp"], event["task_id"], event["action"]) for event in events] == [
        (1.5, "item-ü2#0", "allocate"),
        (5.0, "item-ü1#0", "allocate"),
        (7.0, "item-ü2#0", "release"),
        (9.5, "item-ü1#0", "release"),
    ]
    assert events[0] == {
        "timestamp": 1.5,
        "worker_id": "worker-2",
        "instance_id": "vm-2",
        "task_id": "item-ü2#0",
        "action": "allocate",
    }
    assert list(tmp_path.iterdir()) == [path]


def test_a_run_without_vms_has_an_empty_file(tmp_path: Path) -> None:
    write_events(tmp_path / "events.jsonl", [])

    assert (tmp_path / "events.jsonl").read_bytes() == b""


def test_who_may_not_write_any_more_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text("old\n")

    def refuse() -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        write_events(path, [verdict(1, 5.0, 9.5)], refuse)

    assert path.read_text() == "old\n"
    assert list(tmp_path.iterdir()) == [path]
