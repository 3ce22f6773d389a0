"""The tables of the older system: its columns, and what each change of the index writes there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import inspect, text

from rollout_tasks.runs.finalize import score_run
from rollout_tasks.training.index import Index, Rule
from rollout_tasks.training.index.database import Database
from tests.unit.training.ended_rollouts import end
from tests.unit.training.index.scored_runs import LOST, add, scored

COLUMNS = {
    "rollout_run": "id run_id trajectory_id task_id trace_id split_dir reward num_chunks used model_version instruction create_at",
    "rollout_chunk": "trajectory_id chunk_index json_path",
    "checkpoint": "id name version run_id status path source operator remark config_yaml created_at updated_at deleted_at"
    " started_at finished_at",
    "dataset_usage_events": "trajectory_id run_id model_version used_delta event_type created_at",
    "trainable_group": "trajectory_id task_id reward model_version create_at run_id",
}
RULE = Rule(size=2)


@pytest.fixture(name="url")
def _url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/index.sqlite"


def rows(url: str, query: str) -> list[Any]:
    with Database(url).reading() as connection:
        return list(map(tuple, connection.execute(text(query))))


def test_the_tables_have_the_columns_that_readers_know(url: str) -> None:
    Index(url)
    with Database(url).reading() as connection:
        assert not {*COLUMNS} & {*inspect(connection).get_table_names()}  # only where they are asked for

    Index(url, seed_schema=True)

    with Database(url).reading() as connection:
        found = {name: [one["name"] for one in inspect(connection).get_columns(name)] for name in COLUMNS}
    assert found == {name: columns.split() for name, columns in COLUMNS.items()}


def test_rollouts_with_a_reward_are_written_once(url: str, tmp_path: Path) -> None:
    index = Index(url, seed_schema=True)
    folder = scored(tmp_path / "night-1", {"a": [1.0, LOST]}, finished=1_700_000_000.0)

    index.add(folder.path)
    index.add(folder.path)

    attempt = folder.attempt("a#0", 1)
    wanted = (
        "run_id, trajectory_id, task_id, split_dir, reward, num_chunks, used, model_version, instruction, create_at"
    )
    assert rows(url, f"SELECT {wanted} FROM rollout_run") == [  # noqa: S608
        ("night-1", "night-1/a#0", "a", str(attempt), 1.0, 2, 0, "7", "?", "2023-11-14 22:13:20.000000")
    ]
    record = str(attempt / "trajectory.jsonl")
    assert rows(url, "SELECT * FROM rollout_chunk") == [("night-1/a#0", 0, record), ("night-1/a#0", 1, record)]
    assert rows(url, "SELECT trajectory_id, used_delta, event_type FROM dataset_usage_events") == [
        ("night-1/a#0", 0, "INSERT")
    ]


def test_uses_and_changes_are_events(url: str, tmp_path: Path) -> None:
    index = Index(url, seed_schema=True)
    folder = add(index, tmp_path / "night-1", {"a": [1.0, LOST]})
    folder.set_aside("a#1")
    end(folder, "a#1", 0.0)
    score_run(folder, "exact_match")
    index.add(folder.path)

    claim = index.claim(RULE, groups=1, by="trainer")
    assert claim is not None
    assert rows(url, "SELECT used FROM rollout_run") == [(1,), (1,)]
    index.give_back(claim)

    assert rows(url, "SELECT used FROM rollout_run") == [(0,), (0,)]
    events = rows(url, "SELECT trajectory_id, used_delta, event_type FROM dataset_usage_events")
    assert events == [
        ("night-1/a#0", 0, "INSERT"),
        ("night-1/a#1", 0, "INSERT"),
        *(("night-1/a#0", 1, "USE"), ("night-1/a#1", 1, "USE")),
        *(("night-1/a#0", -1, "UPDATE"), ("night-1/a#1", -1, "UPDATE")),
    ]


def test_groups_are_written_in_the_place_of_those_before(url: str, tmp_path: Path) -> None:
    index = Index(url, seed_schema=True)
    add(index, tmp_path / "night-1", {"a": [1.0, 0.0], "b": [0.0, 0.0]})
    chosen = "SELECT trajectory_id, task_id, reward, model_version, run_id FROM trainable_group ORDER BY trajectory_id"

    index.groups(RULE, most=1)
    index.groups(RULE)

    assert rows(url, chosen) == [
        (f"night-1/{item}#{number}", item, reward, "7", "night-1")
        for item, number, reward in [("a", 0, 1.0), ("a", 1, 0.0), ("b", 0, 0.0), ("b", 1, 0.0)]
    ]
    index.claim(RULE, groups=8, by="trainer")
    index.groups(RULE)
    assert rows(url, chosen) == []


def test_a_checkpoint_is_one_row(url: str) -> None:
    index = Index(url, seed_schema=True)

    index.checkpoint("step-1", name="policy", path="/c/1")
    index.checkpoint("step-1", status="served")

    assert rows(url, "SELECT name, version, run_id, status, path FROM checkpoint") == [
        ("policy", "step-1", "", "served", "/c/1")
    ]


def test_versions_with_the_same_beginning_are_two_rows(url: str) -> None:
    index = Index(url, seed_schema=True)

    for end_of_version in "ab":
        index.checkpoint("runs/2026-11/policy-" + "x" * 60 + end_of_version)

    assert rows(url, "SELECT count(*), count(DISTINCT version) FROM checkpoint") == [(2, 2)]


def test_names_that_are_too_long_for_a_column_are_still_told_apart(url: str, tmp_path: Path) -> None:
    index = Index(url, seed_schema=True)
    add(index, tmp_path / "night-1", {"x" * 180 + end_of_id: [1.0] for end_of_id in "ab"})

    keys = {key for (key,) in rows(url, "SELECT trajectory_id FROM rollout_run")}

    assert (len(keys), {len(key) for key in keys}) == (2, {64})
