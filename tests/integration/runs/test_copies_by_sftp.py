"""Copies on a server that speaks SFTP, which breaks off its connections in the middle. It needs `uv pip install paramiko`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("fsspec")
pytest.importorskip("paramiko")

from fsspec.config import conf

from rollout_tasks.runs import ending
from rollout_tasks.runs.copies.fetched_run import fetch_run
from rollout_tasks.runs.copies.remote_folder import RemoteError, RemoteFolder
from rollout_tasks.runs.copies.run_copy import copy_run
from tests.integration.runs.sftp_server import PASSWORD, USER, SFTPServer
from tests.unit.runs.copies.odd_targets import broken_promises, tree
from tests.unit.training.ended_rollouts import end, run_of

pytestmark = pytest.mark.slow


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SFTPServer]:
    (tmp_path / "served").mkdir()
    server = SFTPServer(tmp_path / "served")
    yield server
    server.close()


def give_password(patched: pytest.MonkeyPatch, password: str) -> None:
    """As FSSPEC_SFTP_PASSWORD does before a command begins."""
    patched.setitem(conf, "sftp", {"password": password})


def test_there_and_back_over_connections_that_break(
    server: SFTPServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    give_password(monkeypatch, PASSWORD)
    run = run_of(tmp_path / "run", ["a"], rollouts_per_item=2)
    for number in range(2):
        end(run, f"a#{number}", 1.0)
    ending.record_end(run)
    url, broken, said = f"sftp://{USER}@127.0.0.1:{server.port}/copies/run", [], []

    def say(sentence: str) -> None:
        said.append(sentence)
        if "trajectory.jsonl" in sentence and sentence.startswith("sends") and len(broken) < 2:
            broken.append(server.break_off())

    copied = copy_run(run, RemoteFolder(url, say, retry_seconds=60), say)

    assert (copied.copied, copied.problems) == (2, [])
    assert broken == [1, 1]
    assert any(sentence.startswith("waits for sftp://") for sentence in said)
    there = tmp_path / "served/copies/run"
    assert {name: text for name, text in tree(there).items() if not name.startswith(".copied")} == tree(run.path)
    assert broken_promises(there) == []
    fetch_run(RemoteFolder(url, say), tmp_path / "back")
    assert {name: text for name, text in tree(tmp_path / "back").items() if name != ".fetched"} == tree(run.path)


def test_a_wrong_password_is_one_sentence(server: SFTPServer, monkeypatch: pytest.MonkeyPatch) -> None:
    give_password(monkeypatch, "another-one")

    with pytest.raises(RemoteError, match="cannot connect: AuthenticationException") as raised:
        RemoteFolder(f"sftp://{USER}@127.0.0.1:{server.port}/run", lambda _: None, retry_seconds=600)

    assert "another-one" not in str(raised.value)
