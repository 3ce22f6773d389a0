"""`rollouts export`: the rows of a run's traces, whose rewards are its scores, and what is left out."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from benchmark.errors import BenchmarkError
from desktop_image.locks import hold_folder
from rollout_tasks.cli.export import export
from rollout_tasks.errors import FailureClass, UserError
from rollout_tasks.runs.finalize import score_run
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.training.exports.formats import Kind
from tests.unit.training.ended_rollouts import PICTURES, SHA, end, run_of

parquet = pytest.importorskip("pyarrow.parquet")


@pytest.fixture(name="folder")
def _folder(tmp_path: Path) -> RunFolder:
    return run_of(tmp_path / "night-1", ["a", "b"], rollouts_per_item=2)


def exported(
    folder: RunFolder, capsys: pytest.CaptureFixture[str], metric: str | None = None
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], Any]:
    export(
        run=str(folder.path),
        kind=Kind.PARQUET,
        min_reward=None,
        metric=metric,
        to=None,
        output_dir=Path("none"),
        as_json=True,
    )
    told = json.loads(capsys.readouterr().out)
    target = Path(told["folder"])
    assert sorted(path.name for path in target.iterdir()) == ["pictures.parquet", "traces.parquet"]
    rows, pictures = (parquet.read_table(target / f"{name}.parquet").to_pylist() for name in ("traces", "pictures"))
    return rows, pictures, told


def test_each_trace_has_the_score_of_its_rollout(folder: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    end(folder, "a#0", 1.0)
    end(folder, "a#1", 0.25)
    end(folder, "b#0", failure=FailureClass.MAX_TURNS)
    end(folder, "b#1", failure=FailureClass.VM_LOST)
    score_run(folder, "exact_match")

    rows, pictures, told = exported(folder, capsys)

    named = [(row["item_id"], row["rollout"], row["trace"], row["reward"]) for row in rows]
    assert named == [
        *[("a", 0, 0, 1.0), ("a", 0, 1, 1.0), ("a", 1, 0, 0.25), ("a", 1, 1, 0.25)],
        *[("b", 0, 0, 0.0), ("b", 0, 1, 0.0)],
    ]
    assert told["left_out"] == {"infrastructure_loss": 1}
    assert (told["rollouts"], told["traces"], told["tokens"], told["sampled_tokens"], told["pictures"]) == (
        3,
        6,
        27,
        9,
        2,
    )
    first, second = rows[:2]
    assert (first["ids"], first["sampled"], first["pictures"]) == ([1, 2, 3], [False, False, True], [SHA[0]])
    assert (second["ids"], second["logprobs"]) == ([1, 9, 3, 5, 6, 7], [0.0] * 4 + [-0.25] * 2)
    assert (second["pictures"], second["versions"]) == ([SHA[1]], [{"version": "7", "start": 4, "end": 6}])
    assert [(row["model"], row["failure_class"]) for row in rows[3:5]] == [("policy", ""), ("policy", "max_turns")]
    assert second["outputs"] == [{"call": 2, "start": 4, "end": 6, "finish_reason": "stop"}]
    assert [(one["sha256"], one["kind"], one["bytes"]) for one in pictures] == [
        (name, "png", picture) for name, picture in zip(SHA, PICTURES, strict=True)
    ]


def test_a_run_without_scores_or_without_tokens_is_refused(
    folder: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    for rollout_id in ("a#0", "a#1", "b#0", "b#1"):
        end(folder, rollout_id, 1.0, told=False)
    with pytest.raises(
        UserError, match=r"night-1 has no report, whose .*: rollouts rescore .*night-1 --metric exact_match"
    ):
        exported(folder, capsys)
    score_run(folder, "exact_match")

    with pytest.raises(UserError, match=r"a/0/attempt-1: call 1 has no token ids of its prompt"):
        exported(folder, capsys)

    assert list((folder.path / "training").iterdir()) == []


def test_some_rollouts_without_tokens_are_left_out(folder: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    for rollout_id in ("a#0", "a#1", "b#0"):
        end(folder, rollout_id, 1.0, told=False)
    end(folder, "b#1", 1.0)
    score_run(folder, "exact_match")

    rows, _, told = exported(folder, capsys)

    assert ({row["item_id"] for row in rows}, told["left_out"]) == ({"b"}, {"no_tokens": 3})


def test_a_record_that_cannot_be_read_is_left_out_and_named(
    folder: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    for rollout_id in ("a#0", "a#1", "b#0", "b#1"):
        end(folder, rollout_id, 1.0)
    record = folder.attempt("a#1", 1) / "trajectory.jsonl"
    record.write_text(record.read_text().replace("-0.25", "null"))
    score_run(folder, "exact_match")

    rows, _, told = exported(folder, capsys)

    assert (len(rows), told["left_out"]) == (6, {"unreadable": 1})
    assert told["problem"].endswith("a/1/attempt-1: call 1 has a log-probability that is no number")


BROKEN: dict[str, tuple[str, str]] = {
    "a message that is none": ('"message": {"role": "assistant", "content": "x"}', '"message": "x"'),
    "a role that is none": ('"role": "user"', '"role": []'),
    "a model that is no name": ('"served_by": "policy"', '"served_by": 5'),
    "a number that is none": ("-0.25", "-" + "9" * 400),
    "lists in lists": ('"token_ids": [3]', '"token_ids": ' + "[" * 100_000),
}


@pytest.mark.parametrize(("before", "after"), BROKEN.values(), ids=list(BROKEN))
def test_one_broken_record_spoils_no_other(
    folder: RunFolder, capsys: pytest.CaptureFixture[str], before: str, after: str
) -> None:
    for rollout_id in ("a#0", "a#1", "b#0", "b#1"):
        end(folder, rollout_id, 1.0)
    record = folder.attempt("a#1", 1) / "trajectory.jsonl"
    text = record.read_text()
    assert before in text
    record.write_text(text.replace(before, after))
    score_run(folder, "exact_match")

    rows, _, told = exported(folder, capsys)

    assert (len(rows), told["left_out"]) == (6, {"unreadable": 1})


def test_a_rollout_that_was_scored_before_it_was_settled_is_there(
    folder: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in a run of an earlier version, or whose worker was killed between the two."""
    for rollout_id in ("a#0", "a#1", "b#0", "b#1"):
        end(folder, rollout_id, 1.0)
    (folder.rollout("a#0") / "result.json").unlink()
    score_run(folder, "exact_match")

    rows, _, told = exported(folder, capsys)

    assert (len(rows), told["left_out"]) == (8, {})


@pytest.mark.parametrize(
    "change",
    [
        lambda row: row["rollouts"][0].update(score="1"),
        lambda row: row["rollouts"][0].update(index="0"),
        lambda row: row.pop("rollouts"),
        lambda row: row["rollouts"].append(row["rollouts"][0]),
        lambda row: row.update(rollouts=3),
    ],
)
def test_a_report_that_somebody_changed_is_refused(
    folder: RunFolder, capsys: pytest.CaptureFixture[str], change: Any
) -> None:
    for rollout_id in ("a#0", "a#1", "b#0", "b#1"):
        end(folder, rollout_id, 1.0)
    score_run(folder, "exact_match")
    report = json.loads(folder.evaluation.read_text())
    change(report["evaluation_results"][0])
    folder.evaluation.write_text(json.dumps(report))

    with pytest.raises(BenchmarkError, match="a row is not one of a report"):
        exported(folder, capsys)


def test_a_folder_in_the_place_of_a_file_is_found_before_anything_is_replaced(
    folder: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    for rollout_id in ("a#0", "a#1", "b#0", "b#1"):
        end(folder, rollout_id, 1.0)
    score_run(folder, "exact_match")
    (folder.path / "training" / "pictures.parquet").mkdir(parents=True)

    with pytest.raises(UserError, match=r"pictures.parquet: Is a directory"):
        exported(folder, capsys)

    assert not (folder.path / "training" / "traces.parquet").exists()


def test_the_rewards_of_another_metric(folder: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    for rollout_id in ("a#0", "a#1", "b#0", "b#1"):
        end(folder, rollout_id, 1.0)
    score_run(folder, "exact_match", suffix="-contains_answer")

    rows, *_ = exported(folder, capsys, "contains_answer")

    assert len(rows) == 8
    with pytest.raises(UserError, match="night-1 has no report with f1_score"):
        exported(folder, capsys, "f1_score")


def test_what_a_killed_export_left_is_removed_and_links_are_not_followed(
    folder: RunFolder, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for rollout_id in ("a#0", "a#1", "b#0", "b#1"):
        end(folder, rollout_id, 1.0)
    score_run(folder, "exact_match")
    victim, target = tmp_path / "victim", folder.path / "training"
    victim.write_text("mine")
    (target / ".rollouts-export-killed").mkdir(parents=True)
    (target / "traces.parquet").symlink_to(victim)

    exported(folder, capsys)

    assert victim.read_text() == "mine"


def test_two_exports_to_one_folder_do_not_disturb_each_other(
    folder: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    for rollout_id in ("a#0", "a#1", "b#0", "b#1"):
        end(folder, rollout_id, 1.0)
    score_run(folder, "exact_match")
    target = folder.path / "training"
    (target / ".rollouts-export-of-another").mkdir(parents=True)
    held = hold_folder(target)
    assert held is not None

    with pytest.raises(UserError, match="another export is writing to"):
        exported(folder, capsys)

    assert (target / ".rollouts-export-of-another").exists()
    os.close(held)
    exported(folder, capsys)


def test_a_run_whose_report_is_broken_gets_no_folder(folder: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    score_run(folder, "exact_match")
    folder.evaluation.write_text("{")

    with pytest.raises(BenchmarkError, match="is not a JSON report"):
        exported(folder, capsys)

    assert not (folder.path / "training").exists()


def test_what_is_told_as_text(folder: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    for rollout_id in ("a#0", "a#1", "b#0"):
        end(folder, rollout_id, 1.0)
    end(folder, "b#1", failure=FailureClass.VM_LOST)
    score_run(folder, "exact_match")

    there = folder.path / "there"
    export(
        run=str(folder.path),
        kind=Kind.PARQUET,
        min_reward=None,
        metric=None,
        to=str(there),
        output_dir=Path("none"),
        as_json=False,
    )

    said = capsys.readouterr()
    assert said.out == f"3 rollouts, 6 traces, 27 tokens, 9 sampled tokens, 2 pictures: {there}\n"
    assert "left out: 1 rollout lost to infrastructure failures" in said.err


def test_rollouts_with_a_lower_reward_can_be_left_out(folder: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    end(folder, "a#0", 1.0)
    end(folder, "a#1", 0.25)
    end(folder, "b#0", failure=FailureClass.MAX_TURNS)
    end(folder, "b#1", failure=FailureClass.VM_LOST)
    score_run(folder, "exact_match")

    export(
        run=str(folder.path),
        kind=Kind.PARQUET,
        min_reward=0.25,
        metric=None,
        to=None,
        output_dir=Path("none"),
        as_json=True,
    )

    told = json.loads(capsys.readouterr().out)
    assert (told["rollouts"], told["left_out"]) == (2, {"below_min_reward": 1, "infrastructure_loss": 1})
