"""Submitting a run while something goes wrong: what is taken back, what goes on without the submitter, and what is said."""

# ruff: noqa: F811 (the fixture `shell` is imported)

from __future__ import annotations

import base64
import errno
import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import redis
import typer
from kombu.exceptions import OperationalError

from rollout_tasks.cli import run_actions, submission_progress
from rollout_tasks.cli.program import INTERRUPTED
from rollout_tasks.errors import FailureClass, UserError
from rollout_tasks.execution.verdicts import RolloutVerdicts
from rollout_tasks.runs import enqueue, submission_store
from rollout_tasks.runs.folder import RunFolder
from rollout_tasks.runs.progress import progress_in_folder
from rollout_tasks.runs.store import RunStore
from rollout_tasks.runs.submission import resumed_submission
from rollout_tasks.runs.submission_store import StoredSubmission, reserve
from rollout_tasks.runs.verdict import Verdict
from tests.conftest import REPOSITORY
from tests.unit.runs.test_run_commands import Shell, shell  # noqa: F401 (a fixture)

RUN = "night-1"
KEY = f"{{run:{RUN}}}"
QUEUE = "rollout.simulated"


def submit(shell: Shell, *names: str, **options: Any) -> int:
    return shell.call(run_actions.submit, shell.config(*({"id": name} for name in names), **options))


def resume(shell: Shell) -> int:
    return shell.call(run_actions.resume, str(shell.run.path), {})


def lose(shell: Shell, rollout_id: str = "a#0", state: str = "done") -> None:
    """A rollout was lost to the infrastructure, and the run is over."""
    shell.store.claim(RUN, rollout_id, {"token": rollout_id})
    verdict = Verdict(
        rollout_id, shell.run.begin_attempt(rollout_id, 1), "failed", failure_class=FailureClass.VM_LOST, error="gone"
    )
    shell.run.write_attempt(verdict)
    shell.run.settle(verdict, written=True)
    assert shell.store.commit(RUN, verdict, rollout_id).outcome == "ok"
    shell.client.hset(KEY, "state", state)
    shell.client.delete(QUEUE)


def spend(shell: Shell, rollout_id: str, *costs: float, failure: FailureClass | None = None) -> bool:
    """A rollout ends after attempts that cost that much, all but the last lost; returns whether the run may go on."""
    verdicts = RolloutVerdicts(shell.run, rollout_id, "worker@here")
    shell.store.claim(RUN, rollout_id, {"token": rollout_id})
    for left, cost in reversed(list(enumerate(reversed(costs)))):
        how = FailureClass.VM_LOST if left else failure
        verdict = Verdict(
            rollout_id,
            shell.run.begin_attempt(rollout_id, 1),
            "failed" if how else "completed",
            failure_class=how,
            cost=cost,
            earlier_cost=verdicts.spent(),
        )
        shell.run.write_attempt(verdict)
    shell.run.settle(verdict, written=True)
    commit = shell.store.commit(RUN, verdict, rollout_id)
    assert commit.outcome == "ok"
    return not commit.reached_max_cost


def cost(shell: Shell) -> float | None:
    progress = shell.store.progress(RUN)
    assert progress is not None
    return progress.cost


def after(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, then: Callable[[], object]) -> list[int]:
    """Something happens just after each call; counts them."""
    call, calls = getattr(owner, name), []

    def called(*arguments: Any, **options: Any) -> Any:
        found = call(*arguments, **options)
        calls.append(1)
        then()
        return found

    monkeypatch.setattr(owner, name, called)
    return calls


def test_what_redis_loses_while_messages_are_sent_is_stored_again(
    shell: Shell,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The chord that counts them may be lost as well: the last commit asks for the report then."""
    after(monkeypatch, enqueue, "send_chord", lambda: shell.client.srem(f"{KEY}:pending", "a#0"))

    assert submit(shell, "a", "b") == 0

    assert shell.client.hget(KEY, "chord_spent") == "1"
    assert shell.store.state(RUN) == "running"
    assert shell.client.smembers(f"{KEY}:pending") == {"a#0", "b#0"}


def test_a_chord_that_was_sent_whole_is_relied_on(shell: Shell) -> None:
    assert submit(shell, "a", "b") == 0

    assert shell.client.hget(KEY, "chord_spent") is None
    assert shell.store.state(RUN) == "running"


def test_a_redis_that_keeps_losing_what_is_stored_leaves_the_run_half_submitted(
    shell: Shell,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tries = after(monkeypatch, StoredSubmission, "add_items", lambda: shell.client.srem(f"{KEY}:pending", "a#0"))

    with pytest.raises(UserError) as told:
        submit(shell, "a", "b")

    assert str(told.value) == (
        f"run {RUN} is half-submitted: Redis keeps losing what is stored; once it works reliably,"
        f" and not before 60 s from now, complete the run with: rollouts resume {shell.run.path}"
    )
    assert len(tries) == 3
    assert shell.store.state(RUN) == "submitting"
    assert shell.client.llen(QUEUE) == 0
    assert shell.run.path.is_dir()


@pytest.mark.parametrize("lost", [redis.ConnectionError, OperationalError])
def test_a_redis_lost_after_everything_was_stored_leaves_the_run_to_the_workers(
    shell: Shell,
    monkeypatch: pytest.MonkeyPatch,
    lost: type[Exception],
) -> None:
    def gone(*_: object) -> None:
        raise lost("gone for a moment")

    monkeypatch.setattr(enqueue, "send_chord", gone)

    with pytest.raises(UserError) as told:
        submit(shell, "a")

    assert str(told.value) == (
        f"Redis was lost while the rollouts of run {RUN} were being sent (gone for a moment); it has them all, so the workers"
        f" go on with the run once it is back: see rollouts status {RUN}"
    )
    assert shell.client.smembers(f"{KEY}:pending") == {"a#0"}
    assert shell.run.path.is_dir()


def test_a_broker_that_is_lost_before_everything_was_stored_takes_nothing(
    shell: Shell,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def gone(*_: object) -> None:
        raise OperationalError("gone for a moment")

    monkeypatch.setattr(StoredSubmission, "add_items", gone)

    with pytest.raises(UserError, match=r"^Redis did not accept the run, so nothing was enqueued: gone for a moment$"):
        submit(shell, "a")

    assert shell.store.state(RUN) is None
    assert not shell.run.path.exists()


def test_a_redis_that_stays_lost_leaves_the_folder_to_be_resumed(
    shell: Shell,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def gone(*_: object, **__: object) -> None:
        raise redis.ConnectionError("gone")

    monkeypatch.setattr(StoredSubmission, "add_items", gone)
    monkeypatch.setattr(RunStore, "forget", gone)

    with pytest.raises(UserError) as told:
        submit(shell, "a")

    assert str(told.value) == (
        f"Redis was lost while run {RUN} was being stored (gone), so nothing was enqueued; once it is back,"
        f" and not before 60 s from now, complete the run with: rollouts resume {shell.run.path}"
    )
    assert [item.id for item in shell.run.description.items()] == ["a"]


def test_a_run_that_somebody_else_submitted_just_now_is_theirs(
    shell: Shell,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = shell.config({"id": "a"})
    after(
        monkeypatch,
        RunStore,
        "adopt",
        lambda: reserve(shell.store.client, RUN, config, "/theirs", 1, [QUEUE], token="theirs"),
    )

    with pytest.raises(UserError, match=f"^--run-id: run '{RUN}' was submitted by somebody else just now$"):
        shell.call(run_actions.submit, config)

    assert shell.client.hget(KEY, "folder") == "/theirs"
    assert not shell.run.path.exists()


def test_a_run_that_somebody_else_resumed_just_now_is_theirs(
    shell: Shell,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    submit(shell, "a")
    lose(shell)
    after(monkeypatch, RunStore, "adopt", lambda: shell.client.hset(KEY, "state", "running"))

    with pytest.raises(UserError, match=f"^run '{RUN}' was resumed by somebody else just now$"):
        resume(shell)

    assert shell.run.verdict("a#0") is not None
    assert shell.store.state(RUN) == "running"


def test_a_run_whose_last_rollouts_are_being_finished_is_not_resumed(shell: Shell) -> None:
    submit(shell, "a", "b")
    lose(shell, state="draining")
    shell.store.claim(RUN, "b#0", {"token": "t"})
    shell.client.hset(f"{KEY}:holders", "b#0", '{"token":"t"}')
    seconds, _ = shell.client.time()  # type: ignore[misc]
    shell.client.zadd(f"{KEY}:alive", {"b#0": int(seconds)})

    with pytest.raises(UserError, match=f"^rollouts of run {RUN} are still being finished; try again in a while$"):
        resume(shell)


@pytest.mark.parametrize("state", ["done", "cancelled", "draining", "half_submitted"])
def test_what_is_over_or_was_left_can_be_resumed(shell: Shell, state: str) -> None:
    submit(shell, "a", "b")
    lose(shell, state=state)

    assert resume(shell) == 0

    assert shell.out.splitlines()[0] == f"Run {RUN}: 2 rollouts, 0 are kept, folder {shell.run.path}"
    assert shell.store.state(RUN) == "running"
    assert shell.client.llen(QUEUE) == 2


@pytest.mark.parametrize("state", ["submitting", "running", "cancelling", "finalizing"])
def test_what_goes_on_is_not_resumed(shell: Shell, state: str) -> None:
    submit(shell, "a", "b")
    lose(shell, state=state)
    seconds, _ = shell.client.time()  # type: ignore[misc]
    shell.client.hset(KEY, "submitter_beat", int(seconds))

    with pytest.raises(UserError, match=f"^run {RUN} is still {state}; follow it with"):
        resume(shell)


def test_a_run_that_lacks_nothing_is_only_scored_again(shell: Shell) -> None:
    submit(shell, "a")
    shell.finish("a#0")
    shell.client.hset(KEY, "state", "done")
    shell.client.delete(QUEUE)

    assert resume(shell) == 0

    assert shell.client.llen(QUEUE) == 0
    (asked,) = shell.client.lrange("finalize", 0, -1)  # type: ignore[misc]
    assert json.loads(base64.b64decode(json.loads(asked)["body"]))[0] == [RUN]
    progress = shell.store.progress(RUN)
    assert progress is not None
    assert (progress.state, progress.committed, progress.pending) == ("running", 1, 0)


def test_a_folder_in_which_nothing_can_be_set_aside_is_named_and_the_run_given_free(
    shell: Shell,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    submit(shell, "a")
    lose(shell)

    def refuse(*_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "rename", refuse)

    with pytest.raises(UserError, match=f"^{shell.run.path} cannot be written: Read-only file system$"):
        resume(shell)

    assert shell.store.state(RUN) is None
    assert shell.run.verdict("a#0") is not None


def test_a_verdict_that_breaks_meanwhile_stops_a_resume_and_gives_the_run_free(
    shell: Shell,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    submit(shell, "a")
    lose(shell)
    result = shell.run.rollout("a#0") / "result.json"
    after(monkeypatch, submission_store, "reserve", lambda: result.write_text("{"))

    with pytest.raises(UserError, match=f"^{result} cannot be read: "):
        resume(shell)

    assert shell.store.state(RUN) is None
    assert result.exists()


def test_data_that_nobody_named_is_asked_for(shell: Shell) -> None:
    config = shell.config({"id": "a"})
    config = config.model_copy(update={"data": config.data.model_copy(update={"path": None})})

    with pytest.raises(UserError, match=r"^--data-path is missing: which benchmark file or tree\?$"):
        shell.call(run_actions.submit, config)


def test_a_run_that_nobody_named_gets_a_name_that_sorts_by_time(shell: Shell) -> None:
    assert submit(shell, "a", run_id=None) == 0
    assert submit(shell, "a", run_id=None) == 0

    names = sorted(path.name for path in (shell.folder / "results").iterdir())
    assert len(names) == 2
    for name in names:
        day, second, mode, own = name.split("-")
        assert (len(day), len(second), mode, len(own)) == (8, 6, "simulated", 4)
        assert (day + second).isdigit()


def test_a_run_is_where_it_was_begun_wherever_workers_are(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shell.folder)

    assert submit(shell, "a", output_dir="results") == 0

    assert shell.run.description.config().output_dir == shell.folder / "results"
    assert shell.client.hget(KEY, "folder") == str(shell.run.path)
    assert str(shell.run.path).startswith("/")


def test_what_is_stored_is_on_the_servers_disk_before_messages_are_sent(
    shell: Shell,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waited: list[Any] = []
    after(
        monkeypatch,
        StoredSubmission,
        "everything_stored",
        lambda: waited.append(commandstats(shell).get("cmdstat_waitaof")),
    )
    shell.client.config_set("appendonly", "yes")
    shell.client.config_resetstat()
    try:
        assert submit(shell, "a") == 0
    finally:
        shell.client.config_set("appendonly", "no")

    (answered,) = waited
    assert (answered["calls"], answered["failed_calls"]) == (1, 0)


def test_what_is_said_to_be_cancelled_is_on_the_servers_disk(shell: Shell) -> None:
    assert submit(shell, "a") == 0
    shell.client.config_set("appendonly", "yes")
    shell.client.config_resetstat()
    try:
        assert shell.call(run_actions.cancel, RUN, {}) == 0
        answered = commandstats(shell)["cmdstat_waitaof"]
    finally:
        shell.client.config_set("appendonly", "no")

    assert (answered["calls"], answered["failed_calls"]) == (1, 0)


def test_of_a_resumed_run_what_is_kept_and_what_came_since_is_committed(shell: Shell) -> None:
    submit(shell, "a", "b", "c")
    shell.finish("a#0")

    submission = resumed_submission(shell.run)

    assert (submission.total, submission.count_committed()) == (3, 1)
    shell.finish("b#0")
    assert (submission.total, submission.count_committed()) == (3, 2)


def test_what_was_spent_on_rollouts_that_are_tried_again_is_counted_once(shell: Shell) -> None:
    submit(shell, "a", "b", "c")
    spend(shell, "a#0", 1)
    spend(shell, "b#0", 2, 2, failure=FailureClass.VM_LOST)
    spend(shell, "c#0", 4, failure=FailureClass.MODEL_OVERLOAD)
    shell.client.hset(KEY, "state", "done")
    assert (cost(shell), resumed_submission(shell.run).spent) == (9, 9)

    resume(shell)
    begun = cost(shell)
    spend(shell, "b#0", 0.5)
    with_b = cost(shell)
    spend(shell, "c#0", 0.25, failure=FailureClass.VM_LOST)
    shell.client.hset(KEY, "state", "done")
    assert (begun, with_b, cost(shell), resumed_submission(shell.run).spent) == (9, 9.5, 9.75, 9.75)

    resume(shell)
    begun = cost(shell)
    spend(shell, "c#0", 0.25)
    assert (begun, cost(shell), progress_in_folder(shell.run).cost) == (9.75, 10, 10)
    assert [verdict.total_cost for verdict in shell.run.verdicts(["a#0", "b#0", "c#0"])] == [1, 4.5, 4.5]


def test_what_was_spent_before_a_resume_counts_for_its_limit(shell: Shell) -> None:
    submit(shell, "a", "b")
    spend(shell, "a#0", 4, failure=FailureClass.VM_LOST)
    spend(shell, "b#0", 5, failure=FailureClass.MODEL_OVERLOAD)
    shell.client.hset(KEY, "state", "done")
    resume(shell)
    shell.client.hset(KEY, "max_cost", "10")

    assert not spend(shell, "a#0", 1)

    assert shell.store.cancel(RUN).cancelled == 1
    assert cost(shell) == 10
    shell.client.hset(KEY, "state", "cancelled")
    assert resumed_submission(shell.run).spent == 10, "what was spent on a rollout that was then cancelled counts"


def test_what_cannot_be_read_of_what_was_set_aside_costs_nothing_that_is_known(shell: Shell) -> None:
    submit(shell, "a", "b")
    spend(shell, "a#0", 4, failure=FailureClass.VM_LOST)
    spend(shell, "b#0", 5, failure=FailureClass.VM_LOST)
    shell.client.hset(KEY, "state", "done")
    resume(shell)
    shell.client.hset(KEY, "state", "done")
    broken = shell.run.rollout("b#0") / "earlier-1" / "attempt-1" / "result.json"
    broken.write_text("{")

    assert resumed_submission(shell.run).spent == 4
    assert resume(shell) == 0
    assert cost(shell) == 4


def finish_unsettled(shell: Shell, rollout_id: str) -> Verdict:
    """An attempt ends while Redis is away, and its worker is stopped before the rollout is settled."""
    attempt = shell.run.begin_attempt(rollout_id, 1)
    verdict = Verdict(rollout_id, attempt, "failed", failure_class=FailureClass.MAX_TURNS, error="too long")
    shell.run.write_attempt(verdict)
    return verdict


def test_what_ended_without_being_settled_is_settled_by_a_resume(shell: Shell) -> None:
    submit(shell, "a", "b", "c")
    shell.finish("a#0")
    ended = finish_unsettled(shell, "b#0")
    shell.client.hset(KEY, "state", "draining")

    assert resume(shell) == 0

    assert shell.run.settled("b#0") == ended
    assert progress_in_folder(shell.run).committed == 2
    assert shell.client.smembers(f"{KEY}:pending") == {"c#0"}


def test_a_run_that_was_scored_before_and_then_ended_unsettled_is_scored_again(shell: Shell) -> None:
    submit(shell, "a")
    shell.run.evaluation.write_text("{}")
    ended = finish_unsettled(shell, "a#0")
    shell.client.hset(KEY, "state", "draining")

    assert resume(shell) == 0

    assert shell.run.settled("a#0") == ended
    assert shell.client.llen("finalize") == 1


@pytest.mark.parametrize("found", [True, False])
def test_of_two_verdicts_a_resume_keeps_the_one_that_was_settled_first(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, found: bool
) -> None:
    submit(shell, "a", "b")
    if found:
        finish_unsettled(shell, "a#0")
    shell.client.hset(KEY, "state", "draining")
    other = Verdict("a#0", 1, "completed", answer="42")

    def settle_and_go_on() -> None:
        shell.run.settle(other, written=False)
        if not found:
            finish_unsettled(shell, "a#0")

    after(monkeypatch, submission_store, "reserve", settle_and_go_on)

    assert resume(shell) == 0

    assert shell.run.settled("a#0") == other
    (kept,) = shell.store.verdicts(RUN)
    assert kept == other


def test_what_ends_while_a_resume_begins_is_settled_too(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    submit(shell, "a", "b")
    shell.client.hset(KEY, "state", "draining")
    after(monkeypatch, submission_store, "reserve", lambda: finish_unsettled(shell, "a#0"))

    assert resume(shell) == 0

    assert shell.run.settled("a#0") is not None
    assert shell.client.smembers(f"{KEY}:pending") == {"b#0"}


def commandstats(shell: Shell) -> Any:
    return shell.client.info("commandstats")


def test_a_run_is_said_to_be_where_it_is(shell: Shell) -> None:
    where = shell.folder / "[b]out[/x]"

    assert submit(shell, "a", output_dir=str(where)) == 0

    assert shell.out.splitlines()[0] == f"Run {RUN}: 1 rollouts, folder {where / RUN}"


def test_who_stops_looking_is_told_how_to_come_back(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped() -> None:
        raise KeyboardInterrupt

    assert submit(shell, "a") == 0
    after(monkeypatch, RunStore, "config", lambda: after(monkeypatch, RunStore, "progress", stopped))

    assert shell.call(run_actions.status, RUN, {}, follow=True) == INTERRUPTED

    assert shell.out == f"The run goes on. Come back with: rollouts watch {RUN}\n"
    assert shell.store.client.hget(KEY, "state") == "running"


def test_a_run_whose_folder_was_moved_is_looked_for_in_the_output_folder(shell: Shell) -> None:
    submit(shell, "a")
    lose(shell)
    moved = shell.folder / "elsewhere" / RUN
    moved.parent.mkdir()
    shell.run.path.rename(moved)

    assert shell.call(run_actions.status, RUN, {"output_dir": str(moved.parent)}) == 1

    assert shell.err.endswith(f"try them again with: rollouts resume {moved}\n")


REFUSAL = """
import sys
import rollout_tasks.cli.run_actions
print(sorted(name for name in ("celery", "kombu", "redis", "rich") if name in sys.modules))
"""


def test_what_talks_to_services_is_not_imported_for_a_refusal() -> None:
    done = subprocess.run(
        [sys.executable, "-c", REFUSAL], cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=120
    )

    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def interrupt() -> None:
    raise KeyboardInterrupt


def stopped(shell: Shell, capsys: pytest.CaptureFixture[str], command: Callable[[], object]) -> str:
    """A command is interrupted by Ctrl-C; returns what it says then."""
    capsys.readouterr()
    with pytest.raises(typer.Exit) as end:
        command()
    assert end.value.exit_code == INTERRUPTED
    out, err = capsys.readouterr()
    assert out == ""
    return err


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (run_actions.preflight, "check_items"),
        (submission_store, "reserve"),
        (StoredSubmission, "add_items"),
        (StoredSubmission, "wait_until_durable"),
    ],
)
def test_ctrl_c_before_the_first_message_leaves_nothing(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], owner: Any, name: str
) -> None:
    after(monkeypatch, owner, name, interrupt)

    assert stopped(shell, capsys, lambda: submit(shell, "a", "b")) == "Stopped before anything was begun.\n"

    assert shell.store.state(RUN) is None
    assert shell.client.smembers("runs:active") == set()
    assert shell.client.llen(QUEUE) == 0
    assert not shell.run.path.exists()


def test_ctrl_c_leaves_a_run_of_the_same_name_alone(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = shell.config({"id": "a"})

    def theirs() -> None:
        reserve(shell.store.client, RUN, config, "/theirs", 1, [QUEUE], token="theirs")
        raise KeyboardInterrupt

    after(monkeypatch, enqueue, "queues_of", theirs)

    assert stopped(shell, capsys, lambda: submit(shell, "a")) == "Stopped before anything was begun.\n"

    assert shell.client.hget(KEY, "folder") == "/theirs"


def test_ctrl_c_while_messages_are_sent_leaves_the_run_to_the_workers(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def sent() -> None:
        if shell.client.llen(QUEUE) == 1:
            raise KeyboardInterrupt

    after(monkeypatch, enqueue, "rollout_task", sent)

    assert stopped(shell, capsys, lambda: submit(shell, "a", "b", "c")) == (
        f"Stopped sending, but run {RUN} is stored with all its rollouts, and the workers go on with them: follow it with"
        f" rollouts watch {RUN}, or end it with rollouts cancel {RUN}\n"
    )

    assert shell.client.llen(QUEUE) == 1
    assert shell.store.state(RUN) == "running"
    assert shell.client.hget(KEY, "chord_spent") == "1"
    assert shell.client.scard(f"{KEY}:pending") == 3
    assert shell.run.path.is_dir()
    assert shell.call(run_actions.cancel, RUN, {}) == 0


def test_ctrl_c_while_a_resume_is_stored_leaves_the_run_to_be_resumed(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    submit(shell, "a", "b")
    lose(shell)
    with monkeypatch.context() as patched:
        after(patched, StoredSubmission, "add_items", interrupt)

        assert stopped(shell, capsys, lambda: resume(shell)) == (
            f"Stopped before any rollout of run {RUN} was sent; roll out what it lacks with: rollouts resume {shell.run.path}\n"
        )

    assert shell.store.state(RUN) is None
    assert resume(shell) == 0
    assert shell.client.llen(QUEUE) == 2


@pytest.mark.parametrize(("owner", "name", "says"), [(StoredSubmission, "add_items", "none of its rollouts was sent"),
                                                     (enqueue, "send_chord", "it has all rollouts")])  # fmt: skip
def test_ctrl_c_where_redis_is_lost_says_what_is_known(
    shell: Shell,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    owner: Any,
    name: str,
    says: str,
) -> None:
    def gone(*_: object) -> None:
        raise redis.ConnectionError("gone")

    def lost() -> None:
        monkeypatch.setattr(StoredSubmission, "everything_stored", gone)
        monkeypatch.setattr(StoredSubmission, "everything_sent", gone)
        raise KeyboardInterrupt

    after(monkeypatch, owner, name, lost)

    said = stopped(shell, capsys, lambda: submit(shell, "a"))

    assert said.startswith("Stopped while run night-1 was being s")
    assert says in said
    assert f"rollouts cancel {RUN}" in said
    assert said.count("\n") == 1
    assert shell.run.path.is_dir()


def test_a_long_submission_says_how_far_it_is(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(submission_progress, "LINE_SECONDS", 0.0)

    assert submit(shell, *(f"item-{number}" for number in range(120))) == 0

    said = shell.err.splitlines()
    for doing in ("checking items", "storing items", "storing rollouts", "sending rollouts"):
        assert [line for line in said if line.startswith(doing)] == [f"{doing}: 0 of 120", f"{doing}: 100 of 120"]


def test_on_a_terminal_a_long_submission_draws_a_bar(shell: Shell) -> None:
    program = """
import sys, time
from rollout_tasks.cli import submission_progress
submission_progress.SHOWN_AFTER_SECONDS = 0.0
with submission_progress.submitting() as count:
    for _ in count("storing items", range(201)):
        time.sleep(0.002)
"""
    master, slave = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=REPOSITORY, stderr=slave, env={**os.environ, "TERM": "xterm"}
    ) as process:
        os.close(slave)
        drawn = b""
        with suppress(OSError):  # the end of a terminal whose other side is closed
            while some := os.read(master, 4096):
                drawn += some
        assert process.wait() == 0
    os.close(master)
    assert b"Storing items" in drawn
    assert b"100/201" in drawn or b"200/201" in drawn


def overtaken(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, meanwhile: Callable[[], None]
) -> str:
    """A resume is overtaken by another one at its first call of a function; returns what it says then."""
    call, overtook = getattr(owner, name), []

    def called(*arguments: Any) -> Any:
        if not overtook:
            overtook.append(True)
            assert shell.call(run_actions.cancel, RUN, {}) == 0
            assert shell.store.state(RUN) == "cancelled"
            assert resume(shell) == 0
            meanwhile()
        return call(*arguments)

    monkeypatch.setattr(owner, name, called)
    with pytest.raises(UserError) as told:
        resume(shell)
    assert overtook
    return str(told.value)


def lost_two(shell: Shell) -> None:
    """A run that is over and lost both of its rollouts."""
    assert submit(shell, "a", "b") == 0
    lose(shell, "a#0", state="running")
    lose(shell, "b#0")


def test_a_resume_that_was_overtaken_moves_no_result_of_the_one_that_overtook_it(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost_two(shell)

    said = overtaken(shell, monkeypatch, RunFolder, "set_aside", lambda: shell.finish("b#0"))

    assert said == f"run {RUN} cannot be submitted any further: it has been submitted again meanwhile"
    settled = shell.run.settled("b#0")
    assert settled is not None
    assert settled.status == "completed"
    assert shell.store.state(RUN) == "running"


def test_a_resume_that_was_overtaken_forgets_only_itself(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it was about to move is gone, and the other one is still being stored."""
    lost_two(shell)

    said = overtaken(shell, monkeypatch, Path, "rename", lambda: shell.client.hset(KEY, "state", "submitting") and None)

    assert said.startswith(f"{shell.run.path} cannot be written: ")
    assert shell.store.state(RUN) == "submitting"
    assert shell.client.scard(f"{KEY}:pending") == 2
