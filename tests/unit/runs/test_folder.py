from __future__ import annotations

import errno
import json
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmark.items import Item, check_id
from benchmark.whole_file import write_whole
from rollout_tasks.config import RunConfig
from rollout_tasks.errors import FailureClass, UserError
from rollout_tasks.models.base import Usage
from rollout_tasks.runs.durable_files import link_once, write_once
from rollout_tasks.runs.folder import RunFolder, find_run
from rollout_tasks.runs.item_paths import decode_id, encode_id
from rollout_tasks.runs.provenance import provenance
from rollout_tasks.runs.verdict import LeaseRecord, Verdict

IDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=200)


@given(IDS)
def test_an_id_becomes_a_safe_path_and_comes_back(item_id: str) -> None:
    encoded = encode_id(item_id)

    assert decode_id(encoded) == item_id
    for part in encoded.split("/"):
        assert part not in {"", ".", ".."}
        assert len(part.encode()) <= 255
        assert part.isascii()
        assert not part.startswith(".")


@given(IDS, IDS)
def test_different_ids_never_share_a_path(one: str, other: str) -> None:
    assert (encode_id(one) == encode_id(other)) == (one == other)


def test_where_an_id_is_continued_no_part_leads_elsewhere() -> None:
    """Letters of six bytes each, when encoded, before dots at every place around the end of a part."""
    names = [
        "é" * letters + "x" * more + end
        for letters in (*range(38, 42), *range(78, 82))
        for more in range(7)
        for end in (".", "..", "...", ".a", "..a", "./b")
        if check_id("é" * letters + "x" * more + end) is None
    ]
    paths = {}
    for name in names:
        path = encode_id(name)
        assert decode_id(path) == name
        assert not [part for part in path.split("/") if part.startswith(".") or len(part) > 255]
        assert paths.setdefault(path, name) == name
    assert len(names) > 200


@pytest.mark.parametrize("name", ["run.json", "items.jsonl", "evaluation.json", "events.jsonl", "report.md", "logs"])
def test_an_id_never_takes_the_name_of_a_runs_own_file(name: str) -> None:
    assert encode_id(name) != name
    assert decode_id(encode_id(name)) == name


def verdict(attempt: int, **values: object) -> Verdict:
    return Verdict(rollout_id="a/b#c#0", attempt=attempt, status="completed", answer=f"try {attempt}", **values)  # type: ignore[arg-type]


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path / "results" / "run")
    folder.description.create(RunConfig(), [Item("a/b#c", "what?", "42")], data_path="x.jsonl", data_name="x")
    return folder


def test_what_is_written_comes_back(folder: RunFolder) -> None:
    written = verdict(
        2,
        score=0.5,
        failure_class=FailureClass.TIMEOUT,
        usage=Usage(10, 5, 2, 0.5),
        stages={"setup": 1.5, "model": 0.25},
        lease=LeaseRecord("vm-1", 7, 0.1, 1.0, 2.0),
    )

    settle(folder, written)

    assert folder.verdict("a/b#c#0") == written
    assert folder.description.items() == [Item("a/b#c", "what?", "42")]
    assert folder.description.config() == RunConfig()
    assert find_run("run", folder.path.parent).path == folder.path


def test_a_run_of_a_version_without_the_option_goes_on_with_all_pictures(folder: RunFolder) -> None:
    document = folder.description.document()
    del document["config"]["model"]["max_images"]
    (folder.path / "run.json").write_text(json.dumps(document))

    assert folder.description.config().model.max_images is None


def test_a_profile_of_a_newer_version_is_one_sentence(folder: RunFolder) -> None:
    document = folder.description.document()
    document["config"]["profile"] = {"name": "mine", "colour": "red"}
    (folder.path / "run.json").write_text(json.dumps(document))

    with pytest.raises(UserError, match=r"run\.json: profile: version: is missing"):
        folder.description.config()


def settle(folder: RunFolder, verdict: Verdict) -> Verdict:
    assert folder.begin_attempt(verdict.rollout_id, verdict.attempt) == verdict.attempt
    folder.write_attempt(verdict)
    return folder.settle(verdict, written=True)


@pytest.mark.parametrize("written", [True, False])
def test_the_first_verdict_stays(folder: RunFolder, written: bool) -> None:
    assert settle(folder, verdict(1)) == verdict(1)
    later = verdict(2, score=1.0)
    folder.begin_attempt("a/b#c#0", 2)
    folder.write_attempt(later)

    assert folder.settle(later, written=written) == verdict(1)

    assert folder.verdict("a/b#c#0") == folder.finished("a/b#c#0") == verdict(1)
    assert list(folder.attempts("a/b#c#0")) == [verdict(1), later]
    assert not list(folder.path.rglob("*.tmp"))


def test_settling_the_same_attempt_again_changes_nothing(folder: RunFolder) -> None:
    assert settle(folder, verdict(1)) == verdict(1)
    assert folder.settle(verdict(1), written=True) == verdict(1)


def test_a_verdict_without_an_attempt_touches_no_attempt(folder: RunFolder) -> None:
    folder.begin_attempt("a/b#c#0", 1)  # of somebody who may still be at work

    folder.settle(verdict(1), written=False)

    assert folder.verdict("a/b#c#0") == verdict(1)
    assert list(folder.attempt("a/b#c#0", 1).iterdir()) == []


def test_of_many_who_settle_at_once_one_is_first(folder: RunFolder) -> None:
    mine = [verdict(number, score=number / 10) for number in range(1, 9)]

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda one: settle(folder, one), mine))

    assert len(set(map(str, found))) == 1
    assert found[0] == folder.verdict("a/b#c#0")


def test_an_attempts_folder_is_given_out_once(folder: RunFolder) -> None:
    assert [folder.begin_attempt("a/b#c#0", 1) for _ in range(3)] == [1, 2, 3]
    assert folder.begin_attempt("a/b#c#0", 7) == 7


@pytest.mark.parametrize(
    ("ended", "found"),
    [
        (["completed"], 1),
        ([FailureClass.VM_LOST], None),
        ([FailureClass.VM_LOST, "completed"], 2),
        (["completed", FailureClass.VM_LOST], 1),
        ([FailureClass.MAX_TURNS], 1),
        ([FailureClass.VM_LOST, None, FailureClass.TIMEOUT], 3),
        ([FailureClass.WORKER_LOST], None),
        ([FailureClass.CANCELLED], None),
        ([None], None),
    ],
)
def test_a_finished_attempt_that_was_not_settled_is_found(
    folder: RunFolder, ended: list[FailureClass | str | None], found: int | None
) -> None:
    for number, how in enumerate(ended, start=1):
        folder.begin_attempt("a/b#c#0", number)
        if how == "completed":
            folder.write_attempt(verdict(number))
        elif how is not None:
            failed = replace(verdict(number), status="failed", failure_class=FailureClass(how))
            folder.write_attempt(failed)

    assert getattr(folder.finished("a/b#c#0"), "attempt", None) == found


def test_a_repeated_rollout_keeps_its_earlier_attempts_aside(folder: RunFolder) -> None:
    settle(folder, verdict(1))

    folder.set_aside("a/b#c#0")
    settle(folder, verdict(2, score=1.0))
    folder.set_aside("a/b#c#0")

    assert folder.verdict("a/b#c#0") is None
    kept = sorted(path.relative_to(folder.path).as_posix() for path in folder.path.rglob("result.json"))
    assert [path.split("/", 2)[2] for path in kept] == [
        "earlier-1/attempt-1/result.json",
        "earlier-1/result.json",
        "earlier-2/attempt-2/result.json",
        "earlier-2/result.json",
    ]


def test_who_goes_on_after_a_resume_writes_into_nobody_elses_attempt(folder: RunFolder) -> None:
    """As when Redis forgot a run that was then resumed, while a worker still had one of its rollouts."""
    rollout = "a/b#c#0"
    assert folder.begin_attempt(rollout, 1) == 1
    folder.set_aside(rollout)
    assert folder.begin_attempt(rollout, 1) == 2, "there was an attempt 1"

    folder.write_attempt(replace(verdict(1), status="failed", failure_class=FailureClass.WORKER_LOST))
    folder.write_attempt(verdict(2, score=1.0))
    settled = folder.settle(verdict(2, score=1.0), written=True)

    assert settled == folder.verdict(rollout) == verdict(2, score=1.0)
    folder.set_aside(rollout)
    assert folder.begin_attempt(rollout, 1) == 3


def test_a_verdict_written_by_an_older_version_is_read(folder: RunFolder) -> None:
    for number in (1, 2):
        folder.begin_attempt("a/b#c#0", number)
        folder.write_attempt(verdict(number))

    assert folder.verdict("a/b#c#0") == verdict(2)


def test_an_attempt_without_a_result_is_no_verdict(folder: RunFolder) -> None:
    folder.attempt("a/b#c#0", 1).mkdir(parents=True)

    assert folder.verdict("a/b#c#0") is None


def test_an_existing_folder_is_never_taken_over(folder: RunFolder) -> None:
    with pytest.raises(UserError, match="exists already"):
        folder.description.create(RunConfig(), [], data_path="", data_name="")
    assert folder.description.items() == [Item("a/b#c", "what?", "42")]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b'{"id": "\xff"}\n', "cannot be read: 'utf-8' codec can't decode"),
        (b"{}\n", ", line 1: "),
        (json.dumps(Item("a", "?").as_dict()).encode() + b"\n7\n", ", line 2: "),
        (b"", " holds no item"),
        (None, " cannot be read: No such file or directory"),
    ],
)
def test_broken_items_are_told_with_their_file(folder: RunFolder, content: bytes | None, says: str) -> None:
    path = folder.path / "items.jsonl"
    path.unlink() if content is None else path.write_bytes(content)

    with pytest.raises(UserError) as told:
        folder.description.items()

    assert str(told.value).startswith(f"{path}")
    assert says in str(told.value)


def test_a_folder_that_cannot_be_filled_is_taken_away_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsync = os.fsync

    def full(descriptor: int) -> None:
        if Path(f"/proc/self/fd/{descriptor}").readlink().suffix == ".tmp":
            raise OSError(errno.EIO, "Input/output error")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", full)

    with pytest.raises(UserError, match=r"^--output-dir: .*results cannot be written: Input/output error$"):
        RunFolder(tmp_path / "results" / "run").description.create(
            RunConfig(), [Item("a", "?")], data_path="x", data_name="x"
        )

    assert not (tmp_path / "results" / "run").exists()


def test_a_file_system_without_hard_links_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_paths: object, **_options: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")  # as vfat and some shared folders do

    monkeypatch.setattr(os, "link", refuse)

    with pytest.raises(UserError, match="cannot be written: its file system has no hard links, by which each rollout"):
        RunFolder(tmp_path / "run").description.create(RunConfig(), [Item("a", "?")], data_path="x", data_name="x")
    assert list(tmp_path.iterdir()) == []


def test_where_the_runs_own_folder_cannot_be_made_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_paths: object, **_options: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "mkdir", refuse)

    with pytest.raises(UserError, match=f"^--output-dir: {tmp_path} cannot be written: Permission denied$"):
        RunFolder(tmp_path / "run").description.create(RunConfig(), [Item("a", "?")], data_path="x", data_name="x")


def test_where_no_folder_can_be_made_is_named() -> None:
    for above, said in ((Path("/proc/none/above"), "cannot be made"), (Path("/proc"), "cannot be written")):
        with pytest.raises(UserError, match=f"^--output-dir: {above} {said}: "):
            RunFolder(above / "run").description.create(RunConfig(), [Item("a", "?")], data_path="x", data_name="x")


def test_folders_above_a_run_are_made_as_well(tmp_path: Path) -> None:
    above = tmp_path / "a" / "b" / "c"
    for name in ("run-1", "run-2"):
        RunFolder(above / name).description.create(RunConfig(), [Item("a", "?")], data_path="x", data_name="x")

    assert sorted(path.name for path in above.iterdir()) == ["run-1", "run-2"]


def test_a_new_run_is_described_and_nothing_else_is_left_in_its_folder(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    config = RunConfig(max_attempts=7)

    folder.description.create(
        config, [Item("a", "?"), Item("b", "?")], data_path="x.jsonl", data_name="x", left_out=["c"], doubted=["d", "e"]
    )

    document = folder.description.document()
    del document["benchmark"]["items_sha256"]
    assert document == {
        "run_id": "run",
        "benchmark": {"name": "x", "path": "x.jsonl", "left_out": ["c"], "doubted": ["d", "e"]},
        "made_by": {**provenance()},
        "images": [],
        "embedded": None,
        "asks_model": True,
        "environments": ["osworld"],
        "config": config.model_dump(mode="json"),
    }
    assert folder.description.count_items() == 2
    assert sorted(path.name for path in folder.path.iterdir()) == ["items.jsonl", "run.json"]


def test_a_run_needs_room_to_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []

    def full(_descriptor: int, offset: int, length: int) -> None:
        asked.append((offset, length))
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)

    with pytest.raises(UserError, match=r"^--output-dir: .* cannot be written: No space left on device$"):
        RunFolder(tmp_path / "run").description.create(RunConfig(), [Item("a", "?")], data_path="x", data_name="x")

    assert asked == [(0, 16 * 1024 * 1024)]
    assert list(tmp_path.iterdir()) == []


def test_what_keeps_a_run_from_beginning_is_said_and_not_what_comes_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "open", full)

    with pytest.raises(UserError, match=r"^--output-dir: .* cannot be written: No space left on device$"):
        RunFolder(tmp_path / "run").description.create(RunConfig(), [Item("a", "?")], data_path="x", data_name="x")


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOTSUP, errno.ENOSYS])
def test_each_way_of_refusing_a_hard_link_is_said_to_be_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*_paths: object, **_options: object) -> None:
        raise OSError(number, "it cannot")

    monkeypatch.setattr(os, "link", refuse)

    with pytest.raises(UserError, match="its file system has no hard links"):
        RunFolder(tmp_path / "run").description.create(RunConfig(), [Item("a", "?")], data_path="x", data_name="x")


def by_name(path: Path, text: str) -> bool:
    """As where files without a name cannot be made."""
    with pytest.MonkeyPatch.context() as patched:
        patched.delattr(os, "O_TMPFILE")
        return write_once(path, text)


WAYS: list[Callable[[Path, str], Any]] = [write_whole, write_once, by_name]


@pytest.mark.parametrize("write", WAYS)
def test_a_file_is_whole_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[Path, str], Any]
) -> None:
    path = tmp_path / "result.json"
    synced: list[tuple[int, bool]] = []
    fsync = os.fsync

    def watched(descriptor: int) -> None:
        fsync(descriptor)
        synced.append((os.fstat(descriptor).st_size, path.exists()))

    monkeypatch.setattr(os, "fsync", watched)

    write(path, "text")

    assert synced[0] == (4, False)
    assert path.read_text() == "text"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("write", WAYS)
@pytest.mark.parametrize("problem", [OSError(errno.EIO, "Input/output error"), KeyboardInterrupt()])
def test_a_file_that_cannot_be_written_whole_is_not_written_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[Path, str], Any], problem: BaseException
) -> None:
    def fail(_descriptor: int) -> None:
        raise problem

    monkeypatch.setattr(os, "fsync", fail)

    with pytest.raises(type(problem)):
        write(tmp_path / "result.json", "text")

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("write", [write_once, by_name])
def test_who_comes_second_writes_nothing(tmp_path: Path, write: Callable[[Path, str], bool]) -> None:
    path = tmp_path / "result.json"

    assert (write(path, "first"), write(path, "second")) == (True, False)
    assert path.read_text() == "first"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("write", [write_once, by_name])
def test_a_file_server_whose_answer_was_lost_took_the_file_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[Path, str], bool]
) -> None:
    link = os.link

    def link_and_lose(*paths: Any, **options: Any) -> None:
        link(*paths, **options)
        raise FileExistsError(errno.EEXIST, "File exists")  # says the second try, which the system makes by itself

    monkeypatch.setattr(os, "link", link_and_lose)

    assert write(tmp_path / "result.json", "mine")
    assert (tmp_path / "result.json").read_text() == "mine"


def test_a_second_name_is_given_once(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).write_text(name)

    assert link_once(tmp_path / "one", tmp_path / "result.json")
    assert link_once(tmp_path / "one", tmp_path / "result.json"), "it is this one already"
    assert not link_once(tmp_path / "other", tmp_path / "result.json")
    assert (tmp_path / "result.json").read_text() == "one"


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOSYS, errno.EACCES])
def test_where_files_cannot_be_nameless_they_have_a_name_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    open_, modes = os.open, []

    def refuse(path: Any, flags: int, mode: int = 0o777, **options: Any) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(number, "it cannot")
        modes.append(mode)
        return open_(path, flags, mode, **options)

    monkeypatch.setattr(os, "open", refuse)
    path = tmp_path / "result.json"

    if number == errno.EACCES:
        with pytest.raises(OSError, match="it cannot"):
            write_once(path, "text")
        assert list(tmp_path.iterdir()) == []
    else:
        assert write_once(path, "text")
        assert path.read_text() == "text"
        assert modes[0] == 0o644
        assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("write", WAYS)
def test_others_may_read_what_is_written(tmp_path: Path, write: Callable[[Path, str], Any]) -> None:
    before = os.umask(0)
    try:
        write(tmp_path / "result.json", "text")
    finally:
        os.umask(before)

    assert (tmp_path / "result.json").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, r"^{folder} is not a run's folder: it has no run\.json$"),
        ("a folder", r"^{folder}/run\.json cannot be read: it is no plain file"),
        ("{", r"^{folder}/run\.json cannot be read: Expecting property name"),
        ("[]", r"^{folder}/run\.json is not a run's description: it has no config$"),
        ("{}", r"^{folder}/run\.json is not a run's description: it has no config$"),
        ('{"config": []}', r"^{folder}/run\.json is not a run's description: it has no config$"),
        ('{"config": {"max_attempts": 0}}', r"^{folder}/run\.json: .*max_attempts"),
    ],
)
def test_a_broken_description_is_told_with_its_file(folder: RunFolder, content: str | None, says: str) -> None:
    path = folder.path / "run.json"
    path.unlink()
    if content == "a folder":
        path.mkdir()
    elif content is not None:
        path.write_text(content)

    with pytest.raises(UserError, match=says.format(folder=folder.path)):
        folder.description.config()


def test_items_that_cannot_be_counted_are_told(folder: RunFolder) -> None:
    (folder.path / "items.jsonl").unlink()

    with pytest.raises(UserError, match=rf"^{folder.path}/items\.jsonl cannot be read: No such file or directory$"):
        folder.description.count_items()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "Expecting property name"),
        ("[]", "must be a JSON object"),
        ("{}", "missing 3 required positional arguments"),
        ('{"rollout_id": "a#0", "attempt": 1, "status": "failed", "failure_class": "no-such"}', "no-such"),
        ('{"rollout_id": "a#0", "attempt": 1, "status": "failed", "lease": {"vm_id": "x"}}', "missing 4 required"),
        (None, "Is a directory"),
    ],
)
@pytest.mark.parametrize("name", ["result.json", "attempt-1/result.json"])
def test_a_verdict_that_cannot_be_read_is_told_with_its_file(
    folder: RunFolder, name: str, content: str | None, says: str
) -> None:
    path = folder.rollout("a/b#c#0") / name
    path.parent.mkdir(parents=True)
    path.mkdir() if content is None else path.write_text(content)

    for look in (folder.verdict, folder.finished):
        with pytest.raises(UserError) as told:
            look("a/b#c#0")
        assert str(told.value).startswith(f"{path} cannot be read: ")
        assert says in str(told.value)


def test_a_file_where_a_folder_should_be_is_no_verdict(folder: RunFolder) -> None:
    folder.rollout("a/b#c#0").parent.write_text("in the way")

    assert folder.verdict("a/b#c#0") is None
    assert folder.finished("a/b#c#0") is None
    assert folder.begun_attempts("a/b#c#0") == []


def test_the_newest_finished_attempt_is_taken(folder: RunFolder) -> None:
    for number in (1, 2, 3):
        folder.begin_attempt("a/b#c#0", number)
    for number in (1, 2):
        folder.write_attempt(verdict(number))

    assert folder.finished("a/b#c#0") == verdict(2)


def test_only_attempts_are_taken_for_attempts(folder: RunFolder) -> None:
    for name in ("attempt-10", "attempt-9", "attempt-x", "attempt-1.part", "my-attempt-3", "earlier-1"):
        (folder.rollout("a/b#c#0") / name).mkdir(parents=True)

    assert [path.name for path in folder.begun_attempts("a/b#c#0")] == ["attempt-9", "attempt-10"]


def test_an_attempts_result_is_written_though_its_folder_was_moved_away(folder: RunFolder) -> None:
    folder.begin_attempt("a/b#c#0", 1)
    folder.rollout("a/b#c#0").rename(folder.path / "elsewhere")

    folder.write_attempt(verdict(1))

    assert list(folder.attempts("a/b#c#0")) == [verdict(1)]


def test_a_verdict_that_was_written_as_an_attempts_is_the_same_file(folder: RunFolder) -> None:
    settle(folder, verdict(1))

    results = sorted(folder.rollout("a/b#c#0").rglob("result.json"))
    assert len(results) == 2
    assert results[0].samefile(results[1])


def test_a_verdict_without_any_attempt_makes_its_own_folder(folder: RunFolder) -> None:
    assert folder.settle(verdict(1), written=False) == verdict(1)
    assert folder.verdict("a/b#c#0") == verdict(1)


def test_what_killed_processes_left_is_removed_and_nothing_else(folder: RunFolder) -> None:
    folder.begin_attempt("a/b#c#0", 1)
    left = [".result.json.7.tmp", "attempt-1/.step.part", "attempt-1/.result.json.7.ab.tmp"]
    kept = [".profile", "attempt-1/step.tmp", "attempt-1/trajectory.jsonl", "result.json"]
    for name in (*left, *kept):
        (folder.rollout("a/b#c#0") / name).write_text("")

    folder.remove_temporary_files("a/b#c#0")

    found = [path for path in folder.rollout("a/b#c#0").rglob("*") if path.is_file()]
    assert sorted(path.relative_to(folder.rollout("a/b#c#0")).as_posix() for path in found) == sorted(kept)


def test_a_rollout_that_nobody_began_has_nothing_to_set_aside(folder: RunFolder) -> None:
    folder.set_aside("a/b#c#0")
    assert not folder.rollout("a/b#c#0").exists()

    folder.rollout("a/b#c#0").mkdir(parents=True)
    (folder.rollout("a/b#c#0") / "notes.txt").write_text("mine")
    folder.set_aside("a/b#c#0")
    assert [path.name for path in folder.rollout("a/b#c#0").iterdir()] == ["notes.txt"]


def test_what_was_set_aside_may_be_removed(folder: RunFolder) -> None:
    for number in (1, 2):
        settle(folder, verdict(number))
        folder.set_aside("a/b#c#0")
    (folder.rollout("a/b#c#0") / "earlier-1").rename(folder.path / "elsewhere")
    (folder.rollout("a/b#c#0") / "earlier-notes").write_text("mine")
    settle(folder, verdict(3))

    folder.set_aside("a/b#c#0")

    names = sorted(path.name for path in folder.rollout("a/b#c#0").iterdir())
    assert names == ["earlier-2", "earlier-3", "earlier-notes"]


def test_two_who_begin_a_rollout_at_once_get_an_attempt_each(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    mkdir = os.mkdir

    def other_first(path: Any, *mode: Any) -> None:
        try:
            mkdir(path, *mode)
        except FileNotFoundError:
            if path.name == "attempt-1":
                path.parent.mkdir(parents=True)
                mkdir(path)
            raise

    monkeypatch.setattr(os, "mkdir", other_first)

    assert folder.begin_attempt("a/b#c#0", 1) == 2


def test_the_verdict_is_set_aside_before_the_attempts(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is killed between them leaves a rollout that its attempts decide."""
    settle(folder, verdict(1))
    rename, moved = Path.rename, []

    def watched(path: Path, target: Path) -> Path:
        moved.append(path.name)
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", watched)

    folder.set_aside("a/b#c#0")

    assert moved == ["result.json", "attempt-1"]


def test_a_run_is_found_by_its_path_or_its_name(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.path)
    for run in (".", "../run", str(folder.path)):
        assert find_run(run, Path("/nowhere")).path == folder.path
    assert find_run("run", folder.path.parent).path == folder.path
    assert find_run("run", Path("..")).path == folder.path


def test_where_a_run_was_looked_for_is_said() -> None:
    with pytest.raises(UserError, match=r"^no run 'none': neither 'none' nor 'out/none' has a run\.json$"):
        find_run("none", Path("out"))
    with pytest.raises(UserError, match=r"^no run 'xxx.*\.\.\. has a run\.json$"):
        find_run("x" * 300, Path("out"))


def test_temporary_files_are_removed_while_an_execution_that_lives_changes_the_folder(folder: RunFolder) -> None:
    attempt = folder.attempt("a/b#c#0", 1)
    attempt.mkdir(parents=True)
    done = threading.Event()

    def change() -> None:
        while not done.is_set():
            for number in range(20):
                (attempt / f"work-{number}").mkdir()
            for number in range(20):
                (attempt / f"work-{number}").rmdir()

    with ThreadPoolExecutor(1) as executor:
        changing = executor.submit(change)
        try:
            for _ in range(300):
                (attempt / ".result.json.1-2.tmp").touch()
                folder.remove_temporary_files("a/b#c#0")
                assert not (attempt / ".result.json.1-2.tmp").exists()
        finally:
            done.set()
        changing.result()
