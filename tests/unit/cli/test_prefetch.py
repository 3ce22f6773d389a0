"""Downloading ahead: what is said meanwhile and at the end, against the server of the download tests."""

from __future__ import annotations

import json
import time
from concurrent.futures import wait
from pathlib import Path
from typing import Any

import pytest

from rollout_tasks.cli import prefetch as command
from rollout_tasks.cli.prefetch import prefetch
from rollout_tasks.environments.osworld import downloads
from rollout_tasks.errors import UserError
from rollout_tasks.settings import settings
from tests.unit.environments.osworld.test_downloads import CONTENT, FileServer
from tests.unit.environments.osworld.test_downloads import server as server


@pytest.fixture
def tree(server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three tasks that need two files, one of them the second twice."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("ROLLOUT_DOWNLOAD_HOSTS", "127.0.0.1")
    monkeypatch.setattr(downloads, "FIRST_PAUSE", 0.01)
    settings.cache_clear()
    folder = tmp_path / "tree"
    (folder / "examples" / "os").mkdir(parents=True)
    for name, number in (("a", 1), ("b", 2), ("c", 2)):
        files = [{"url": f"{server.url}&n={number}", "path": "/home/user/file.bin"}]
        task = {
            "id": name,
            "instruction": "Look.",
            "config": [{"type": "download", "parameters": {"files": files}}],
            "evaluator": {"func": "infeasible"},
        }
        (folder / "examples" / "os" / f"{name}.json").write_text(json.dumps(task))
    (folder / "test_all.json").write_text('{"os": ["a", "b", "c"]}')
    return folder


def test_where_nothing_can_be_drawn_a_line_now_and_then_says_how_far_it_is(
    tree: Path, server: FileServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "LINE_SECONDS", 0.2)
    monkeypatch.setattr(command, "_TICK_SECONDS", 0.1)
    server.faults = ["slow", "slow"]

    assert prefetch(tree, at_a_time=1, skip_invalid=False, as_json=True) == 0

    said = capsys.readouterr()
    lines = said.err.splitlines()
    assert len(lines) >= 3, said.err
    assert lines[0].startswith("downloading: 0 of 2 files, ")
    assert any(line.startswith("downloading: 1 of 2 files, ") for line in lines)
    found = json.loads(said.out)
    assert (found["files"], found["downloaded"], found["bytes_downloaded"]) == (2, 2, 2 * len(CONTENT))


def test_ctrl_c_ends_the_downloads_that_run(tree: Path, server: FileServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which would take a minute; the next time goes on from there."""
    server.faults = ["trickle", "trickle"]
    looks: list[int] = []

    def interrupted(*arguments: Any, **options: Any) -> Any:
        looks.append(1)
        if len(looks) == 3:
            raise KeyboardInterrupt
        return wait(*arguments, **options)

    monkeypatch.setattr(command, "wait", interrupted)
    began = time.monotonic()

    with pytest.raises(KeyboardInterrupt):
        prefetch(tree, at_a_time=2, skip_invalid=False, as_json=True)

    assert time.monotonic() - began < 20
    assert prefetch(tree, at_a_time=2, skip_invalid=False, as_json=True) == 0
    assert [request for request in server.requests if "bytes=" in request]


def test_what_is_there_already_is_not_downloaded_again(
    tree: Path, server: FileServer, capsys: pytest.CaptureFixture[str]
) -> None:
    prefetch(tree, at_a_time=2, skip_invalid=False, as_json=False)
    asked = len(server.requests)
    capsys.readouterr()

    assert prefetch(tree, at_a_time=2, skip_invalid=False, as_json=False) == 0

    assert len(server.requests) == asked
    said = capsys.readouterr()
    assert said.out.startswith("2 files: 2 were there, 0 downloaded (0.0 MB), 0 failed. Cache: ")
    assert said.err == ""


def test_what_cannot_be_had_is_named_with_the_reason(
    tree: Path, server: FileServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.faults = ["404"]

    assert prefetch(tree, at_a_time=1, skip_invalid=False, as_json=False) == 1

    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("2 files: 0 were there, 1 downloaded (1.0 MB), 1 failed.")
    assert said[1].startswith(f"  {server.url}&n=1: HTTP 404")


def test_a_task_that_desktop_env_cannot_score_is_left_out(
    tree: Path, server: FileServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """As by `rollouts run`; one that is wrong is refused by both."""
    path = tree / "examples" / "os" / "a.json"
    task = json.loads(path.read_text())
    path.write_text(json.dumps({**task, "evaluator": {"func": "of_tomorrow"}}))

    assert prefetch(tree, at_a_time=1, skip_invalid=False, as_json=False) == 0

    said = capsys.readouterr()
    assert said.out.startswith("1 files: 0 were there, 1 downloaded")
    assert said.err == "left out: item 'a': evaluator.func: desktop-env has no metric 'of_tomorrow'\n"

    path.write_text(json.dumps({**task, "evaluator": {"func": 7}}))
    with pytest.raises(UserError, match=r"^item 'a': evaluator.func must name a metric or several, got 7$"):
        prefetch(tree, at_a_time=1, skip_invalid=False, as_json=False)


def test_items_of_other_environments_need_no_files(
    tree: Path, server: FileServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = json.loads((tree / "examples" / "os" / "a.json").read_text())
    items = [
        {"id": "sum", "question": "2 + 3?", "answer": "5", "env_config": {"env_mode": "math"}},
        {"id": "desktop", "question": "Look.", "env_config": {"env_mode": "osworld"}, "metadata": task},
        {"id": "usual", "question": "Look.", "metadata": task},
    ]
    data = tmp_path / "items.jsonl"
    data.write_text("".join(f"{json.dumps(item)}\n" for item in items))

    assert prefetch(data, at_a_time=1, skip_invalid=False, as_json=False) == 0

    said = capsys.readouterr()
    assert said.out.startswith("1 files: 0 were there, 1 downloaded")
    assert said.err == ""
