"""Which groups are trainable: checked against a plain statement of the rule, on many drawn indexes; and its cases one by one."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlalchemy import insert, select

from rollout_tasks.errors import UserError
from rollout_tasks.training.index import Index, Rule
from rollout_tasks.training.index.counts import recount
from rollout_tasks.training.index.database import Database
from rollout_tasks.training.index.tables import items, key_of, rollouts, runs
from rollout_tasks.training.index.trainable import trainable_groups
from rollout_tasks.training.index.versions import place
from tests.unit.training.index.scored_runs import add, shown


@pytest.fixture(name="index")
def _index(tmp_path: Path) -> Index:
    return Index(f"sqlite:///{tmp_path}/index.sqlite")


def test_the_newest_unused_rollouts_are_a_group(index: Index, tmp_path: Path) -> None:
    add(index, tmp_path / "one", {"a": [0.0, 1.0, 0.0]}, version="1")
    add(index, tmp_path / "two", {"a": [1.0]}, version="2")

    assert shown(index.groups(Rule(size=3))) == {"a": ["two#0", "one#2", "one#1"]}


@pytest.mark.parametrize(
    ("rewards", "trainable"),
    [([0.0, 0.0], True), ([1.0, 0.0], True), ([1.0, 0.5], True), ([1.0, 1.0], False), ([0.0], False)],
)
def test_a_group_has_something_to_learn(index: Index, tmp_path: Path, rewards: list[float], trainable: bool) -> None:
    add(index, tmp_path / "one", {"a": rewards})

    assert bool(index.groups(Rule(size=2))) == trainable


def test_older_versions_are_in_no_group(index: Index, tmp_path: Path) -> None:
    for version in ("1", "2", "3"):
        add(index, tmp_path / version, {"a": [0.0]}, version=version)

    assert index.groups(Rule(size=3)) == []
    assert shown(index.groups(Rule(size=3, versions=3))) == {"a": ["3#0", "2#0", "1#0"]}
    assert index.groups(Rule(size=3, staleness=1)) == []
    assert len(index.groups(Rule(size=3, staleness=2))) == 1


def test_a_version_that_is_registered_makes_others_old(index: Index, tmp_path: Path) -> None:
    add(index, tmp_path / "one", {"a": [0.0, 1.0]}, version="1")
    index.checkpoint("2")
    assert len(index.groups(Rule(size=2))) == 1

    index.checkpoint("3")

    assert index.groups(Rule(size=2)) == []
    assert len(index.groups(Rule(size=2, staleness=2))) == 1


def test_an_older_success_joins_a_group_without_any(index: Index, tmp_path: Path) -> None:
    add(index, tmp_path / "old", {"a": [1.0, 1.0], "b": [0.0, 0.0], "c": [1.0, 1.0]}, version="1")
    add(index, tmp_path / "mid", {"a": [0.0]}, version="2")
    add(index, tmp_path / "new", {"a": [0.0, 0.0], "b": [0.0, 0.0], "c": [1.0, 0.0]}, version="3")

    found = index.groups(Rule(size=2))

    assert shown(found) == {"a": ["new#1", "new#0", "old#1"], "b": ["new#1", "new#0"], "c": ["new#1", "new#0"]}
    assert [one.pooled for one in found[0].rollouts] == [False, False, True]
    assert shown(index.groups(Rule(size=2, pool=False)))["a"] == ["new#1", "new#0"]


def test_an_unknown_version_is_the_oldest(index: Index, tmp_path: Path) -> None:
    add(index, tmp_path / "one", {"a": [0.0, 1.0]}, version="")
    assert len(index.groups(Rule(size=2, versions=1))) == 1

    add(index, tmp_path / "two", {"b": [0.0, 1.0]}, version="1")

    assert shown(index.groups(Rule(size=2, versions=1))) == {"b": ["two#1", "two#0"]}
    assert [(one.version, one.step) for one in index.checkpoints()] == [("1", 0), ("", None)]


def test_items_take_turns(index: Index, tmp_path: Path) -> None:
    add(index, tmp_path / "one", {name: [0.0, 1.0, 0.0, 1.0] for name in ("a", "b", "c")})
    rule = Rule(size=2)
    claimed = []
    while (claim := index.claim(rule, groups=2, by="trainer")) is not None:
        claimed.append([group.item_id for group in claim.groups])

    assert claimed == [["a", "b"], ["c", "a"], ["b", "c"]]


@pytest.mark.parametrize("wrong", [{"size": 0}, {"versions": 0}, {"staleness": -1}, {"size": 1 << 30}])
def test_a_rule_that_makes_no_sense_is_refused(wrong: dict[str, int]) -> None:
    (name,) = wrong
    with pytest.raises(UserError, match=f"^{name}: must be between "):
        Rule(**wrong)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Drawn:
    """A rollout that was drawn: (item, step, ended) say how new it is."""

    item: int
    step: int
    ended: float
    reward: float | None
    used: bool


def expected(every: list[Drawn], rule: Rule, newest: int) -> dict[int, list[Drawn]]:
    """The rule in plain words, for versions whose place is their step."""
    oldest = newest - (rule.versions - 1 if rule.staleness is None else rule.staleness)
    found = {}
    for item in sorted({one.item for one in every}):
        own = [one for one in every if one.item == item and not one.used and one.reward is not None]
        own.sort(key=lambda one: (-one.step, -one.ended))
        group = [one for one in own if one.step >= oldest][: rule.size]
        rewards = [one.reward or 0.0 for one in group]
        if len(group) == rule.size and sum(rewards) < rule.size:
            older = [one for one in own if one.reward == 1.0] if rule.pool and not sum(rewards) else []
            found[item] = group + older[:1]
    return found


@pytest.mark.parametrize("seed", range(12))
def test_the_query_says_what_the_rule_says(seed: int, tmp_path: Path) -> None:
    draws = random.Random(seed)
    steps, likely = draws.randint(1, 5), draws.random()
    every = [
        Drawn(
            item=draws.randrange(6),
            step=draws.randrange(steps),
            ended=float(number),
            reward=draws.choice([None, 0.5, 1.0 if draws.random() < likely else 0.0, 0.0, 1.0]),
            used=draws.random() < 0.2,
        )
        for number in range(60)
    ]
    database = Database(f"sqlite:///{tmp_path}/index.sqlite")
    with database.writing() as connection:
        placed = place(connection, [f"v{step}" for step in range(steps)])
        of_step = [one.checkpoint for one in placed.values()]
        connection.execute(insert(runs).values(key="r", run_id="r", folder="/", items_sha256="", added=0))
        connection.execute(
            insert(items), [{"id": item + 1, "key": key_of(str(item)), "item_id": str(item)} for item in range(6)]
        )
        connection.execute(insert(rollouts), [row(one, number, of_step) for number, one in enumerate(every)])
        recount(connection, range(1, 7))
    for _ in range(10):
        rule = Rule(
            size=draws.randint(1, 6),
            versions=draws.randint(1, 4),
            staleness=draws.choice([None, None, 0, 1, 3]),
            pool=draws.random() < 0.5,
        )
        with database.reading() as connection:
            found = trainable_groups(connection, rule, 64)
            ended = {row.id: row.ended for row in connection.execute(select(rollouts.c.id, rollouts.c.ended))}
        by_item = {int(group.item_id): [ended[one.key] for one in group.rollouts] for group in found}
        assert by_item == {
            item: [one.ended for one in group] for item, group in expected(every, rule, steps - 1).items()
        }


def row(one: Drawn, number: int, of_step: list[int]) -> dict[str, object]:
    return {
        "run": 1,
        "item": one.item + 1,
        "number": number,
        "attempt": 1,
        "reward": one.reward,
        "left_out": "" if one.reward is not None else "lost",
        "failure_class": "",
        "checkpoint": of_step[one.step] if one.reward is not None else None,
        "step": one.step if one.reward is not None else None,
        "ended": one.ended,
        "claim": 99 if one.used else None,
    }
