"""`rollouts index`: what it says of real runs, in tables and in JSON, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from rollout_tasks.cli.index import application
from rollout_tasks.errors import UserError
from tests.unit.training.index.scored_runs import LOST, scored

pytest.importorskip("sqlalchemy")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    scored(tmp_path / "results" / "night-1", {"a": [1.0, 0.0, LOST], "b": [0.0, 0.0, 0.0]})


def command(*arguments: str) -> Result:
    done = CliRunner().invoke(application, [*arguments, "--url", "sqlite:///results/index.sqlite"])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


def told(*arguments: str) -> Any:
    return json.loads(command(*arguments, "--json").stdout)


def test_from_a_run_to_a_claim_that_is_given_back() -> None:
    added = command("add", "night-1")
    assert added.stdout == "night-1: 6 new, 0 changed, 0 unchanged\n"
    assert added.stderr == "left out: 1 rollout lost to infrastructure failures\n"
    assert told("add", "night-1")["unchanged"] == 6

    shown = command("groups", "--size", "2").stdout
    assert "mean reward" in shown
    assert [line.split()[1:4:2] for line in shown.splitlines() if "night-1" in line] == [["a", "2"], ["b", "2"]]
    found = told("groups", "--size", "2", "--no-pool")
    assert [(one["item_id"], one["mean_reward"], len(one["rollouts"])) for one in found] == [
        ("a", 0.5, 2),
        ("b", 0.0, 2),
    ]

    from rollout_tasks.training.index import Index, Rule  # here, because SQLAlchemy may be missing

    index = Index("sqlite:///results/index.sqlite")
    assert command("claims").stdout == "no trainer has taken a group\n"
    index.claim(Rule(size=2), groups=8, by="trainer-1")
    assert "trainer-1" in command("claims").stdout
    assert [(one["by"], one["rollouts"]) for one in told("claims")] == [("trainer-1", 4)]
    assert command("groups").stdout == "no group is trainable now\n"
    assert command("give-back", "1").stdout == "claim 1: 4 rollouts can be taken again\n"
    assert len(told("groups", "--size", "2")) == 2


def test_checkpoints_are_registered_and_shown() -> None:
    with pytest.raises(UserError, match=r"^there is no index results/index\.sqlite: rollouts index add RUN makes it$"):
        command("checkpoint")
    command("add", "night-1")

    (registered,) = told(
        "checkpoint", "step-200", "--step", "200", "--path", "checkpoints/step-200", "--status", "served"
    )

    assert (registered["version"], registered["step"], registered["status"]) == ("step-200", 200, "served")
    lines = [line for line in command("checkpoint").stdout.splitlines() if "step-200" in line or "seen" in line]
    assert ["step-200" in line for line in lines] == [True, False]
    assert told("groups", "--size", "2", "--staleness", "100") == []


def test_the_older_systems_tables_are_written_where_asked() -> None:
    from sqlalchemy import text  # here, because it may be missing

    from rollout_tasks.training.index.database import Database  # here, because SQLAlchemy may be missing

    command("add", "night-1", "--seed-schema")
    command("groups", "--size", "2", "--seed-schema")

    with Database("sqlite:///results/index.sqlite").reading() as connection:
        assert connection.execute(text("SELECT COUNT(*) FROM trainable_group")).scalar() == 4


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("add", "night-2"), "^no run 'night-2': "),
        (("add", "night-1", "--metric", "f1_score"), "has no report with f1_score: make it with: rollouts rescore"),
        (("groups", "--size", "0"), "^size: must be between 1 and"),
        (("checkpoint", "--step", "3"), "^VERSION: is missing"),
        (("give-back", "9"), "^there is no claim 9$"),
    ],
)
def test_what_is_wrong_is_one_sentence(arguments: tuple[str, ...], said: str) -> None:
    command("checkpoint", "step-0")
    with pytest.raises(UserError, match=said):
        command(*arguments)


@pytest.mark.parametrize("arguments", [("groups",), ("claims",), ("checkpoint",), ("give-back", "1")])
def test_to_look_at_an_index_makes_none(arguments: tuple[str, ...], tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^there is no index"):
        command(*arguments)
    assert not (tmp_path / "results" / "index.sqlite").exists()


@pytest.mark.parametrize("url", ["postgresql://me:hidden-1@host/name", "mysql://host/name?passwd=hidden-1"])
def test_a_password_on_the_command_line_is_refused(url: str) -> None:
    with pytest.raises(UserError, match=r"^--url: must not contain a password") as refused:
        CliRunner().invoke(application, ["claims", "--url", url], catch_exceptions=False)
    assert "hidden-1" not in str(refused.value)
