"""Claims: what one trainer has taken, no other gets, until it is given back."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rollout_tasks.errors import UserError
from rollout_tasks.training.index import Index, Rule
from tests.conftest import REPOSITORY
from tests.unit.training.ended_rollouts import end
from tests.unit.training.index.scored_runs import add, shown


@pytest.fixture(name="index")
def _index(tmp_path: Path) -> Index:
    return Index(f"sqlite:///{tmp_path}/index.sqlite")


RULE = Rule(size=2)


def test_a_claimed_group_has_its_traces(index: Index, tmp_path: Path) -> None:
    add(index, tmp_path / "night-1", {"a": [1.0, 0.0]})

    claim = index.claim(RULE, groups=4, by="trainer-1")

    assert claim is not None
    (group,) = claim.groups
    assert (claim.id, claim.by, group.item_id, group.rewards, group.left_out) == (1, "trainer-1", "a", (0.0, 1.0), {})
    assert abs(time.time() - claim.at) < 60
    assert [[trace.calls for trace in one.traces] for one in group.rollouts] == [[(1,), (2,)]] * 2
    assert all(file.is_file() for one in group.rollouts for file in one.pictures.values())


def test_nobody_gets_what_is_taken_until_it_is_given_back(index: Index, tmp_path: Path) -> None:
    add(index, tmp_path / "night-1", {"a": [1.0, 0.0], "b": [0.0, 0.0]})
    before = shown(index.groups(RULE))
    claim = index.claim(RULE, groups=8, by="trainer-1")
    assert claim is not None

    assert index.claim(RULE, groups=8, by="trainer-2") is None
    assert index.groups(Rule(size=1)) == []
    assert [(one.id, one.by, one.groups, one.rollouts) for one in index.claims()] == [(1, "trainer-1", 2, 4)]

    assert (index.give_back(claim), index.give_back(claim), index.give_back(1)) == (4, 0, 0)
    assert index.claims() == []
    assert shown(index.groups(RULE)) == before
    again = index.claim(RULE, groups=8, by="trainer-2")
    assert again is not None
    assert (again.id, len(again.groups)) == (2, 2)
    assert index.give_back(claim) == 0  # the first claim's: what another took since stays taken


def test_the_success_that_joined_is_taken_with_the_group(index: Index, tmp_path: Path) -> None:
    add(index, tmp_path / "old", {"a": [1.0]}, version="1")
    add(index, tmp_path / "mid", {"a": [0.0, 0.0]}, version="2")
    add(index, tmp_path / "new", {"a": [0.0, 0.0]}, version="3")

    first = index.claim(RULE, groups=1, by="trainer")
    second = index.claim(RULE, groups=1, by="trainer")

    assert first is not None
    assert second is not None
    assert first.groups[0].rewards == (0.0, 0.0, 1.0)
    assert second.groups[0].rewards == (0.0, 0.0)


def test_what_can_no_longer_be_read_is_counted(index: Index, tmp_path: Path) -> None:
    folder = add(index, tmp_path / "night-1", {"a": [1.0, 0.0, 0.5]})
    shutil.rmtree(folder.attempt("a#0", 1))
    folder.set_aside("a#1")
    end(folder, "a#1", 0.0)
    shutil.move(folder.attempt("a#1", 2), folder.attempt("a#1", 3))
    result = folder.rollout("a#1") / "result.json"
    result.write_text(result.read_text().replace('"attempt":2', '"attempt":3'))

    claim = index.claim(Rule(size=3), groups=1, by="trainer")

    assert claim is not None
    (group,) = claim.groups
    assert (group.rewards, group.left_out) == ((0.5,), {"unreadable": 2})
    assert group.problem == "rollout a#1 of run night-1 was rolled out again: add the run to the index again"


def test_groups_of_which_nothing_can_be_read_stay_for_others(index: Index, tmp_path: Path) -> None:
    folder = add(index, tmp_path / "night-1", {"a": [1.0, 0.0]})
    moved = folder.path.rename(tmp_path / "moved")
    before = shown(index.groups(RULE))

    with pytest.raises(
        UserError, match=r"^no rollout of 1 group can be read, and none is taken .*night-1/.*No such file"
    ):
        index.claim(RULE, groups=1, by="trainer")

    assert (shown(index.groups(RULE)), index.claims()) == (before, [])
    index.add(moved)
    assert index.claim(RULE, groups=1, by="trainer") is not None


@pytest.mark.parametrize(("name", "count"), [("", 1), ("x" * 201, 1), ("a\0b", 1), ("trainer", 0)])
def test_a_claim_that_makes_no_sense_is_refused(index: Index, name: str, count: int) -> None:
    with pytest.raises(UserError, match=r"^(by|groups): must be "):
        index.claim(RULE, groups=count, by=name)


def test_a_claim_that_is_none_is_named(index: Index) -> None:
    with pytest.raises(UserError, match=r"^there is no claim 7$"):
        index.give_back(7)


TRAINER = """
import sys
from rollout_tasks import Index, Rule
while (claim := Index(sys.argv[1]).claim(Rule(size=2), groups=3, by=sys.argv[2])) is not None:
    for group in claim.groups:
        for rollout in group.rollouts:
            print(group.item_id, rollout.index)
"""


def test_trainers_in_several_processes_get_no_rollout_twice(index: Index, tmp_path: Path) -> None:
    names = [f"item-{number}" for number in range(12)]
    add(index, tmp_path / "night-1", {name: [0.0, 1.0, 0.0, 1.0] for name in names})
    command = [sys.executable, "-c", TRAINER, f"sqlite:///{tmp_path}/index.sqlite"]

    trainers = [
        subprocess.Popen([*command, f"trainer-{number}"], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
        for number in range(3)
    ]
    got = [line for trainer in trainers for line in trainer.communicate(timeout=120)[0].splitlines()]

    assert [trainer.returncode for trainer in trainers] == [0, 0, 0]
    assert sorted(got) == sorted(f"{name} {number}" for name in names for number in range(4))
