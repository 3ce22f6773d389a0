"""A run's folder appears with its description in it; what a submission leaves that is killed before that is in nobody's way."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Set
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from benchmark.items import Item
from rollout_tasks.cli.listing import _runs
from rollout_tasks.config import RunConfig
from rollout_tasks.errors import UserError
from rollout_tasks.runs.folder import RunFolder

ITEMS = [Item("a", "?"), Item("b", "?")]
CHANGES = {"open", "os.mkdir", "os.link", "os.rename", "os.remove"}


def describe(results: Path, name: str = "nightly") -> None:
    RunFolder(results / name).description.create(RunConfig(env_mode="math"), ITEMS, data_path="x", data_name="x")


def is_killed(work: Callable[[], None], change: int, changes: Set[str] = CHANGES) -> bool:
    """Does work in another process, which is killed before one of its changes; returns whether it was."""
    child = os.fork()
    if child == 0:
        left = change

        def kill(event: str, _arguments: object) -> None:
            nonlocal left
            if event in changes:
                left -= 1
                if left < 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        try:
            sys.addaudithook(kill)
            work()
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def test_a_submission_killed_at_any_moment_leaves_a_whole_run_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")  # without git, which tells the commit, it is quicker
    describe(tmp_path / "first")  # imports what is only imported then
    half, whole = [], []
    for change in count():
        results = tmp_path / str(change)
        if not is_killed(partial(describe, results), change):
            break
        folder = RunFolder(results / "nightly")
        if folder.path.exists():
            whole.append(results)
            assert folder.description.items() == ITEMS
            assert folder.description.config().env_mode == "math"
        else:
            half.append(results)
            assert not results.exists() or _runs(results) == []
    assert len(half) > 5
    assert len(whole) > 0

    describe(half[-1])

    assert [run.run_id for run in _runs(half[-1])] == ["nightly"]


def test_what_killed_submissions_left_is_removed_later(tmp_path: Path) -> None:
    describe(tmp_path, "first")
    for change in ("os.link", "os.rename"):
        assert is_killed(partial(describe, tmp_path), 0, {change})
    left = sorted(path for path in tmp_path.iterdir() if path.name != "first")
    assert len(left) == 2
    kept = left[0]  # it may be one that is just being made
    two_hours_ago = kept.stat().st_mtime - 7200
    os.utime(left[1], (two_hours_ago, two_hours_ago))
    (tmp_path / ".mine").mkdir()
    os.utime(tmp_path / ".mine", (two_hours_ago, two_hours_ago))

    describe(tmp_path)

    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([".mine", kept.name, "first", "nightly"])


def test_a_run_that_another_submission_makes_meanwhile_is_not_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = Path.rename

    def other_first(path: Path, target: Path) -> Path:
        with monkeypatch.context() as patched:
            patched.setattr(Path, "rename", rename)
            describe(tmp_path)
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", other_first)

    with pytest.raises(UserError, match="nightly exists already; take another name"):
        RunFolder(tmp_path / "nightly").description.create(RunConfig(), ITEMS[:1], data_path="x", data_name="x")

    assert RunFolder(tmp_path / "nightly").description.items() == ITEMS
    assert [path.name for path in tmp_path.iterdir()] == ["nightly"]


def test_what_a_killed_resume_left_is_removed_by_the_next(tmp_path: Path) -> None:
    describe(tmp_path)
    description = RunFolder(tmp_path / "nightly").description

    def resume() -> None:
        description.record_resume(description.config().model_copy(update={"max_cost": 5.0}), embedded=True)

    assert is_killed(resume, 0, {"os.rename"})
    assert len(list((tmp_path / "nightly").iterdir())) == 3

    resume()

    assert description.config().max_cost == 5.0
    assert sorted(path.name for path in (tmp_path / "nightly").iterdir()) == ["items.jsonl", "run.json"]
