"""What the folders of DART's rollouter say of a rollout; `tests/integration/training` writes them, and reads them with torch."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmark.items import Item
from rollout_tasks.config import RunConfig
from rollout_tasks.errors import FailureClass, UserError
from rollout_tasks.models.sent_messages import LeftOut as NotSent
from rollout_tasks.runs.finalize import score_run
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.runs.verdict import Verdict
from rollout_tasks.training.exports.formats import Kind
from rollout_tasks.training.exports.run_export import export_run
from rollout_tasks.training.exports.seed_documents import SeedTrajectory, seed_trajectory
from rollout_tasks.training.scored_rollouts import LeftOut, ScoredRollout, reported, scored
from rollout_tasks.trajectories.writer import TrajectoryWriter
from tests.unit.training.ended_rollouts import SHA, end, reply, seen

TASK = Item(
    "os_task", "Open it", metadata={"config": [], "evaluator": {"func": "infeasible"}}, env_config={"proxy": False}
)


@pytest.fixture(name="folder")
def _folder(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path / "night_1")
    items = [TASK, Item("b", "?", "42")]
    folder.description.create(RunConfig(rollouts_per_item=2), items, data_path="x.jsonl", data_name="x")
    return folder


def read(folder: RunFolder) -> tuple[list[SeedTrajectory], LeftOut]:
    """Reads the run as an export does."""
    score_run(folder, "exact_match")
    items, left_out = {item.id: item for item in folder.description.each_item()}, LeftOut()
    found = [
        one
        for item_id, rows in reported(folder.evaluation)
        for one in scored(
            folder, item_id, rows, lambda rollout: seed_trajectory("night_1", items[rollout.item_id], rollout), left_out
        )
    ]
    return found, left_out


def test_a_folder_says_what_happened(folder: RunFolder) -> None:
    end(folder, "os_task#0", 0.25)
    end(folder, "os_task#1", failure=FailureClass.VM_LOST)
    end(folder, "b#0", failure=FailureClass.MAX_TURNS)
    end(folder, "b#1", 1.0)

    found, left_out = read(folder)

    assert left_out.counted == {"infrastructure_loss": 1}
    first = found[0]
    assert [one.name for one in found] == ["os=5Ftask_night=5F1-0", "b_night=5F1-0", "b_night=5F1-1"]
    assert [(step.prompt_ids, step.output_ids) for step in first.steps] == [((1, 2), (3,)), ((1, 9, 3, 5), (6, 7))]
    assert first.images == {"image_0000.png": f"{SHA[0]}.png", "image_0001.png": f"{SHA[1]}.png"}
    assert first.shown == ((0,), (1,))
    assert (first.texts["reward.txt"], first.texts["reward_from_env.txt"]) == ("0.25", "0.25")
    texts: dict[str, Any] = {name: json.loads(text) for name, text in first.texts.items() if name.endswith(".json")}
    assert texts["task_config.json"] == {
        "id": "os_task",
        "instruction": "Open it",
        "config": [],
        "evaluator": {"func": "infeasible"},
        "proxy": False,
    }
    assert json.loads(found[1].texts["task_config.json"]) == {"id": "b", "instruction": "?", "answer": "42"}
    assert texts["msg_for_prompt_1.json"] == [
        {"role": "user", "content": [{"type": "image_url", "image_url": "image_0000.png"}]}
    ]
    second = texts["msg_for_prompt_2.json"]
    assert [message["role"] for message in second] == ["user", "assistant", "user"]
    assert "image_0000.png" not in json.dumps(second)
    conversation = texts["final_messages.json"]
    assert [message["role"] for message in conversation] == ["user", "assistant", "user", "assistant"]
    assert conversation[2]["content"][0]["image_url"] == "image_0001.png"
    assert texts["timestamp_info_2.json"]["step"] == 2
    assert texts["timestamp_info_1.json"]["reply_at"] <= texts["timestamp_info_2.json"]["reply_at"]


def test_names_of_folders_are_short_and_different(folder: RunFolder) -> None:
    end(folder, "b#0", 1.0)
    rollout = ScoredRollout("b", 0, 1, 1.0, "", folder.attempt("b#0", 1))
    ids = ["a/b", "a_b", "..", "x" * 300, "x" * 301, "é", " " + "0" * 62, "training"]

    names = [seed_trajectory("night_1", Item(one, "?"), rollout).name for one in ids]

    assert len(set(names)) == len(ids)
    for name in names:
        assert Path(name).name == name
        assert len(name) < 220
        assert not name.startswith(".")


BROKEN: dict[str, tuple[str, str]] = {
    "a message that is none": ('"message": {"role": "assistant", "content": "x"}', '"message": "x"'),
    "a model that is no name": ('"served_by": "policy"', '"served_by": 5'),
    "a number that is none": ("-0.25", "-" + "9" * 400),
    "a number that JSON does not have": ('"content": "x"', '"content": NaN'),
    "a token that is too large": ('"token_ids": [3]', '"token_ids": [4294967296]'),
    "tokens that are no list": ('"token_ids": [3]', '"token_ids": {"3": 3}'),
    "tokens that are none": ('"token_data": {', '"token_data": [3], "other": {'),
    "lists in lists": ('"content": "x"', '"content": ' + "[" * 900 + "]" * 900),
    "a picture elsewhere": ("step_000.png", "../../../../secret.png"),
    "a picture that is missing": ("step_000.png", "step_999.png"),
    "a picture that is a program": ("step_000.png", "step_000.sh"),
    "a picture that is a link": ("step_000.png", "linked.png"),
}


@pytest.mark.parametrize(("before", "after"), BROKEN.values(), ids=list(BROKEN))
def test_one_broken_record_spoils_no_other(folder: RunFolder, before: str, after: str) -> None:
    for rollout_id in ("os_task#0", "os_task#1", "b#0", "b#1"):
        end(folder, rollout_id, 1.0)
    attempt = folder.attempt("os_task#1", 1)
    (attempt / "step_000.sh").write_bytes(b"#!")
    (attempt / "linked.png").symlink_to(attempt / "step_000.png")
    (folder.path.parent / "secret.png").write_bytes(b"mine")
    record = attempt / "trajectory.jsonl"
    text = record.read_text()
    assert before in text
    record.write_text(text.replace(before, after))

    found, left_out = read(folder)

    assert (len(found), left_out.counted) == (3, {"unreadable" if "token_data" not in after else "no_tokens": 1})


def test_what_a_model_says_names_no_file(folder: RunFolder) -> None:
    """Only messages of the user and of tools have pictures; a reply that looks like one is text."""
    number = folder.begin_attempt("b#0", 1)
    writer = TrajectoryWriter(folder.attempt("b#0", number))
    writer.start({})
    writer.message(seen(0))
    said = reply([1, 2], [3])
    answer = {"role": "assistant", "content": [{"type": "image_url", "image_url": {"url": {"$file": "../secret.png"}}}]}
    writer.message(answer, turn=1, reply=said, left_out=NotSent())
    writer.finish()
    end(folder, "b#1", 1.0)
    for rollout_id in ("os_task#0", "os_task#1"):
        end(folder, rollout_id, 1.0)
    verdict = Verdict("b#0", number, "completed", score=1.0)
    folder.write_attempt(verdict)
    folder.settle(verdict, written=True)

    found, _ = read(folder)

    own = next(one for one in found if one.name == "b_night=5F1-0")
    assert list(own.images) == ["image_0000.png"]
    assert json.loads(own.texts["final_messages.json"])[-1] == answer


def test_without_torch_it_says_what_is_needed(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    for rollout_id in ("os_task#0", "os_task#1", "b#0", "b#1"):
        end(folder, rollout_id, 1.0)
    score_run(folder, "exact_match")
    monkeypatch.setitem(sys.modules, "torch", None)
    target = folder.path.parent / "out"

    with pytest.raises(UserError, match=r"^--format seed needs the package torch: uv pip install torch$"):
        export_run(folder, folder.evaluation, target, Kind.SEED)

    assert list(target.iterdir()) == []
