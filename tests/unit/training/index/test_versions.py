"""The order of the model's versions: as they came, or by the steps that were registered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rollout_tasks.errors import UserError
from rollout_tasks.training.index import Index, Rule
from tests.unit.training.index.scored_runs import add, shown


@pytest.fixture(name="index")
def _index(tmp_path: Path) -> Index:
    return Index(f"sqlite:///{tmp_path}/index.sqlite")


def order(index: Index) -> list[tuple[str, int | None, str]]:
    return [(one.version, one.step, one.status) for one in index.checkpoints()]


def test_a_version_gets_its_place_when_it_is_first_seen(index: Index, tmp_path: Path) -> None:
    index.checkpoint("base", step=10)
    add(index, tmp_path / "one", {"a": [1.0]}, version="next")
    add(index, tmp_path / "two", {"a": [1.0]}, version="base")

    assert order(index) == [("next", 11, "seen"), ("base", 10, "registered")]


def test_what_is_registered_later_keeps_its_rollouts(index: Index, tmp_path: Path) -> None:
    add(index, tmp_path / "one", {"a": [0.0, 1.0]}, version="x")

    changed = index.checkpoint("x", step=200, name="policy", path="checkpoints/x")
    again = index.checkpoint("x", status="served")

    assert (changed.step, changed.status, again.path, again.status) == (200, "registered", "checkpoints/x", "served")
    assert len(index.checkpoints()) == 1
    assert len(index.groups(Rule(size=2))) == 1


def test_another_step_changes_which_rollouts_are_the_newest(index: Index, tmp_path: Path) -> None:
    add(index, tmp_path / "one", {"a": [1.0, 1.0]}, version="x")
    add(index, tmp_path / "two", {"a": [0.0, 0.0]}, version="y")
    assert shown(index.groups(Rule(size=2, pool=False))) == {"a": ["two#1", "two#0"]}

    index.checkpoint("x", step=50)

    assert index.groups(Rule(size=2)) == []  # the newest two have succeeded now
    assert shown(index.groups(Rule(size=3))) == {"a": ["one#1", "one#0", "two#1"]}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"version": ""}, "version: must not be empty"),
        ({"version": "x" * 1_001}, "version: must be a text of at most 1,000 characters"),
        ({"version": "x", "step": -1}, "step: must be between 0 and "),
        ({"version": "x", "status": "y" * 51}, "status: must be a text of at most 50 characters"),
        ({"version": "x", "path": "\ud800"}, "path: must be a text"),
    ],
)
def test_what_cannot_be_stored_is_refused(index: Index, values: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=f"^{said}"):
        index.checkpoint(**values)
    assert index.checkpoints() == []
