"""Records of servers, by which a process is known to be of `rollouts model serve`, and what does not count as one."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rollout_tasks.models.serving.server_records import record_of, write_record
from vm_pool.processes import machine, name_of, this_process

USER = os.geteuid()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"rollouts-servers-{USER}"


@pytest.fixture
def server() -> Iterator[int]:
    process = subprocess.Popen(["sleep", "600"], start_new_session=True)
    yield process.pid
    process.kill()
    process.wait()


def test_a_server_is_known_by_its_session(folder: Path, server: int) -> None:
    path = write_record(server)

    record = record_of(server, USER)
    assert path == folder / f"{server}.json"
    assert record is not None
    assert (record.server, record.started_by, record.left_alone) == (name_of(server), this_process(), False)
    assert record_of(os.getpid(), USER) is None
    assert record_of(server, USER + 1) is None
    assert folder.stat().st_mode & 0o777 == 0o700


def test_the_next_record_removes_those_of_servers_that_have_ended(folder: Path, server: int) -> None:
    ended = subprocess.Popen(["sleep", "600"], start_new_session=True)
    write_record(ended.pid)
    ended.kill()
    ended.wait()
    elsewhere = folder / "7.json"
    elsewhere.write_text(json.dumps({"server": "0123456789ab:7:1", "started_by": "0123456789ab:6:1"}))

    write_record(server)

    assert sorted(path.name for path in folder.iterdir()) == sorted([f"{server}.json", "7.json"])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[",
        "[]",
        "null",
        "[" * 4_000,
        '{"server": 1, "started_by": 2}',
        '{"server": "MACHINE:SESSION:1", "started_by": "x"}',  # a server that had the id before
        '{"server": "another:SESSION:1", "started_by": "x"}',
        '{"server": "NAME", "started_by": "x"}' + " " * 4_096,
    ],
)
def test_what_is_no_record_of_a_server_does_not_count(folder: Path, server: int, text: str) -> None:
    folder.mkdir(mode=0o700)
    filled = text.replace("MACHINE", machine()).replace("SESSION", str(server)).replace("NAME", name_of(server))
    (folder / f"{server}.json").write_text(filled)

    assert record_of(server, USER) is None


def test_nothing_is_followed(folder: Path, server: int, tmp_path: Path) -> None:
    path = write_record(server)
    assert path is not None
    elsewhere = path.rename(tmp_path / "elsewhere")

    path.symlink_to(elsewhere)
    assert record_of(server, USER) is None
    path.unlink()
    os.mkfifo(path)
    assert record_of(server, USER) is None
    path.unlink()
    elsewhere.rename(path)
    moved = folder.rename(tmp_path / "moved")
    folder.symlink_to(moved)
    assert record_of(server, USER) is None
    assert write_record(server) is None
