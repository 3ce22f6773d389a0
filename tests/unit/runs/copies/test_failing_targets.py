"""Targets that fail for a while, for good, or refuse; and URLs that are refused before anything is asked."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

pytest.importorskip("fsspec")

from rollout_tasks.errors import UserError
from rollout_tasks.runs.copies.fetched_run import fetch_run
from rollout_tasks.runs.copies.remote_folder import RemoteError, RemoteFolder
from rollout_tasks.runs.copies.run_copy import copy_run
from rollout_tasks.runs.folder import RunFolder
from tests.unit.runs.copies.odd_targets import broken_promises, follow_plan, tree
from tests.unit.training.ended_rollouts import end, run_of

SECRET = "AKIA-not-to-be-seen"


class Failing:
    """Fails some steps with an error."""

    def __init__(
        self, error: Exception, *, skip: int = 0, times: int = 1 << 30, steps: tuple[str, ...] = ("pipe_file",)
    ):
        self.failed = 0
        self._error, self._skip, self._times, self._steps = error, skip, times, steps

    def __call__(self, when: str, step: str, _path: str) -> None:
        if when != "before" or step not in self._steps:
            return
        self._skip -= 1
        if self._skip < 0 and self.failed < self._times:
            self.failed += 1
            raise self._error


@pytest.fixture(autouse=True)
def _no_plan_afterwards():
    yield
    follow_plan(None)


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    run = run_of(tmp_path / "run", ["a"], rollouts_per_item=2)
    for number in range(2):
        end(run, f"a#{number}", 1.0)
    return run


def copied(run: RunFolder, url: str, *, seconds: float, said: list[str] | None = None) -> None:
    say = (said if said is not None else []).append
    copy_run(run, RemoteFolder(url, say, retry_seconds=seconds), say)


@pytest.mark.parametrize("step", ["pipe_file", "mv", "find"])
def test_what_the_network_fails_is_tried_again(run: RunFolder, tmp_path: Path, step: str) -> None:
    skip = 0 if step == "find" else 7
    follow_plan(plan := Failing(ConnectionResetError("peer went away"), skip=skip, times=1, steps=(step,)))
    said: list[str] = []

    copied(run, f"planned://{tmp_path / 'target'}", seconds=60, said=said)

    assert plan.failed == 1
    assert any("peer went away" in sentence and sentence.startswith("waits for planned://") for sentence in said)
    assert {name: text for name, text in tree(tmp_path / "target").items() if not name.startswith(".copied")} == tree(
        run.path
    )


def test_a_target_that_stays_away_is_given_up_in_one_sentence(run: RunFolder, tmp_path: Path) -> None:
    target = tmp_path / "target"
    address = f"https://user:{SECRET}@host/x?X-Amz-Signature={SECRET}\nand more"
    follow_plan(Failing(TimeoutError(f"no answer from {address}"), skip=6))

    with pytest.raises(RemoteError) as raised:
        copied(run, f"planned://{target}", seconds=1)

    sentence = str(raised.value)
    assert sentence.startswith(f"planned://{target}: cannot write ")
    assert "tried for" in sentence
    assert "TimeoutError: no answer from https://host/x and more; what is there stays" in sentence
    assert SECRET not in sentence
    assert "\n" not in sentence
    assert broken_promises(target) == []
    assert not [name for name in tree(target) if name.endswith(".part")]

    follow_plan(None)
    copied(run, f"planned://{target}", seconds=0)
    assert {name: text for name, text in tree(target).items() if not name.startswith(".copied")} == tree(run.path)


@pytest.mark.parametrize(
    "error",
    [PermissionError("Access Denied"), FileNotFoundError("no such bucket"), OSError(errno.ENOSPC, "No space left")],
)
def test_what_another_try_does_not_help_is_not_tried_again(run: RunFolder, tmp_path: Path, error: Exception) -> None:
    said: list[str] = []
    follow_plan(Failing(error))

    with pytest.raises(RemoteError, match=f"cannot write .*{type(error).__name__}"):
        copied(run, f"planned://{tmp_path / 'target'}", seconds=600, said=said)

    assert not any(sentence.startswith("waits") for sentence in said)


def test_reading_is_tried_again_too(run: RunFolder, tmp_path: Path) -> None:
    copied(run, f"planned://{tmp_path / 'target'}", seconds=0)
    follow_plan(plan := Failing(ConnectionResetError("gone"), times=2, skip=4, steps=("cat_file",)))

    fetch_run(RemoteFolder(f"planned://{tmp_path / 'target'}", lambda _: None, retry_seconds=60), tmp_path / "back")

    assert plan.failed == 2
    assert {name: text for name, text in tree(tmp_path / "back").items() if name != ".fetched"} == tree(run.path)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        (f"s3://KEY:{SECRET}@bucket/run", "must not contain a password"),
        (f"s3://KEY:a/{SECRET}@bucket/run", "must not contain a password"),
        (f"sftp://me:{SECRET}@host/run", "must not contain a password"),
        (f"s3://bucket/run?secret={SECRET}", "must not have a query"),
        ("simplecache::s3://bucket/run", "must look like"),
        ("s3://bucket/*", "must look like"),
        ("s3://bucket/../other", "must look like"),
        ("s3://", "must look like"),
        ("s3://bucket/a\nb", "must look like"),
        ("nosuch://bucket/run", "Protocol not known: nosuch"),
    ],
)
def test_urls_that_are_refused(url: str, why: str) -> None:
    with pytest.raises(UserError, match=why) as raised:
        RemoteFolder(url, lambda _: None)

    assert SECRET not in str(raised.value)
    assert "\n" not in str(raised.value)
