"""Submissions that others took over meanwhile, and Ctrl-C pressed more than once: no folder of a run that goes on is removed."""

# ruff: noqa: F811 (the fixture `shell` is imported)

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest
import redis

from rollout_tasks.cli import run_actions
from rollout_tasks.errors import UserError
from rollout_tasks.runs import enqueue, submission_interrupted, submission_store, submit_to_workers
from rollout_tasks.runs.store import RunStore
from rollout_tasks.runs.submission_store import StoredSubmission, reserve
from tests.unit.runs.test_run_commands import Shell, shell  # noqa: F401 (a fixture)
from tests.unit.runs.test_submit import KEY, QUEUE, RUN, after, interrupt, lose, resume, stopped, submit

Prepare = Callable[[Shell], object]


def ctrl_c() -> None:
    signal.raise_signal(signal.SIGINT)


def adopt(shell: Shell) -> None:
    """The submitter was silent for so long that the workers took the run over."""
    shell.client.hset(KEY, "submitter_beat", 0)
    assert shell.store.adopt(RUN) == "running"


def cancel(shell: Shell) -> None:
    assert shell.store.cancel(RUN).left == 0


def resume_elsewhere(shell: Shell) -> None:
    """The submitter was silent for so long that somebody resumed the run, which the workers roll out now."""
    assert shell.store.forget(RUN, "submitting")
    stored = reserve(shell.store.client, RUN, shell.run.description.config(), str(shell.run.path), 1, [QUEUE])
    assert stored is not None
    stored.add_items(shell.run.description.items(), ["a#0"])
    assert stored.everything_sent()


FOLLOWED = (
    f"Stopped sending, but run {RUN} is stored with all its rollouts, and the workers go on with them: follow it with"
    f" rollouts watch {RUN}, or end it with rollouts cancel {RUN}\n"
)
CANCELLED = f"Stopped: run {RUN} was cancelled meanwhile; see rollouts status {RUN}\n"
RESUMED = f"Stopped: run {RUN} cannot be submitted any further: it has been submitted again meanwhile\n"


@pytest.mark.parametrize(("meanwhile", "said"), [(adopt, FOLLOWED), (cancel, CANCELLED), (resume_elsewhere, RESUMED)])
def test_ctrl_c_after_others_took_the_run_leaves_its_folder(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], meanwhile: Prepare, said: str
) -> None:
    def suspended() -> None:
        meanwhile(shell)
        raise KeyboardInterrupt

    after(monkeypatch, StoredSubmission, "wait_until_durable", suspended)

    assert stopped(shell, capsys, lambda: submit(shell, "a")) == said

    assert shell.run.description.items()
    assert shell.client.hget(KEY, "folder") == str(shell.run.path)


def test_ctrl_c_after_the_workers_took_a_resumed_run_says_that_they_go_on(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    submit(shell, "a", "b")
    lose(shell)

    def suspended() -> None:
        adopt(shell)
        raise KeyboardInterrupt

    after(monkeypatch, StoredSubmission, "wait_until_durable", suspended)

    assert stopped(shell, capsys, lambda: resume(shell)) == FOLLOWED


def test_ctrl_c_before_a_resume_has_begun_says_that_nothing_was_sent(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    submit(shell, "a", "b")
    lose(shell)
    with monkeypatch.context() as patched:
        patched.setattr(RunStore, "forget", lambda *_, **__: interrupt())

        said = stopped(shell, capsys, lambda: resume(shell))

    assert said == (
        f"Stopped before any rollout of run {RUN} was sent; roll out what it lacks with: rollouts resume {shell.run.path}\n"
    )
    assert shell.store.state(RUN) == "done"


@pytest.mark.parametrize(
    ("meanwhile", "state"), [(adopt, "running"), (cancel, "cancelled"), (resume_elsewhere, "running")]
)
def test_an_error_of_redis_after_others_took_the_run_leaves_its_folder(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, meanwhile: Prepare, state: str
) -> None:
    def lost() -> None:
        meanwhile(shell)
        raise redis.ConnectionError("gone")

    after(monkeypatch, StoredSubmission, "wait_until_durable", lost)

    with pytest.raises(UserError) as told:
        submit(shell, "a")

    assert shell.run.description.items()
    shown = str(shell.store.state(RUN))
    assert shown in {state, "cancelling"}
    assert str(told.value) == (
        f"Redis was lost while run {RUN} was being stored (gone), but others have the run by now, and it is {shown}: see"
        f" rollouts status {RUN}"
    )


def test_a_run_that_was_resumed_before_its_submitter_reserved_it_keeps_its_folder(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = shell.config({"id": "a"})
    after(
        monkeypatch,
        enqueue,
        "queues_of",
        lambda: reserve(shell.store.client, RUN, config, str(shell.run.path), 1, [QUEUE], token="theirs"),
    )

    with pytest.raises(UserError, match=f"^run '{RUN}' was resumed by somebody else just now$"):
        shell.call(run_actions.submit, config)

    assert shell.run.description.items()


def test_ctrl_c_in_a_run_that_was_cancelled_while_it_was_sent_says_so(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def cancelled() -> None:
        cancel(shell)
        raise KeyboardInterrupt

    after(monkeypatch, enqueue, "send_chord", cancelled)

    assert stopped(shell, capsys, lambda: submit(shell, "a")) == CANCELLED


def test_ctrl_c_in_a_run_of_which_redis_lost_a_part_says_when_it_can_be_resumed(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lost() -> None:
        shell.client.srem(f"{KEY}:pending", "a#0")
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        after(patched, enqueue, "send_chord", lost)

        assert stopped(shell, capsys, lambda: submit(shell, "a", "b")) == (
            f"Stopped: Redis has lost a part of run {RUN}; in 60 s complete it with rollouts resume {shell.run.path}, or end it"
            f" with rollouts cancel {RUN}\n"
        )

    with pytest.raises(UserError, match="is still submitting"):
        resume(shell)
    shell.client.hincrbyfloat(KEY, "submitter_beat", -60)
    assert resume(shell) == 0


def test_ctrl_c_where_redis_is_lost_says_when_the_run_can_be_resumed(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def gone(*_: object) -> None:
        raise redis.ConnectionError("gone")

    def lost() -> None:
        monkeypatch.setattr(StoredSubmission, "everything_stored", gone)
        raise KeyboardInterrupt

    after(monkeypatch, submission_store, "reserve", lost)

    said = stopped(shell, capsys, lambda: submit(shell, "a"))

    assert "once Redis is back, and not before 60 s from now, complete the run with rollouts resume " in said


def test_ctrl_c_when_all_is_sent_leaves_the_run(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    after(monkeypatch, submit_to_workers, "enqueue", interrupt)

    assert stopped(shell, capsys, lambda: submit(shell, "a")) == FOLLOWED

    assert shell.run.description.items()
    assert (shell.store.state(RUN), shell.client.llen(QUEUE)) == ("running", 1)


@pytest.mark.parametrize(
    ("owner", "first", "ending", "left"),
    [(enqueue, "send_chord", "hand_over", True), (StoredSubmission, "add_items", "undo", False)],
)
def test_a_second_ctrl_c_changes_nothing(
    shell: Shell,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    owner: object,
    first: str,
    ending: str,
    left: bool,
) -> None:
    after(monkeypatch, owner, first, ctrl_c)
    after(monkeypatch, submission_interrupted, ending, ctrl_c)

    said = stopped(shell, capsys, lambda: submit(shell, "a"))

    assert said == (FOLLOWED if left else "Stopped before anything was begun.\n")
    assert shell.run.path.exists() == left
    assert shell.store.state(RUN) == ("running" if left else None)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_ctrl_c_that_python_ignores_does_not_use_up_the_next(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Dropped:
        def __del__(self) -> None:
            ctrl_c()

    def drop_and_stop() -> None:
        dropped = Dropped()
        del dropped
        ctrl_c()

    after(monkeypatch, StoredSubmission, "add_items", drop_and_stop)

    assert stopped(shell, capsys, lambda: submit(shell, "a")) == "Stopped before anything was begun.\n"


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("cancelled", CANCELLED),
        ("cancelling", CANCELLED),
        ("finalizing", f"Stopped: run {RUN} is finalizing already; see rollouts status {RUN}\n"),
        ("done", f"Stopped: run {RUN} is done already; see rollouts status {RUN}\n"),
        ("running", FOLLOWED),
    ],
)
def test_ctrl_c_says_what_a_run_is_by_then(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], state: str, said: str
) -> None:
    def meanwhile() -> None:
        shell.client.hset(KEY, "state", state)
        raise KeyboardInterrupt

    after(monkeypatch, enqueue, "send_chord", meanwhile)

    assert stopped(shell, capsys, lambda: submit(shell, "a")) == said

    assert shell.client.hget(KEY, "chord_spent") == "1", "no chord counts messages that were not sent"
