"""Where an index is: its address, from an option or the environment; what is wrong with it is said without its password."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from rollout_tasks.errors import UserError
from rollout_tasks.settings import settings
from rollout_tasks.training.index import Index
from rollout_tasks.training.index.database import Database
from tests.conftest import REPOSITORY, free_port


@pytest.fixture(autouse=True)
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ROLLOUT_INDEX_URL", raising=False)
    settings.cache_clear()
    yield
    settings.cache_clear()


def test_by_default_it_is_a_file_beside_the_runs(tmp_path: Path) -> None:
    assert repr(Index()) == "Index('sqlite:///results/index.sqlite')"
    assert (tmp_path / "results" / "index.sqlite").is_file()


def test_the_environment_says_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROLLOUT_INDEX_URL", f"sqlite:///{tmp_path}/mine.sqlite")

    Index()

    assert [path.name for path in tmp_path.iterdir()] == ["mine.sqlite"]


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("results", "must look like"),
        ("sqlite://", "must name a file"),
        ("sqlite:///:memory:", "must name a file"),
        ("oracle://user:hidden-1@host/name", "must look like"),
        ("postgresql+asyncpg://user:hidden-1@host/name", "must look like"),
        ("postgresql://user:hidden-1@host", "must look like"),
        ("mysql://user:hidden-1@host:port/name", "must look like"),
    ],
)
def test_a_wrong_address_is_not_repeated(url: str, said: str) -> None:
    with pytest.raises(UserError, match=said) as refused:
        Index(url)
    assert "hidden-1" not in str(refused.value)


@pytest.mark.parametrize(
    ("kind", "driver", "named"),
    [("postgresql", "psycopg", "postgresql"), ("mysql", "pymysql", "mysql"), ("mariadb", "pymysql", "mysql")],
)
def test_a_server_that_does_not_answer_is_named_without_the_password(kind: str, driver: str, named: str) -> None:
    pytest.importorskip(driver)
    port = free_port()

    with pytest.raises(UserError, match=rf"^index {named}://me:\*\*\*@127\.0\.0\.1:{port}/name: .*refused") as refused:
        Index(f"{kind}://me:hidden-1@127.0.0.1:{port}/name")
    assert "hidden-1" not in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("lacking", "url", "said"),
    [
        ("sqlalchemy", "sqlite:///x", "an index of rollouts needs the package SQLAlchemy: uv pip install sqlalchemy"),
        (
            "psycopg",
            "postgresql://h/n",
            "an index at postgresql:// needs the package psycopg: uv pip install 'psycopg[binary]'",
        ),
        ("pymysql", "mariadb://h/n", "an index at mariadb:// needs the package pymysql: uv pip install pymysql"),
    ],
)
def test_a_package_that_is_missing_is_named(lacking: str, url: str, said: str) -> None:
    code = f"""
import sys
sys.modules[{lacking!r}] = None
from rollout_tasks import UserError
try:
    from rollout_tasks import Index
    Index({url!r})
except UserError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, timeout=60)

    assert (done.stdout, done.stderr) == (said + "\n", "")


def test_sqlalchemy_is_imported_when_it_is_used() -> None:
    code = "import sys, rollout_tasks.api, rollout_tasks.training.index; assert 'sqlalchemy' not in sys.modules"

    subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, check=True, timeout=60)


def test_tables_of_another_version_are_refused(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/index.sqlite"
    with Database(url).writing() as connection:
        connection.execute(text("UPDATE index_format SET format = 99"))

    with pytest.raises(UserError, match=r"its tables have the format 99; this version knows 1$"):
        Index(url)


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "index.sqlite").write_text("x" * 5_000)

    with pytest.raises(UserError, match=r"^index sqlite:///index\.sqlite: file is not a database$"):
        Index("sqlite:///index.sqlite")
