"""Runs that are over can be scored whatever they lack, and are never told to be scored where that would be refused."""

# ruff: noqa: F811 (the fixture `shell` is imported)

from __future__ import annotations

import json
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import typer
from redis.exceptions import ResponseError

from rollout_tasks.cli import run_actions
from rollout_tasks.cli.rescore import rescore
from rollout_tasks.errors import FailureClass, UserError
from rollout_tasks.execution.verdicts import RolloutVerdicts
from rollout_tasks.runs import submit as submission_module
from rollout_tasks.runs.finalize import finalize
from rollout_tasks.runs.finalizer_claim import FinalizerClaim, Superseded
from rollout_tasks.runs.store import run_store
from rollout_tasks.runs.submission_store import StoredSubmission, reserve
from tests.unit.runs.test_run_commands import Shell, shell  # noqa: F401 (a fixture)
from tests.unit.runs.test_submit import KEY, QUEUE, RUN, lose, resume, submit


@pytest.fixture(autouse=True)
def _own_store() -> Iterator[None]:
    run_store.cache_clear()
    yield
    run_store.cache_clear()


@contextmanager
def full_disk() -> Iterator[None]:
    """No file of this process gets a single byte; empty ones can be made."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def scored(shell: Shell) -> dict[str, Any]:
    """Scores a run as the command does; returns the new report's summary."""
    before = set(shell.run.path.glob("evaluation*.json"))
    with pytest.raises(typer.Exit):
        rescore(run=str(shell.run.path), output_dir=Path("results"), metric="exact_match", as_json=True)
    (written,) = set(shell.run.path.glob("evaluation*.json")) - before
    summary: dict[str, Any] = json.loads(written.read_text())["summary"]
    return summary


def refused(shell: Shell) -> str:
    with pytest.raises(UserError) as told:
        rescore(run=str(shell.run.path), output_dir=Path("results"), metric="exact_match")
    return str(told.value)


def status(shell: Shell) -> str:
    shell.call(run_actions.status, RUN, {})
    return shell.err


def cancelled(shell: Shell, *, judge: bool = False, **options: Any) -> None:
    """Of three rollouts, one has ended when the run is cancelled; with `judge`, its judge cannot be asked then."""
    assert submit(shell, "a", "b", "c", **options) == 0
    if judge:
        config = json.loads(shell.client.hget(KEY, "config") or "")
        shell.client.hset(KEY, "config", json.dumps(config | {"metric": "llm_judgement"}))
    shell.finish("a#0")
    assert shell.call(run_actions.cancel, RUN, {}) == 0


@pytest.mark.parametrize(
    ("options", "disk"),
    [
        ({"judge": True}, nullcontext),
        ({"evaluate_results": False}, nullcontext),
        ({}, full_disk),
    ],
    ids=["judge", "not to be scored", "full disk"],
)
def test_a_cancelled_run_without_a_report_is_scored_until_it_is_resumed(
    shell: Shell, options: dict[str, Any], disk: Callable[[], Any]
) -> None:
    cancelled(shell, **options)
    with disk():
        assert finalize(RUN) == "cancelled"
    assert not shell.run.evaluation.exists()
    if options.get("evaluate_results", True):
        assert f"; score it with: rollouts rescore {shell.run.path} --metric " in status(shell)

    assert scored(shell)["total_rollouts"] == 3

    assert resume(shell) == 0
    for path in shell.run.path.glob("evaluation*"):
        path.unlink()
    assert "2 of 3 rollouts have no verdict" in refused(shell)


def test_a_run_whose_end_could_not_be_recorded_is_over_all_the_same(shell: Shell) -> None:
    """It is said to be resumed then, as the folder does not show that nothing more comes."""
    cancelled(shell, judge=True)
    moved = shell.run.path.with_name("elsewhere")
    shell.run.path.rename(moved)
    shell.run.path.write_text("in the way")

    assert finalize(RUN) == "cancelled"

    shell.run.path.unlink()
    moved.rename(shell.run.path)
    said = status(shell)
    assert f"; 2 of 3 rollouts have no verdict, roll them out with: rollouts resume {shell.run.path}\n" in said
    assert "rescore" not in said
    assert "2 of 3 rollouts have no verdict" in refused(shell)


def asked_to_score(shell: Shell) -> bool:
    """Whether a resume asks a worker for the report, instead of saying that the run is complete."""
    shell.client.delete("finalize")
    assert resume(shell) == 0
    return bool(shell.client.llen("finalize"))


def test_a_report_of_which_one_file_could_not_be_written_is_written_by_a_resume(shell: Shell) -> None:
    assert submit(shell, "a") == 0
    shell.finish("a#0")
    shell.run.report.mkdir()
    assert finalize(RUN) == "done"
    shell.run.report.rmdir()
    assert shell.run.evaluation.exists()

    assert asked_to_score(shell)

    assert finalize(RUN) == "done"
    assert shell.run.report.exists()
    assert not asked_to_score(shell)


def test_a_resumed_run_never_shows_the_report_of_before(shell: Shell) -> None:
    assert submit(shell, "a", "b") == 0
    shell.finish("a#0")
    lose(shell, "b#0", state="running")
    assert finalize(RUN) == "done"
    assert shell.run.has_report()

    assert resume(shell) == 0
    shell.finish("b#0")
    for path in (shell.run.evaluation, shell.run.report):
        path.write_text("a resume could not remove it")
    with full_disk():
        assert finalize(RUN) == "done"

    assert not shell.run.evaluation.exists()
    assert not shell.run.report.exists()
    assert asked_to_score(shell)


def test_a_resume_that_redis_refuses_costs_no_report(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    assert submit(shell, "a", "b") == 0
    shell.finish("a#0")
    lose(shell, "b#0", state="running")
    assert finalize(RUN) == "done"
    report = shell.run.evaluation.read_bytes()

    def refuses(*_: object) -> None:
        raise ResponseError("OOM")

    with monkeypatch.context() as patched:
        patched.setattr(StoredSubmission, "add_items", refuses)
        with pytest.raises(UserError, match="so nothing was enqueued"):
            resume(shell)
    assert shell.run.evaluation.read_bytes() == report
    assert shell.run.report.exists()

    assert resume(shell) == 0
    assert not shell.run.evaluation.exists()
    assert not shell.run.report.exists()


def test_a_resume_that_was_stopped_for_long_removes_no_report_of_after_it(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The workers took the run, rolled it out and scored it meanwhile."""
    assert submit(shell, "a", "b") == 0
    shell.finish("a#0")
    lose(shell, "b#0", state="running")
    assert finalize(RUN) == "done"
    stored = StoredSubmission.everything_stored

    def scored_meanwhile(submission: StoredSubmission) -> bool:
        whole = stored(submission)
        shell.client.hset(KEY, "state", "running")
        shell.finish("b#0")
        assert finalize(RUN) == "done"
        return whole

    monkeypatch.setattr(StoredSubmission, "everything_stored", scored_meanwhile)
    monkeypatch.setattr(submission_module, "_send", lambda *_: None)

    assert resume(shell) == 0

    assert shell.run.has_report()


def test_a_finaliser_that_wakes_late_touches_no_report_of_the_one_that_replaced_it(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    cancelled(shell)

    def replaced(claim: FinalizerClaim) -> None:
        raise Superseded(claim._run_id)

    shell.run.evaluation.write_text("of the one that replaced it")
    monkeypatch.setattr(FinalizerClaim, "check", replaced)

    assert finalize(RUN) == "superseded"

    assert shell.run.evaluation.read_text() == "of the one that replaced it"


def test_what_had_no_result_counts_as_cancelled_when_a_run_is_scored_again(shell: Shell) -> None:
    cancelled(shell)
    assert finalize(RUN) == "cancelled"
    own = json.loads(shell.run.evaluation.read_text())["summary"]

    again = scored(shell)

    assert [summary["failures"]["cancelled"]["count"] for summary in (own, again)] == [2, 2]


def half_submitted(shell: Shell) -> None:
    """A resume of a run of three, of which one has a verdict, broke off while it was being stored."""
    assert submit(shell, "a", "b", "c") == 0
    shell.finish("a#0")
    shell.store.forget(RUN, "running")
    stored = reserve(shell.store.client, RUN, shell.run.description.config(), str(shell.run.path), 3, [QUEUE])
    assert stored is not None
    stored.add_results(shell.run.verdicts(["a#0"]))
    shell.client.hset(KEY, "submitter_beat", 0)
    assert shell.store.adopt(RUN) == "half_submitted"


def test_a_run_that_was_half_submitted_and_then_cancelled_is_scored(shell: Shell) -> None:
    half_submitted(shell)
    assert shell.call(run_actions.cancel, RUN, {}) == 0
    again = f"it was half-submitted and then cancelled; score it with: rollouts rescore {shell.run.path} --metric "
    assert again in status(shell)

    assert scored(shell)["total_rollouts"] == 3


def test_a_run_whose_cancelling_did_not_reach_its_folder_is_said_to_be_resumed(shell: Shell) -> None:
    """As where it was cancelled by an earlier version."""
    half_submitted(shell)
    assert shell.store.cancel(RUN).left == 0

    said = status(shell)

    assert (
        "half-submitted and then cancelled; 2 of 3 rollouts have no verdict, roll them out with: rollouts resume "
        in said
    )
    assert "rescore" not in said
    assert resume(shell) == 0


def test_a_run_with_a_verdict_that_could_not_be_written_is_scored_again(shell: Shell) -> None:
    assert submit(shell, "a", "b", metric="f1_score") == 0
    shell.finish("a#0")
    shell.store.claim(RUN, "b#0", {"token": "b"})
    lost = RolloutVerdicts(shell.run, "b#0", "worker@here").unwritten(1, OSError(28, "No space left on device"))
    assert lost.failure_class is FailureClass.INTERNAL
    assert shell.store.commit(RUN, lost, "b").outcome == "ok"
    assert finalize(RUN) == "done"

    assert scored(shell)["total_rollouts"] == 2

    assert resume(shell) == 0
    assert "1 of 2 rollouts have no verdict" in refused(shell)


def test_a_finaliser_that_was_replaced_does_not_say_that_the_run_is_over(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    cancelled(shell, judge=True)

    def replaced(folder: Any, config: Any, store: Any, run_id: str, check: Any) -> str:
        check.__self__._superseded = True
        return ""

    monkeypatch.setattr("rollout_tasks.runs.finalize._write", replaced)

    assert finalize(RUN) == "superseded"
    assert "2 of 3 rollouts have no verdict" in refused(shell)
