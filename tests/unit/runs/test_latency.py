"""Where a run's time went, and how many VMs it used: from its folder, which may come from elsewhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rollout_tasks.errors import UserError
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.runs.latency import REST, VM, latency_of
from rollout_tasks.runs.vm_use import vm_use
from tests.unit.cli.recorded_runs import LOST, Took, recorded


def test_stages_are_those_of_the_verdicts(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "r", {"a": [1.0, LOST], "b": [0.0, 0.0]}, took=Took(("open", "save")))

    found = latency_of(folder)

    assert found.rollouts == 4, "a lost one took its time, too"
    assert {name: list(seconds) for name, seconds in found.stages.items()} == {
        VM: [3.0] * 4,
        "model": [4.0] * 4,
        "acting": [2.0] * 4,
        "evaluation": [0.5] * 4,
        REST: [0.5] * 4,
    }
    assert list(found.totals) == [10.0] * 4
    assert [waited for _, waited in found.vm_waits] == [3.0] * 4
    assert (found.unrecorded, found.unreadable) == (0, 0)


def test_turns_are_those_of_the_records(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "r", {"a": [1.0], "b": [0.0]}, took=Took(("open", "save"), model=2.0))

    found = latency_of(folder)

    assert [(list(turn.model), list(turn.environment)) for turn in found.turns] == [([2.0] * 2, [1.0] * 2)] * 2
    assert all(waited == 0.0 for turn in found.turns for waited in turn.waiting), "less than what model and VM took"


def test_waiting_is_what_neither_model_nor_environment_took(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "r", {"a": [1.0]})
    moments = iter([100.0, 103.0, 104.0, 110.0, 111.5])  # the prompt, then reply and step of each turn
    change_record(folder, lambda line: {**line, "at": next(moments)} if "at" in line else line)

    found = latency_of(folder)

    assert [list(turn.waiting) for turn in found.turns] == [[1.0], [4.5]]


def test_records_of_earlier_versions_have_no_waiting(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "r", {"a": [1.0]})
    change_record(folder, lambda line: {name: value for name, value in line.items() if name != "at"})

    assert [(list(turn.model), list(turn.waiting)) for turn in latency_of(folder).turns] == [([2.0], [])] * 2


def test_a_rollout_without_a_record_counts_in_the_stages(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "r", {"a": [1.0], "b": [1.0]})
    (folder.attempt("a#0", 1) / "trajectory.jsonl").unlink()

    found = latency_of(folder)

    assert (found.rollouts, found.unrecorded, len(found.turns[0].model)) == (2, 1, 1)


def change_record(folder: RunFolder, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    path = folder.attempt("a#0", 1) / "trajectory.jsonl"
    lines = [change(json.loads(line)) for line in path.read_text("utf-8").splitlines()]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


@pytest.mark.parametrize(
    "changed",
    [
        {"attempt": "../../../other"},
        {"attempt": -1},
        {"attempt": True},
        {"started": "x"},
        {"finished": float("nan")},
        {"finished": 10**400},
        {"stages": []},
        {"stages": {"model": -1}},
        {"stages": {str(n): 1.0 for n in range(200)}},
        {"lease": {"vm_id": "v", "fence": 1, "waited": "x", "allocated": 1.0, "released": 2.0}},
        {"lease": 3},
        {"lease": []},
        {"failure_class": "odd"},
        {"usage": 3},
    ],
    ids=lambda changed: str(changed)[:60],
)
def test_a_result_that_somebody_changed_is_left_out_and_said(tmp_path: Path, changed: dict[str, Any]) -> None:
    folder = recorded(tmp_path / "r", {"a": [1.0], "b": [1.0]})
    path = folder.rollout("a#0") / "result.json"
    values = json.loads(path.read_text("utf-8"))
    path.unlink()
    path.write_text(json.dumps({**values, **changed}), encoding="utf-8")

    found = latency_of(folder)

    assert (found.rollouts, found.unreadable) == (1, 1)
    assert "\n" not in found.first_problem


def test_whose_result_it_is_says_its_place(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "r", {"a": [1.0]})
    path = folder.rollout("a#0") / "result.json"
    values = json.loads(path.read_text("utf-8"))
    path.unlink()
    path.write_text(json.dumps({**values, "rollout_id": "../../elsewhere#0"}), encoding="utf-8")

    assert len(latency_of(folder).turns) == 2


def test_vms_in_use_over_time(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "r", {"a": [1.0, 1.0]})  # 20 s apart; each holds the VM for 7 s

    found = vm_use(folder)

    assert found is not None
    assert (found.vms, list(found.moments), list(found.in_use)) == (1, [0.0, 7.0, 20.0, 27.0], [1, 0, 1, 0])
    assert found.share == pytest.approx(14 / 27)


def events(folder: RunFolder, *lines: object) -> None:
    folder.events.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def event(when: Any, vm: Any, action: Any) -> dict[str, Any]:
    return {"timestamp": when, "worker_id": "w", "instance_id": vm, "task_id": "a#0", "action": action}


def test_a_vm_with_two_holders_is_one_vm_in_use_and_one_held_for_no_time_is_none(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "r", {"a": [1.0]})
    events(
        folder,
        event(0.0, "v", "allocate"),
        event(5.0, "v", "allocate"),
        event(5.0, "v", "worker_exit"),
        event(5.0, "w", "allocate"),
        event(5.0, "x", "release"),
        event(5.0, "x", "allocate"),
        event(10.0, "v", "release"),
        event(10.0, "w", "release"),
        event(11.0, "w", "release"),
    )

    found = vm_use(folder)

    assert found is not None
    assert (found.vms, list(found.moments), list(found.in_use)) == (3, [0.0, 5.0, 10.0, 11.0], [1, 2, 0, 0])


def test_a_run_without_vms_used_none(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "r", {"a": [1.0]})
    events(folder)
    assert vm_use(folder) is None
    folder.events.unlink()
    assert vm_use(folder) is None


@pytest.mark.parametrize(
    "line",
    [
        [],
        "x",
        {},
        event("x", "v", "allocate"),
        event(float("nan"), "v", "allocate"),
        event(10**400, "v", "allocate"),
        event(1.0, None, "release"),
        event(1.0, "v", "take"),
        event(1.0, "v", []),
    ],
    ids=str,
)
def test_what_is_no_event_is_named(tmp_path: Path, line: object) -> None:
    folder = recorded(tmp_path / "r", {"a": [1.0]})
    events(folder, event(0.0, "v", "allocate"), line)

    with pytest.raises(UserError, match=r"events\.jsonl, line 2: is not an event of a run$"):
        vm_use(folder)
