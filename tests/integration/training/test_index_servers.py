"""The index on real PostgreSQL and MariaDB servers: the same groups as on SQLite, and no rollout twice with many trainers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from rollout_tasks.errors import UserError
from rollout_tasks.training.index import Index, Rule
from rollout_tasks.training.index.database import Database
from tests.conftest import REPOSITORY
from tests.sql_servers import KINDS, missing, sql_server
from tests.unit.training.index.scored_runs import LOST, add, scored, shown

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
RULE = Rule(size=2)


@pytest.fixture(name="server", scope="module", params=KINDS)
def _server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if why := missing(request.param):
        pytest.skip(why)
    pytest.importorskip("psycopg" if request.param == "postgresql" else "pymysql")
    with sql_server(request.param, tmp_path_factory.mktemp(request.param)) as url:
        yield url


@pytest.fixture(name="url")
def _url(server: str) -> str:
    """The server's database, without a table."""
    drop_tables(server)
    return server


def drop_tables(url: str) -> None:
    with Database(url).reading() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text("DROP SCHEMA public CASCADE"))
            connection.execute(text("CREATE SCHEMA public"))
        else:
            connection.execute(text("DROP DATABASE rollouts"))
            connection.execute(text("CREATE DATABASE rollouts"))


def test_it_is_as_on_sqlite(url: str, tmp_path: Path) -> None:
    long, other = "日本 🖱 " + "x" * 900, "A"
    rewards = {"a": [1.0, 0.0, LOST], other: [0.0, 0.0, 0.0], long: [0.5, 1.0, 1.0]}
    folders = [scored(tmp_path / f"run-{version}", rewards, version=version) for version in ("1", "2", "")]
    told = []
    for index in (Index(url, seed_schema=True), Index(f"sqlite:///{tmp_path}/index.sqlite", seed_schema=True)):
        said: list[Any] = [index.add(folder.path) for folder in folders for _ in range(2)]
        said.append(index.checkpoint("1", step=3, path="checkpoints/1", status="served"))
        said += [[shown(index.groups(Rule(size=size))) for size in (1, 2, 4)]]
        while (claim := index.claim(RULE, groups=2, by="trainer")) is not None:
            said.append([(group.item_id, group.rewards) for group in claim.groups])
        said += [index.give_back(1), index.give_back(1), [(one.id, one.groups, one.rollouts) for one in index.claims()]]
        said.append([shown(index.groups(Rule(size=size, staleness=9))) for size in (1, 2, 4)])
        said[6] = (said[6].version, said[6].step, said[6].path, said[6].status)
        told.append(said)

    assert told[0] == told[1]
    assert len(told[0]) > 10


def test_eight_trainers_at_once_get_no_rollout_twice(url: str, tmp_path: Path) -> None:
    names = [f"item-{number}" for number in range(30)]
    index = Index(url, seed_schema=True)
    add(index, tmp_path / "night-1", {name: [0.0, 1.0, 0.0, 1.0] for name in names})

    got = [line for output in in_processes(8, TRAINER, url) for line in output.splitlines()]

    assert sorted(got) == sorted(f"{name} {number}" for name in names for number in range(4))
    assert sum(one.rollouts for one in index.claims()) == len(got)
    with Database(url).reading() as connection:
        assert set(connection.execute(text("SELECT used FROM rollout_run")).scalars()) == {1}


def test_a_forked_process_leaves_its_parents_connection_alone(url: str, tmp_path: Path) -> None:
    add(Index(url), tmp_path / "night-1", {name: [0.0, 1.0] for name in "abcdef"})

    (output,) = in_processes(1, FORKING, url)

    assert sorted(output.split()) == list("abcdef")


def test_processes_that_open_and_fill_an_index_together_make_one(url: str, tmp_path: Path) -> None:
    drop_tables(url)
    scored(tmp_path / "night-1", {"a": [0.0, 1.0], "b": [0.0, 1.0]})

    outputs = in_processes(4, ADDER, url, str(tmp_path / "night-1"))

    assert sum(int(output) for output in outputs) == 4
    assert shown(Index(url).groups(RULE)) == {"a": ["night-1#1", "night-1#0"], "b": ["night-1#1", "night-1#0"]}


def test_a_wrong_password_is_told_without_it(url: str) -> None:
    password = url.split(":")[2].partition("@")[0]
    for wrong in (url.replace(password, "guess-4711"), url.rpartition("/")[0] + "/nowhere"):
        with pytest.raises(UserError) as refused:
            Index(wrong)
        said = str(refused.value)
        assert said.startswith("index ")
        assert "\n" not in said
        assert "guess-4711" not in said
        assert password not in said


TRAINER = """
import os, sys
from rollout_tasks import Index, Rule
index = Index(seed_schema=True)
while (claim := index.claim(Rule(size=2), groups=3, by=f"trainer-{os.getpid()}")) is not None:
    for group in claim.groups:
        for rollout in group.rollouts:
            print(group.item_id, rollout.index)
"""
FORKING = """
import os, sys
from rollout_tasks import Index, Rule
index = Index()
def claim():
    for group in index.claim(Rule(size=2), groups=2, by="trainer").groups:
        print(group.item_id, flush=True)
claim()
for _ in range(2):
    if (child := os.fork()) == 0:
        claim()
        sys.exit()
    assert os.waitpid(child, 0)[1] == 0
index.groups()
"""
ADDER = """
import sys
from rollout_tasks import Index
print(Index().add(sys.argv[1]).new)
"""


def in_processes(count: int, code: str, url: str, *arguments: str) -> list[str]:
    """What so many processes print that run at the same time."""
    environment = {**os.environ, "ROLLOUT_INDEX_URL": url}
    command = [sys.executable, "-c", code, *arguments]
    processes = [
        subprocess.Popen(command, cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(count)
    ]
    outputs = [process.communicate(timeout=300)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * count
    return outputs
