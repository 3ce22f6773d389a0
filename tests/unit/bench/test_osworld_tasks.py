"""What a run of OSWorld's tasks is told as: which pairs of rollouts count, and the page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmark.items import Item
from rollout_tasks.config import RunConfig
from rollout_tasks.errors import FailureClass
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.runs.verdict import LeaseRecord, Verdict
from scripts.bench.osworld_tasks import IDLE, TRIED, Row, page, rows_of, with_script

SOLVED = Row("os", "12345678-9", "Do | it", "script", 1.0, 0.0, True, 3, 4.4, "")


def item(name: str, function: str = "exact_match") -> Item:
    return Item(name, f"Do {name}", metadata={"domain": "os", "config": [], "evaluator": {"func": function}})


def folder_of(tmp_path: Path, items: list[Item], *verdicts: Verdict) -> RunFolder:
    (tmp_path / "1.json").write_text('[{"text": "Done."}]')
    folder = RunFolder(tmp_path / "run")
    items = [with_script(item, tmp_path) for item in items]
    folder.description.create(RunConfig(), items, data_path="list.json", data_name="list")
    for verdict in verdicts:
        folder.settle(verdict, written=False)
    return folder


def held(rollout_id: str, vm_id: str, since: float, **more: Any) -> Verdict:
    lease = LeaseRecord(vm_id, 1, 0.0, since, since + 1)
    return Verdict(rollout_id, 1, **{"status": "completed", "score": 1.0, "lease": lease, **more})


@pytest.mark.parametrize(
    ("second", "between", "same_vm"),
    [
        (held("1#1", "vm-0", 20), held("2#0", "vm-1", 15), True),
        (held("1#1", "vm-1", 20), held("2#0", "vm-0", 30), False),
        (held("1#1", "vm-0", 20), held("2#0", "vm-0", 15), False),
        (held("1#1", "vm-0", 5), held("2#0", "vm-0", 30), False),
    ],
    ids=["right after", "another VM", "somebody in between", "before"],
)
def test_the_second_rollout_must_follow_the_first_on_its_vm(
    tmp_path: Path, second: Verdict, between: Verdict, same_vm: bool
) -> None:
    folder = folder_of(tmp_path, [item("1"), item("2")], held("1#0", "vm-0", 10), second, between)

    assert rows_of(folder, {})[0].same_vm is same_vm


def test_what_is_tried_and_why_not(tmp_path: Path) -> None:
    failed = held("3#0", "vm", 1, status="failed", score=None, failure_class=FailureClass.ENV_SETUP, error="no code")
    folder = folder_of(tmp_path, [item("1"), item("2", "infeasible"), item("3")], failed)

    rows = rows_of(folder, {"3": "VS Code"})

    assert [(row.tried, row.why) for row in rows] == [("script", ""), ("FAIL", ""), ("nothing", "VS Code: no code")]


def test_variants_are_named_by_the_index_of_their_rollout(tmp_path: Path) -> None:
    script = with_script(item("7", "infeasible"), tmp_path).metadata["script"]

    assert [script[str(index)][0]["tool_calls"][0]["arguments"]["action"] for index in (TRIED, IDLE)] == [
        "fail",
        "done",
    ]


def test_the_page_counts_what_is_right_on_the_same_vm() -> None:
    wrong = [replace(SOLVED, score=0.0), replace(SOLVED, idle_score=1.0), replace(SOLVED, same_vm=False)]
    without = replace(SOLVED, task="abcdefgh-1", tried="nothing", score=0.0, why="the internet")

    lines = page([SOLVED, *wrong, without], [], "list.json", "all.json").splitlines()
    assert lines[lines.index("```bash") - 1].startswith("<!-- not run: ")  # else a test of the documents would run it

    assert any(line.startswith("1 of 4 scripts score 1") and "The other 1 cannot" in line for line in lines)
    assert "| os | `12345678` | Do \\| it | script | 1 | 0 | 3 | 4 |" in lines
    assert "| os | `abcdefgh` | Do \\| it | 0 | the internet |" in lines
