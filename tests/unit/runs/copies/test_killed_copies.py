"""A copy that is killed at any point and begun again ends as one that was not; meanwhile, its readers see whole units alone."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest

pytest.importorskip("fsspec")

from rollout_tasks.runs import ending
from rollout_tasks.runs.copies.remote_folder import RemoteFolder
from rollout_tasks.runs.copies.run_copy import copy_run
from rollout_tasks.runs.folder import RunFolder
from tests.unit.runs.copies.odd_targets import Counted, broken_promises, follow_plan, kill, manifests, tree
from tests.unit.training.ended_rollouts import end, run_of


def run_that_is_over(path: Path) -> RunFolder:
    run = run_of(path, ["a"], rollouts_per_item=2)
    for number in range(2):
        end(run, f"a#{number}", 1.0)
    (path / "evaluation.json").write_text("{}")
    (path / "report.md").write_text("# r\n")
    ending.record_end(run)
    return run


def resumed(run: RunFolder) -> None:
    """What a resume leaves that tries one rollout again."""
    ending.record_beginning(run)
    run.remove_report()
    run.set_aside("a#1")
    end(run, "a#1", 0.0)


def copied(run: RunFolder, url: str) -> None:
    copy_run(run, RemoteFolder(url, lambda _: None, retry_seconds=0), lambda _: None)


def copied_until_killed(run: RunFolder, url: str, at: int) -> bool:
    """Copies in a child that is killed at a point; whether it was."""
    child = os.fork()
    if not child:
        try:
            follow_plan(Counted(at, kill))
            copied(run, url)
        finally:
            os._exit(0)
    status = os.waitpid(child, 0)[1]
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


def points_of(run: RunFolder, url: str) -> int:
    """At how many points a copy can be killed."""
    follow_plan(plan := Counted())
    copied(run, url)
    follow_plan(None)
    return plan.count


@pytest.mark.parametrize(
    ("protocol", "again", "every"),
    [
        ("objects", True, 20),  # a few of the points, for everyday
        pytest.param("objects", False, 1, marks=pytest.mark.slow),
        pytest.param("objects", True, 1, marks=pytest.mark.slow),
        pytest.param("planned", False, 1, marks=pytest.mark.slow),
        pytest.param("planned", True, 1, marks=pytest.mark.slow),
    ],
)
def test_killed_anywhere_and_begun_again(tmp_path: Path, protocol: str, *, again: bool, every: int) -> None:
    """The first copy of a run, or one after a resume, which moves and removes files."""
    run = run_that_is_over(tmp_path / "run")
    before = tmp_path / "before"
    before.mkdir()
    if again:
        copied(run, f"{protocol}://{before}")
        resumed(run)
    shutil.copytree(before, whole := tmp_path / "whole")
    points = points_of(run, f"{protocol}://{whole}")
    expected = tree(whole)
    assert points > 20
    assert set(tree(run.path)) < set(expected)

    for point in range(0, points, every):
        shutil.copytree(before, target := tmp_path / f"target-{point}")
        assert copied_until_killed(run, f"{protocol}://{target}", point)
        assert broken_promises(target) == []

        copied(run, f"{protocol}://{target}")

        assert tree(target) == expected
        shutil.rmtree(target)


@pytest.mark.slow
def test_a_resume_between_the_kill_and_the_next_copy_leaves_nothing_of_before(tmp_path: Path) -> None:
    run = run_that_is_over(tmp_path / "run")
    points = points_of(run, f"planned://{tmp_path / 'counted'}")
    targets = [tmp_path / f"target-{point}" for point in range(points)]
    for point, target in enumerate(targets):
        assert copied_until_killed(run, f"planned://{target}", point)

    resumed(run)

    copied(run, f"planned://{tmp_path / 'whole'}")
    for target in targets:
        copied(run, f"planned://{target}")
        assert broken_promises(target) == []
        # A report that was there is named as removed: an empty unit where a first copy has none.
        assert {name: manifest for name, manifest in manifests(target).items() if manifest.files} == manifests(
            tmp_path / "whole"
        )
        assert {name for name in tree(target) if not name.startswith(".copied/")} == {
            name for name in tree(tmp_path / "whole") if not name.startswith(".copied/")
        }
