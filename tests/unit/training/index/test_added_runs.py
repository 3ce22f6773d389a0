"""Adding runs to an index: once, again, after a resume, after another scoring; and what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from benchmark.errors import BenchmarkError
from rollout_tasks.errors import FailureClass, UserError
from rollout_tasks.runs.finalize import score_run
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.training.index import Index, Rule
from rollout_tasks.training.index.added_runs import Added
from rollout_tasks.training.index.database import Database
from tests.unit.training.ended_rollouts import end, run_of
from tests.unit.training.index.scored_runs import LOST, add, scored, shown


@pytest.fixture(name="url")
def _url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/index.sqlite"


@pytest.fixture(name="index")
def _index(url: str) -> Index:
    return Index(url)


def everything(url: str) -> dict[str, list[Any]]:
    """The rows of all tables."""
    tables = ("runs", "items", "rollouts", "traces", "checkpoints", "claims", "uses", "unused")
    with Database(url).reading() as connection:
        return {name: list(map(tuple, connection.execute(text(f"SELECT * FROM {name}")))) for name in tables}  # noqa: S608


def test_a_run_is_added_once(index: Index, url: str, tmp_path: Path) -> None:
    folder = scored(tmp_path / "night-1", {"a": [1.0, 0.0, LOST], "b": [0.0, 0.0, 0.0]})

    first = index.add(folder.path)
    before = everything(url)
    again = index.add(folder.path)

    assert first == Added("night-1", 6, 0, 0, {"infrastructure_loss": 1}, "")
    assert again == Added("night-1", 0, 0, 6, {"infrastructure_loss": 1}, "")
    assert everything(url) == before
    assert len(before["rollouts"]) == 6
    assert len(before["traces"]) == 10  # two of each that was not lost
    assert [row[-1] for row in before["unused"]] == [2, 3]


def test_a_lost_rollout_has_no_reward_and_is_in_no_group(index: Index, tmp_path: Path) -> None:
    add(index, tmp_path / "night-1", {"a": [1.0, LOST, 0.0]})

    assert shown(index.groups(Rule(size=2))) == {"a": ["night-1#2", "night-1#0"]}
    assert index.groups(Rule(size=3)) == []


def test_what_a_resume_rolled_out_again_is_added(index: Index, tmp_path: Path) -> None:
    folder = add(index, tmp_path / "night-1", {"a": [1.0, LOST]})

    folder.set_aside("a#1")
    end(folder, "a#1", 0.0)
    score_run(folder, "exact_match")

    assert index.add(folder.path) == Added("night-1", 0, 1, 1, {}, "")
    assert shown(index.groups(Rule(size=2))) == {"a": ["night-1#1", "night-1#0"]}


def test_another_scoring_changes_rewards_and_gives_nothing_back(index: Index, tmp_path: Path) -> None:
    folder = add(index, tmp_path / "night-1", {"a": [1.0, 0.0], "b": [1.0, 1.0]})
    assert index.claim(Rule(size=2), groups=8, by="trainer") is not None
    report = json.loads(folder.evaluation.read_text())
    for row in report["evaluation_results"]:
        for rollout in row["rollouts"]:
            rollout["score"] = 0.5
    other = folder.path / "evaluation-other.json"
    other.write_text(json.dumps(report))

    assert index.add(folder.path, report=other).changed == 4
    (group,) = index.groups(Rule(size=2))
    assert (group.item_id, group.mean_reward) == ("b", 0.5)


def test_a_rollout_that_lost_its_score_leaves_its_group(index: Index, tmp_path: Path) -> None:
    folder = add(index, tmp_path / "night-1", {"a": [1.0, 0.0]})
    report = json.loads(folder.evaluation.read_text())
    report["evaluation_results"][0]["rollouts"][0] |= {"score": None, "standing": "unscored"}
    folder.evaluation.write_text(json.dumps(report))

    assert index.add(folder.path).left_out == {"unscored": 1}
    assert index.groups(Rule(size=2)) == []
    assert shown(index.groups(Rule(size=1))) == {"a": ["night-1#1"]}


def test_rollouts_that_cannot_be_read_are_counted(index: Index, tmp_path: Path) -> None:
    folder = run_of(tmp_path / "night-1", ["a"], rollouts_per_item=3)
    end(folder, "a#0", 1.0)
    end(folder, "a#1", 0.0, told=False)
    end(folder, "a#2", failure=FailureClass.MAX_TURNS)
    score_run(folder, "exact_match")

    added = index.add(folder.path)

    assert (added.new, added.left_out) == (3, {"no_tokens": 1})
    assert "call 1 has no token ids" in added.problem
    assert [one.failure_class for one in index.groups(Rule(size=2))[0].rollouts] == ["max_turns", ""]


def test_a_run_that_was_moved_is_the_same_run(index: Index, tmp_path: Path) -> None:
    folder = add(index, tmp_path / "night-1", {"a": [1.0, 0.0]})
    moved = tmp_path / "archive" / "night-1"
    moved.parent.mkdir()
    shutil.move(folder.path, moved)

    assert index.add(moved) == Added("night-1", 0, 0, 2, {}, "")
    claim = index.claim(Rule(size=2), groups=1, by="trainer")
    assert claim is not None
    assert claim.groups[0].rewards == (0.0, 1.0)


def test_a_run_whose_folder_got_another_name_is_the_same_run(index: Index, tmp_path: Path) -> None:
    folder = add(index, tmp_path / "night-1", {"a": [1.0, 0.0]})
    renamed = folder.path.rename(tmp_path / "best night")

    assert index.add(renamed) == Added("night-1", 0, 0, 2, {}, "")
    claim = index.claim(Rule(size=2), groups=1, by="trainer")
    assert claim is not None
    assert claim.groups[0].rewards == (0.0, 1.0)


def test_two_runs_of_one_id_are_not_mixed(index: Index, tmp_path: Path) -> None:
    folder = add(index, tmp_path / "night-1", {"a": [1.0]})
    shutil.copytree(folder.path, tmp_path / "copy" / "night-1")
    other = scored(tmp_path / "other" / "night-1", {"b": [1.0]})

    for path in (tmp_path / "copy" / "night-1", other.path):
        with pytest.raises(UserError, match=r"the index has another run night-1, in .*: each needs an id of its own"):
            index.add(path)


def test_what_is_no_scored_run_is_refused(index: Index, tmp_path: Path) -> None:
    with pytest.raises(BenchmarkError, match=r"evaluation\.json: cannot be read"):
        index.add(tmp_path)

    report = scored(tmp_path / "night-1", {"a": [1.0]}).evaluation
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"is not a run's folder: it has no run\.json"):
        index.add(tmp_path / "empty", report=report)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"score": 5.0}, r"rollout a#0 has the score 5, which is not in \[0, 1\]"),
        ({"score": -1.0}, r"rollout a#0 has the score -1, which is not in \[0, 1\]"),
        ({"index": -3}, "a#-3 is not a rollout's id"),
        ({"index": 1 << 40}, "is not a rollout's id"),
    ],
)
def test_a_report_that_somebody_changed_adds_nothing(
    index: Index, url: str, tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    folder = scored(tmp_path / "night-1", {"a": [1.0]})
    report = json.loads(folder.evaluation.read_text())
    report["evaluation_results"][0]["rollouts"][0] |= change
    folder.evaluation.write_text(json.dumps(report))

    with pytest.raises(UserError, match=said):
        index.add(folder.path)
    assert everything(url)["runs"] == []


def test_a_time_that_is_none_does_not_matter(index: Index, tmp_path: Path) -> None:
    folder: RunFolder = scored(tmp_path / "night-1", {"a": [1.0, 0.0]})
    result = folder.rollout("a#0") / "result.json"
    values = json.loads(result.read_text())
    result.write_text(json.dumps(values | {"finished": "soon"}))

    index.add(folder.path)

    assert shown(index.groups(Rule(size=2))) == {"a": ["night-1#1", "night-1#0"]}
