"""Copies that somebody else made: their manifests and files are checked, and nothing is written out of the folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fsspec")

from rollout_tasks.errors import UserError
from rollout_tasks.runs import ending
from rollout_tasks.runs.copies import names
from rollout_tasks.runs.copies.fetched_run import Fetched, fetch_run
from rollout_tasks.runs.copies.manifest import manifest_name, parsed, unit_of
from rollout_tasks.runs.copies.remote_folder import RemoteFolder
from rollout_tasks.runs.copies.run_copy import copy_run
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.runs.run_lock import held
from tests.unit.runs.copies.odd_targets import tree
from tests.unit.training.ended_rollouts import end, run_of

UNIT = "rollouts/a/0"
SHA = hashlib.sha256(b"x").hexdigest()


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """A copy of a run."""
    run = run_of(tmp_path / "run", ["a"], rollouts_per_item=1)
    end(run, "a#0", 1.0)
    copy_run(run, RemoteFolder(f"file://{tmp_path / 'target'}", lambda _: None), lambda _: None)
    return tmp_path / "target"


def fetched(target: Path, name: str = "back") -> Fetched:
    return fetch_run(RemoteFolder(f"file://{target}", lambda _: None, retry_seconds=0), target.parent / name)


def changed(target: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = target / manifest_name(UNIT)
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def document(**more: Any) -> bytes:
    return json.dumps({"format": 1, "unit": UNIT, "complete": True, "files": {}} | more).encode()


@pytest.mark.parametrize(
    "name",
    [
        "/etc/passwd",
        "../x",
        "a/0/../../x",
        "a/0/attempt-1/../../../x",
        "a/0/attempt-1/..",
        "a/0/attempt-1//x",
        "a/0/attempt-1/./x",
        "a/0/attempt-1/.bashrc",
        "a/0/attempt-1/.x/y",
        "a/0/attempt-1/x\\y",
        "a/0/attempt-1/x\0y",
        "a/0/attempt-1/x\ny",
        "a/0/attempt-1/" + "x" * 256,
        "a/0/attempt-1" + "/x" * 500,
        "a/0/attempt-x/y",
        "a/0/attempt-1",
        "a/0/earlier-1/earlier-1/result.json",
        "a/0/run.json",
        "a/1/result.json",
        "run.json",
        ".ended",
        "",
    ],
)
def test_names_that_cannot_be_there(name: str) -> None:
    with pytest.raises(ValueError, match="names a file that cannot be there"):
        parsed(UNIT, document(files={name: {"size": 1, "sha256": SHA}}))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff",
        b"[]",
        b"null",
        b"[" * 100_000,
        document(unit="rollouts/a/1"),
        document(complete=1),
        document(files=[]),
        document(files={"a/0/result.json": None}),
        document(files={"a/0/result.json": {"size": -1, "sha256": SHA}}),
        document(files={"a/0/result.json": {"size": True, "sha256": SHA}}),
        document(files={"a/0/result.json": {"size": 1.0, "sha256": SHA}}),
        document(files={"a/0/result.json": {"size": 1 << 60, "sha256": SHA}}),
        document(files={"a/0/result.json": {"size": 1, "sha256": SHA.upper()}}),
        document(files={"a/0/result.json": {"size": 1}}),
        document(files={"a/0/result.json": {"size": 1, "sha256": SHA}}).replace(b": 1,", b": NaN,"),
        document(files={name: {"size": 1, "sha256": SHA} for name in ("a/0/attempt-1/x", "a/0/attempt-1/x/y")}),
    ],
)
def test_manifests_that_are_none(target: Path, content: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        parsed(UNIT, content)
    (target / manifest_name(UNIT)).write_bytes(content)

    done = fetched(target)

    assert (done.rollouts, done.incomplete) == (0, 1)
    assert sorted(tree(target.parent / "back")) == [".fetched", "items.jsonl", "run.json"]


def test_a_copy_of_another_version_is_left_alone(target: Path) -> None:
    changed(target, lambda document: document.update(format=2))
    before = tree(target)

    with pytest.raises(UserError, match="manifest of rollouts/a/0 has another format than this version knows"):
        fetched(target)
    with pytest.raises(UserError, match="has another format"):
        run = RunFolder(target.parent / "run")
        copy_run(run, RemoteFolder(f"file://{target}", lambda _: None), lambda _: None)

    assert tree(target) == before


@pytest.mark.parametrize(
    "name",
    [
        ".copied/rollouts/../x/0.json",
        ".copied/rollouts/run.json/0.json",
        ".copied/rollouts/logs/0.json",
        ".copied/rollouts/a/x.json",
        ".copied/rollouts/a/01.json",
        ".copied/rollouts/0.json",
        ".copied/rollouts/a=2fb/0.json",
        ".copied/rollouts/=zz/0.json",
        ".copied/rollouts/.a/0.json",
        ".copied/exports/../x.json",
        ".copied/other.json",
        "description.json",
    ],
)
def test_objects_that_are_no_manifest(name: str) -> None:
    assert unit_of(name) is None


@pytest.mark.parametrize("item", ["a", "a/b c", "run.json", ".", "x" * 500, "\N{SNOWMAN}"])
def test_every_rollouts_unit_is_one(item: str) -> None:
    unit = names.rollout_unit(f"{item}#3")

    assert unit_of(manifest_name(unit)) == unit
    assert names.belongs(f"{names.rollout_folder(f'{item}#3')}/result.json", unit)


@pytest.mark.parametrize("content", [b"", b"shorter", b"x" * 5000], ids=["empty", "shorter", "longer"])
def test_a_file_that_is_not_what_its_manifest_says(target: Path, content: bytes) -> None:
    (target / "a/0/attempt-1/trajectory.jsonl").write_bytes(content)

    with pytest.raises(UserError, match=r"trajectory.jsonl is not what its manifest says"):
        fetched(target)

    back = tree(target.parent / "back")
    assert "a/0/attempt-1/trajectory.jsonl" not in back
    assert "a/0/result.json" not in back, "a rollout has its result last"
    assert "run.json" not in back, "a folder is a run's once all is there"
    assert not [name for name in back if name.endswith(".part")]


def test_a_file_of_other_bytes_and_the_same_size(target: Path) -> None:
    path = target / "a/0/attempt-1/step_000.png"
    path.write_bytes(bytes(len(path.read_bytes())))

    with pytest.raises(UserError, match=r"step_000.png is not what its manifest says"):
        fetched(target)


def test_a_file_that_is_missing(target: Path) -> None:
    (target / "a/0/attempt-1/step_000.png").unlink()

    with pytest.raises(UserError, match=r"cannot read 'a/0/attempt-1/step_000.png': FileNotFoundError"):
        fetched(target)


def test_more_than_the_disk_has(target: Path) -> None:
    def change(document: dict[str, Any]) -> None:
        document["files"]["a/0/attempt-1/recording.mp4"] = {"size": 1 << 43, "sha256": SHA}

    changed(target, change)

    with pytest.raises(UserError, match=r"the run has 8,796,.* bytes more, and the disk only"):
        fetched(target)


def test_a_unit_that_is_not_complete_is_left_out(target: Path) -> None:
    changed(target, lambda document: document.update(complete=False))

    done = fetched(target)

    assert (done.rollouts, done.incomplete) == (0, 1)


def test_a_run_of_which_a_rollout_is_missing_is_not_over(target: Path) -> None:
    """Else whoever scores it again would count that rollout as cancelled."""
    run = RunFolder(target.parent / "run")
    ending.record_end(run)
    copy_run(run, RemoteFolder(f"file://{target}", lambda _: None), lambda _: None)
    assert fetched(target, "before").over
    changed(target, lambda document: document.update(complete=False))

    done = fetched(target)

    assert (done.over, done.incomplete) == (False, 1)
    assert not ending.is_over(RunFolder(target.parent / "back"))


def test_without_a_description_there_is_no_run(target: Path) -> None:
    (target / manifest_name("description")).write_text("{}")

    with pytest.raises(UserError, match=r"has no complete copy of a run: .*description.json is not the manifest"):
        fetched(target)

    assert not (target.parent / "back").exists()


@pytest.mark.parametrize("link", ["a", "a/0", "a/0/attempt-1", "a/0/attempt-1/messages.json"])
def test_links_in_the_folder_are_not_followed(target: Path, link: str) -> None:
    elsewhere = target.parent / "elsewhere"
    elsewhere.mkdir()
    fetched(target)
    back = target.parent / "back"
    path = back / link
    path.rename(target.parent / "moved")
    path.symlink_to(elsewhere)

    if link.endswith(".json"):  # the link itself is replaced
        fetched(target)
        assert path.is_file()
        assert not path.is_symlink()
    else:
        with pytest.raises(UserError, match="cannot be written"):
            fetched(target)

    assert not list(elsewhere.iterdir())


def test_files_of_others_are_not_replaced(target: Path) -> None:
    fetched(target)
    back = target.parent / "back"
    (back / "a/0/result.json").write_text("another")

    with pytest.raises(UserError, match=r"a/0/result.json is there already, and is not what .* has"):
        fetched(target)

    assert (back / "a/0/result.json").read_text() == "another"


def test_a_run_that_is_rolled_out_there_is_left_alone(target: Path) -> None:
    run = run_of(target.parent / "back", ["a"], rollouts_per_item=1)
    with pytest.raises(UserError, match="has files that no copy wrote"):
        fetched(target)

    fetched(target, "other")
    run.path = target.parent / "other"
    with held(run):  # as a resume does
        pass
    with pytest.raises(UserError, match="has files that no copy wrote"):
        fetched(target, "other")
