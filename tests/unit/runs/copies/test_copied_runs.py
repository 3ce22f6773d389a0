"""Copies of runs: what is in them, that nothing is sent twice, and what a resume and links do to them."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path
from uuid import uuid4

import pytest

pytest.importorskip("fsspec")

from benchmark.items import Item
from rollout_tasks.config import RunConfig
from rollout_tasks.errors import FailureClass, UserError
from rollout_tasks.runs import ending
from rollout_tasks.runs.copies.fetched_run import Fetched, fetch_run
from rollout_tasks.runs.copies.remote_folder import RemoteFolder
from rollout_tasks.runs.copies.run_copy import Copied, copy_run
from rollout_tasks.runs.finalize import score_run
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.runs.verdict import Verdict
from tests.unit.runs.copies.odd_targets import Counted, broken_promises, follow_plan, manifests, tree
from tests.unit.training.ended_rollouts import end, run_of


def silent(_sentence: str) -> None:
    pass


def copied(run: RunFolder, url: str, *, follow: bool = False) -> Copied:
    return copy_run(run, RemoteFolder(url, silent, retry_seconds=0), silent, follow=follow)


def fetched(url: str, path: Path) -> Fetched:
    return fetch_run(RemoteFolder(url, silent, retry_seconds=0), path)


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """Two rollouts of a and the first of b have ended; the second is being rolled out."""
    run = run_of(tmp_path / "run", ["a", "b/c \N{LATIN SMALL LETTER E WITH ACUTE}"], rollouts_per_item=2)
    for name in ("a#0", "a#1", "b/c \N{LATIN SMALL LETTER E WITH ACUTE}#0"):
        end(run, name, 1.0)
    number = run.begin_attempt("b/c \N{LATIN SMALL LETTER E WITH ACUTE}#1", 1)
    (run.attempt("b/c \N{LATIN SMALL LETTER E WITH ACUTE}#1", number) / "trajectory.jsonl").write_text("{}\n")
    return run


def finished(run: RunFolder) -> None:
    shutil.rmtree(run.rollout("b/c \N{LATIN SMALL LETTER E WITH ACUTE}#1"))
    end(run, "b/c \N{LATIN SMALL LETTER E WITH ACUTE}#1", 0.0)
    score_run(run, "exact_match")
    ending.record_end(run)


def test_names_as_long_as_a_file_system_takes_are_told_apart(run: RunFolder, tmp_path: Path) -> None:
    """Each is written to a temporary name first, several at once."""
    attempt = run.attempt("a#0", 1)
    for number in range(12):
        (attempt / f"{'a' * 240}{number:02}.bin").write_bytes(bytes([number]) * 300_000)
    (attempt / ("\N{CJK UNIFIED IDEOGRAPH-6F22}" * 84 + ".x")).write_bytes(b"long")
    url = (tmp_path / "copy").as_uri()

    assert copied(run, url).problems == []
    fetched(url, tmp_path / "back")

    for file in attempt.iterdir():
        assert (tmp_path / "back" / file.relative_to(run.path)).read_bytes() == file.read_bytes()


@pytest.mark.parametrize("scheme", ["file", "memory"])
def test_there_and_back(run: RunFolder, tmp_path: Path, scheme: str) -> None:
    url = f"{scheme}://{tmp_path}/{uuid4()}/run"

    first = copied(run, url)
    assert (first.copied, first.rollouts, first.over, first.problems) == (3, 4, False, [])
    again = copied(run, url)
    assert (again.files_sent, again.files_kept) == (0, first.files_sent)
    partly = fetched(url, tmp_path / "back")
    assert (partly.rollouts, partly.over, partly.incomplete) == (3, False, 0)
    assert not (tmp_path / "back" / "b=2Fc=20=C3=A9" / "1").exists()

    finished(run)
    last = copied(run, url)
    assert (last.copied, last.over, last.files_removed) == (4, True, 0)
    assert fetched(url, tmp_path / "back").files_kept == first.files_sent

    here = tree(run.path)
    assert {name for name in here if name.startswith(".")} == {".ended"}
    assert {name: content for name, content in tree(tmp_path / "back").items() if name != ".fetched"} == here


def test_a_large_file_goes_there_and_back(run: RunFolder, tmp_path: Path) -> None:
    recording = run.attempt("a#0", 1) / "recording.mp4"
    recording.write_bytes(os.urandom(1 << 20) * 9)

    copied(run, f"file://{tmp_path / 'target'}")
    fetched(f"file://{tmp_path / 'target'}", tmp_path / "back")

    assert (tmp_path / "back/a/0/attempt-1/recording.mp4").read_bytes() == recording.read_bytes()


def test_links_and_special_files_stay_here(run: RunFolder, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "result.json").write_text("{}")
    attempt = run.attempt("a#0", 1)
    (attempt / "link.png").symlink_to(secret / "result.json")
    (attempt / "more").symlink_to(secret)
    os.mkfifo(attempt / "pipe")
    (run.rollout("a#0") / "attempt-2").symlink_to(secret)
    shutil.rmtree(run.rollout("a#1"))
    run.rollout("a#1").symlink_to(run.rollout("a#0"))
    (run.path / "report-x.md").symlink_to(secret / "result.json")

    done = copied(run, f"file://{tmp_path / 'target'}")

    assert done.left_out == 4
    assert {name.split("/")[0] for name in tree(tmp_path / "target")} == {
        *(".copied", "run.json", "items.jsonl", "a", "b=2Fc=20=C3=A9")
    }
    assert sorted(name for name in tree(tmp_path / "target") if name.startswith("a/")) == [
        *(f"a/0/attempt-1/{name}" for name in ("messages.json", "result.json", "step_000.png", "step_000_1.png")),
        *("a/0/attempt-1/trajectory.jsonl", "a/0/result.json"),
    ]


def test_a_resume_moves_what_it_moved_and_takes_reports_back(run: RunFolder, tmp_path: Path) -> None:
    target = tmp_path / "target"
    finished(run)
    copied(run, f"file://{target}")
    before = run.attempt("a#0", 1).joinpath("result.json").read_bytes()
    ending.record_beginning(run)
    run.remove_report()
    run.set_aside("a#0")

    done = copied(run, f"file://{target}")

    assert done.copied == 3
    assert (target / "a/0/earlier-1/attempt-1/result.json").read_bytes() == before
    assert not (target / "a/0/attempt-1/result.json").exists()
    assert not (target / "a/0/result.json").exists()
    assert not (target / "evaluation.json").exists()
    assert broken_promises(target) == []
    end(run, "a#0", 0.5)
    copied(run, f"file://{target}")
    assert {name: text for name, text in tree(target).items() if not name.startswith(".copied")} == tree(run.path)


def test_what_was_deleted_here_to_make_room_stays_there(run: RunFolder, tmp_path: Path) -> None:
    target = tmp_path / "target"
    copied(run, f"file://{target}")
    before = tree(target)
    (run.attempt("a#0", 1) / "step_000.png").unlink()
    shutil.rmtree(run.rollout("a#1"))

    done = copied(run, f"file://{target}")

    assert tree(target) == before
    assert (done.copied, done.files_sent, done.files_removed) == (3, 0, 0)


def test_what_was_lost_there_is_sent_again(run: RunFolder, tmp_path: Path) -> None:
    target = tmp_path / "target"
    copied(run, f"file://{target}")
    before = tree(target)
    (target / "a/0/attempt-1/step_000.png").unlink()
    (target / "a/1/result.json").write_text("x")
    (target / ".copied/rollouts/a/1.json").write_text("{")

    done = copied(run, f"file://{target}")

    assert tree(target) == before
    assert done.files_sent == 1 + 6


def test_a_reader_has_no_report_of_rollouts_that_are_not_there(run: RunFolder, tmp_path: Path) -> None:
    """Asked at every step of a copy that goes on after a resume."""
    target = tmp_path / "target"
    finished(run)
    copied(run, f"planned://{target}")
    old = manifests(target)["rollouts/a/0"]
    ending.record_beginning(run)
    run.remove_report()
    run.set_aside("a#0")
    end(run, "a#0", 0.5)
    seen = []

    def look(_when: str, _step: str, _path: str) -> None:
        found = manifests_read(target)
        reports, rollout = found.get("reports"), found.get("rollouts/a/0")
        if reports and reports.complete and "report.md" in reports.files:
            seen.append(rollout == old)

    follow_plan(look)
    copied(run, f"planned://{target}")
    follow_plan(None)

    assert all(seen)


def manifests_read(target: Path) -> dict[str, object]:
    try:
        return dict(manifests(target))
    except ValueError:
        return {}


def test_a_run_is_followed_until_it_is_over(run: RunFolder, tmp_path: Path) -> None:
    """Each rollout is there before the next one ends."""
    target = tmp_path / "target"
    done = []
    follower = threading.Thread(target=lambda: done.append(copied(run, f"file://{target}", follow=True)))
    follower.start()
    came = threading.Event()
    while not (target / ".copied/rollouts/b=2Fc=20=C3=A9/0.json").exists():
        assert follower.is_alive()
        came.wait(0.02)
    assert not (target / ".copied/reports.json").exists()
    finished(run)

    follower.join(60)

    assert not follower.is_alive()
    assert (done[0].over, done[0].copied, done[0].files_kept) == (True, 4, 0)
    assert {name: text for name, text in tree(target).items() if not name.startswith(".copied")} == tree(run.path)


def test_an_attempt_that_the_infrastructure_lost_is_copied_too(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", ["a"], rollouts_per_item=1)
    number = run.begin_attempt("a#0", 1)
    (run.attempt("a#0", number) / "agent.log").write_text("x")
    (run.attempt("a#0", number) / ".agent.log.part").write_text("half")
    run.write_attempt(Verdict("a#0", number, "failed", failure_class=FailureClass.VM_LOST))
    run.begin_attempt("a#0", 2)

    done = copied(run, f"file://{tmp_path / 'target'}")

    assert done.copied == 0
    assert sorted(tree(tmp_path / "target/a")) == ["0/attempt-1/agent.log", "0/attempt-1/result.json"]


def test_two_runs_are_not_mixed(run: RunFolder, tmp_path: Path) -> None:
    other = RunFolder(tmp_path / "other")
    other.description.create(RunConfig(), [Item("a", "?")], data_path="x", data_name="x")
    copied(run, f"file://{tmp_path / 'target'}")

    with pytest.raises(UserError, match="has a copy of run 'run': name another folder"):
        copied(other, f"file://{tmp_path / 'target'}")


def test_files_of_others_are_not_touched(run: RunFolder, tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "target/run.json").write_text("mine")

    with pytest.raises(UserError, match="has files that no copy wrote"):
        copied(run, f"file://{tmp_path / 'target'}")

    assert tree(tmp_path / "target") == {"run.json": b"mine"}


@pytest.mark.parametrize("below", ["", "/copy", "/.."])
def test_a_copy_is_apart_from_its_run(run: RunFolder, below: str) -> None:
    with pytest.raises(UserError, match=r"within each other|must look like"):
        copied(run, f"file://{run.path}{below}")


@pytest.mark.slow
def test_a_rollout_that_keeps_changing_concerns_itself_and_the_reports(run: RunFolder, tmp_path: Path) -> None:
    finished(run)
    record = run.attempt("a#0", 1) / "trajectory.jsonl"

    def add(when: str, step: str, path: str) -> None:
        if (when, step, path.endswith("a/0/attempt-1/trajectory.jsonl")) == ("before", "mv", True):
            with record.open("a") as file:
                file.write("{}\n")

    follow_plan(add)
    done = copied(run, f"planned://{tmp_path / 'target'}")
    follow_plan(None)

    assert (done.copied, done.problems) == (3, ["'a/0/attempt-1/trajectory.jsonl' was changed while it was copied"])
    assert not manifests(tmp_path / "target")["rollouts/a/0"].complete
    assert "reports" not in manifests(tmp_path / "target")
    assert copied(run, f"planned://{tmp_path / 'target'}").copied == 4
    assert manifests(tmp_path / "target")["reports"].complete


def test_a_file_that_cannot_be_read_concerns_its_rollout_alone(run: RunFolder, tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    (run.attempt("a#0", 1) / "step_000.png").chmod(0)

    done = copied(run, f"file://{tmp_path / 'target'}")

    assert done.copied == 2
    assert len(done.problems) == 1
    assert "step_000.png" in done.problems[0]
    assert "Permission denied" in done.problems[0]
    assert "rollouts/a/0" not in manifests(tmp_path / "target")


def test_a_file_that_changes_while_it_is_sent_is_sent_as_it_is_then(run: RunFolder, tmp_path: Path) -> None:
    """As the answers of a judge, which are added to their file; the copy's manifest never says what is not there."""
    judged = run.path / "judged.jsonl"
    judged.write_text("{}\n")
    promises = []

    def add(when: str, step: str, path: str) -> None:
        if (when, step, path.rpartition("/")[2]) == ("before", "mv", "judged.jsonl") and len(judged.read_text()) < 9:
            with judged.open("a") as file:
                file.write("{}\n")
        promises.extend(broken_promises(tmp_path / "target") if (when, step) == ("after", "mv") else [])

    follow_plan(add)
    done = copied(run, f"planned://{tmp_path / 'target'}")
    follow_plan(None)

    assert done.problems == []
    assert promises == []
    assert (tmp_path / "target/judged.jsonl").read_text() == judged.read_text() == "{}\n" * 3


def test_nothing_is_written_where_everything_is_there(run: RunFolder, tmp_path: Path) -> None:
    copied(run, f"planned://{tmp_path / 'target'}")
    follow_plan(plan := Counted())
    copied(run, f"planned://{tmp_path / 'target'}")
    follow_plan(None)

    assert plan.count == 0
