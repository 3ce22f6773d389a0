"""`rollouts export --format verl` and `--format prime-rl`: a row for each trace, and each picture once beside them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from benchmark.items import Item
from rollout_tasks.config import RunConfig
from rollout_tasks.errors import FailureClass, UserError
from rollout_tasks.runs.finalize import score_run
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.training.exports.formats import FORMATS, Kind
from rollout_tasks.training.exports.run_export import export_run
from rollout_tasks.training.exports.verl import group_name
from tests.unit.training.ended_rollouts import PICTURES, SHA, end, run_of

parquet = pytest.importorskip("pyarrow.parquet")

ROWS = {Kind.VERL: "verl/rollouts.parquet", Kind.PRIME_RL: "prime-rl/samples.parquet"}
KINDS = pytest.mark.parametrize("kind", list(ROWS))


@pytest.fixture(name="folder")
def _folder(tmp_path: Path) -> RunFolder:
    return run_of(tmp_path / "night_1", ["a", "b"], rollouts_per_item=2)


def exported(folder: RunFolder, kind: Kind) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    target = folder.path.parent / "out"
    told = export_run(folder, folder.evaluation, target, kind)
    assert [f"{path.name}/" for path in target.iterdir() if path.is_dir()] == list(FORMATS[kind].names)
    return parquet.read_table(target / ROWS[kind]).to_pylist(), told


def end_all(folder: RunFolder) -> None:
    for rollout_id in ("a#0", "a#1", "b#0", "b#1"):
        end(folder, rollout_id, 1.0)


def test_verls_rows_are_what_its_agent_loop_returns(folder: RunFolder) -> None:
    end(folder, "a#0", 0.25)
    end(folder, "a#1", failure=FailureClass.MAX_TURNS)
    end(folder, "b#0", failure=FailureClass.VM_LOST)
    end(folder, "b#1", 1.0)
    score_run(folder, "exact_match")

    rows, told = exported(folder, Kind.VERL)

    group = group_name("night_1", "a")
    assert [row["key"] for row in rows[:4]] == [f"{group}_0_0", f"{group}_0_1", f"{group}_1_0", f"{group}_1_1"]
    assert {row["key"].split("_")[0] for row in rows} == {group, group_name("night_1", "b")}
    assert [row["reward_score"] for row in rows] == [0.25, 0.25, 0.0, 0.0, 1.0, 1.0]
    assert told["left_out"] == {"infrastructure_loss": 1}
    second = rows[1]
    assert (second["prompt_ids"], second["response_ids"]) == ([1, 9, 3, 5], [6, 7])
    assert (second["response_mask"], second["response_logprobs"]) == ([1, 1], [-0.25, -0.25])
    assert second["multi_modal_data"] == {"images": [f"images/{SHA[1]}.png"]}
    assert second["num_turns"] == 2
    assert second["extra_fields"] == {
        "run_id": "night_1",
        "item_id": "a",
        "attempt": 1,
        "failure_class": "",
        "model": "policy",
        "outputs": [{"call": 2, "start": 0, "end": 2, "finish_reason": "stop"}],
        "versions": [{"version": "7", "start": 0, "end": 2}],
        "turn_scores": [],
        "tool_rewards": [],
        "reward_extra_info": {"acc": 0.25},
    }


def test_prime_rls_rows_are_what_its_orchestrator_knows(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "night_1")
    items = [Item("a", "?"), Item("b", "?", env_config={"env_mode": "py"})]
    folder.description.create(
        RunConfig(env_mode="math", rollouts_per_item=1), items, data_path="x.jsonl", data_name="x"
    )
    end(folder, "a#0", 0.25)
    end(folder, "b#0", 1.0)
    score_run(folder, "exact_match")

    rows, _ = exported(folder, Kind.PRIME_RL)

    assert [(row["env_name"], row["reward"], row["trace"]) for row in rows] == [
        ("math", 0.25, 0),
        ("math", 0.25, 1),
        ("py", 1.0, 0),
        ("py", 1.0, 1),
    ]
    second = rows[1]
    assert (second["token_ids"], second["mask"]) == ([1, 9, 3, 5, 6, 7], [False] * 4 + [True] * 2)
    assert (second["logprobs"], second["images"]) == ([0.0] * 4 + [-0.25] * 2, [f"images/{SHA[1]}.png"])


@KINDS
def test_each_picture_is_on_the_disk_once(folder: RunFolder, kind: Kind) -> None:
    end_all(folder)
    score_run(folder, "exact_match")

    _, told = exported(folder, kind)

    images = folder.path.parent / "out" / ROWS[kind].partition("/")[0] / "images"
    assert {file.name: file.read_bytes() for file in images.iterdir()} == {
        f"{name}.png": picture for name, picture in zip(SHA, PICTURES, strict=True)
    }
    recorded = {file.stat().st_ino for file in folder.path.rglob("step_*.png")}
    assert {file.stat().st_ino for file in images.iterdir()} < recorded
    assert told["pictures"] == 2


@KINDS
def test_where_links_are_refused_pictures_are_copied(
    folder: RunFolder, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError

    end_all(folder)
    score_run(folder, "exact_match")
    monkeypatch.setattr(os, "link", refuse)

    exported(folder, kind)

    images = folder.path.parent / "out" / ROWS[kind].partition("/")[0] / "images"
    assert sorted(file.read_bytes() for file in images.iterdir()) == sorted(PICTURES)


@KINDS
def test_an_export_is_the_same_each_time(folder: RunFolder, kind: Kind) -> None:
    end_all(folder)
    score_run(folder, "exact_match")

    exported(folder, kind)
    before = (folder.path.parent / "out" / ROWS[kind]).read_bytes()
    exported(folder, kind)

    assert (folder.path.parent / "out" / ROWS[kind]).read_bytes() == before


BROKEN: dict[str, tuple[str, str]] = {
    "a message that is none": ('"message": {"role": "assistant", "content": "x"}', '"message": "x"'),
    "a model that is no name": ('"served_by": "policy"', '"served_by": 5'),
    "a number that is none": ("-0.25", "-" + "9" * 400),
    "a token that is too large": ('"token_ids": [3]', '"token_ids": [4294967296]'),
    "tokens that are no list": ('"token_ids": [3]', '"token_ids": {"3": 3}'),
    "lists in lists": ('"token_ids": [3]', '"token_ids": ' + "[" * 100_000),
    "a picture elsewhere": ("step_000.png", "../../../../secret.png"),
    "a picture that is missing": ("step_000.png", "step_999.png"),
    "a picture that is a program": ("step_000.png", "step_000.sh"),
    "a picture that is a link": ("step_000.png", "linked.png"),
}


@KINDS
@pytest.mark.parametrize(("before", "after"), BROKEN.values(), ids=list(BROKEN))
def test_one_broken_record_spoils_no_other(folder: RunFolder, kind: Kind, before: str, after: str) -> None:
    end_all(folder)
    attempt = folder.attempt("a#1", 1)
    (attempt / "step_000.sh").write_bytes(PICTURES[0])
    (attempt / "linked.png").symlink_to(attempt / "step_000.png")
    (folder.path.parent / "secret.png").write_bytes(PICTURES[0])
    record = attempt / "trajectory.jsonl"
    text = record.read_text()
    assert before in text
    record.write_text(text.replace(before, after))
    score_run(folder, "exact_match")

    rows, told = exported(folder, kind)

    assert (len(rows), told["left_out"]) == (6, {"unreadable": 1})
    assert told["problem"]


@pytest.mark.parametrize("kind", [*ROWS, Kind.PARQUET])
def test_a_text_of_a_report_that_no_file_can_hold_spoils_one_rollout(folder: RunFolder, kind: Kind) -> None:
    end_all(folder)
    score_run(folder, "exact_match")
    report = json.loads(folder.evaluation.read_text())
    report["evaluation_results"][0]["rollouts"][1]["failure_class"] = "\ud800"
    folder.evaluation.write_text(json.dumps(report))

    told = export_run(folder, folder.evaluation, folder.path.parent / "out", kind)

    assert (told["rollouts"], told["left_out"]) == (3, {"unreadable": 1})


@KINDS
def test_a_run_without_tokens_is_refused(folder: RunFolder, kind: Kind) -> None:
    for rollout_id in ("a#0", "a#1", "b#0", "b#1"):
        end(folder, rollout_id, 1.0, told=False)
    score_run(folder, "exact_match")

    with pytest.raises(UserError, match="call 1 has no token ids of its prompt"):
        exported(folder, kind)

    assert list((folder.path.parent / "out").iterdir()) == []
