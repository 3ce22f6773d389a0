"""Groups: the rollouts of one item with their rewards; what the infrastructure lost is counted, and is in no mean."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rollout_tasks.api import find
from rollout_tasks.errors import FailureClass
from rollout_tasks.runs.finalize import score_run
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.training.groups import Group
from tests.unit.training.ended_rollouts import end, run_of


@pytest.fixture(name="folder")
def _folder(tmp_path: Path) -> RunFolder:
    return run_of(tmp_path / "night-1", ["a", "b"], rollouts_per_item=3)


def groups(folder: RunFolder) -> list[Group]:
    return list(find(str(folder.path)).result().groups())


def test_a_group_has_the_rollouts_that_say_something_about_the_model(folder: RunFolder) -> None:
    end(folder, "a#0", 1.0)
    end(folder, "a#1", failure=FailureClass.MAX_TURNS)
    end(folder, "a#2", failure=FailureClass.VM_LOST)
    for index in range(3):
        end(folder, f"b#{index}", 0.5, told=index != 1)

    score_run(folder, "exact_match")

    first, second = groups(folder)

    assert (first.item_id, first.rewards, first.left_out) == ("a", (1.0, 0.0), {"infrastructure_loss": 1})
    assert not first.is_level
    assert [[trace.calls for trace in rollout.traces] for rollout in first.rollouts] == [[(1,), (2,)]] * 2
    assert [rollout.failure_class for rollout in first.rollouts] == ["", "max_turns"]
    assert (second.rewards, second.left_out, second.is_level) == ((0.5, 0.5), {"no_tokens": 1}, True)
    assert "b/1/attempt-1: call 1 has no token ids" in second.problem
    assert [rollout.index for rollout in second.rollouts] == [0, 2]


def test_rollouts_that_never_ended_are_left_out(folder: RunFolder) -> None:
    end(folder, "a#0", 1.0)
    score_run(folder, "exact_match")

    first, second = groups(folder)

    assert (first.rewards, first.left_out) == ((1.0,), {"cancelled": 2})
    assert (second.rewards, second.left_out, second.is_level) == ((), {"cancelled": 3}, True)


def test_a_run_that_is_over_yields_its_groups_once(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Redis is not there any more: the folder has all."""
    monkeypatch.setenv("REDIS_URL", "redis://127.0.0.1:1/0")
    for name in ("a", "b"):
        for index in range(3):
            end(folder, f"{name}#{index}", index / 2)
    score_run(folder, "exact_match")

    async def come() -> list[tuple[str, tuple[float, ...]]]:
        return [(group.item_id, group.rewards) async for group in find(str(folder.path)).groups()]

    assert asyncio.run(come()) == [("a", (0.0, 0.5, 1.0)), ("b", (0.0, 0.5, 1.0))]
