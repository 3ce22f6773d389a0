"""The look at every active run: one process at a time, each run on its own, and what a dead worker left of a cancelled one."""

# ruff: noqa: F811 (the fixture `shell` is imported)

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from rollout_tasks.cli import run_actions
from rollout_tasks.errors import UserError
from rollout_tasks.execution import rollout
from rollout_tasks.execution.cancellation import cancel_run
from rollout_tasks.runs import reconcile as module
from rollout_tasks.runs.reconcile import reconcile_runs
from rollout_tasks.runs.store import RunStore, run_store
from rollout_tasks.runs.submission_store import reserve
from rollout_tasks.runs.verdict import Verdict
from tests.unit.runs.test_run_commands import Shell, shell  # noqa: F401 (a fixture)

LOCK = "reconcile:lock"
QUEUE = "rollout.simulated"


@pytest.fixture(autouse=True)
def fresh_store(shell: Shell) -> Iterator[None]:
    run_store.cache_clear()
    rollout._run_config.cache_clear()
    yield
    run_store.cache_clear()
    rollout._run_config.cache_clear()


def submit(shell: Shell, run_id: str, *names: str) -> None:
    shell.call(run_actions.submit, shell.config(*({"id": name} for name in names), run_id=run_id))
    shell.client.delete(QUEUE)


def test_what_is_lost_is_sent_again_at_the_second_look(shell: Shell) -> None:
    submit(shell, "r-1", "a", "b")

    assert reconcile_runs(cancel_run) == {"rollouts": 0, "finalized": 0}
    assert shell.client.smembers("{run:r-1}:suspects") == {"a#0", "b#0"}
    assert reconcile_runs(cancel_run) == {"rollouts": 2, "finalized": 0}

    sent = [json.loads(message)["headers"]["rollout"] for message in shell.client.lrange(QUEUE, 0, -1)]  # type: ignore[union-attr]
    assert sorted(sent) == ["a#0", "b#0"]
    assert shell.client.hget("{run:r-1}", "chord_spent") == "1"
    assert shell.client.keys("reconcile:*") == []
    assert reconcile_runs(cancel_run) == {"rollouts": 0, "finalized": 0}


def test_only_so_many_are_sent_again_at_a_time(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_AT_ONCE", 2)
    submit(shell, "r-1", "a", "b", "c")

    assert [reconcile_runs(cancel_run)["rollouts"] for _ in range(4)] == [0, 2, 1, 0]


def test_a_look_of_somebody_else_is_left_to_them(shell: Shell) -> None:
    submit(shell, "r-1", "a")
    shell.client.set(LOCK, "theirs", ex=30)

    assert reconcile_runs(cancel_run) == {}

    assert shell.client.get(LOCK) == "theirs"
    assert not shell.client.exists("{run:r-1}:suspects")


def test_a_lock_whose_answer_was_lost_is_held_all_the_same(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    submit(shell, "r-1", "a")
    set_ = redis.Redis.set

    def again(client: redis.Redis, *arguments: Any, **options: Any) -> Any:
        set_(client, *arguments, **options)
        return set_(client, *arguments, **options)

    monkeypatch.setattr(redis.Redis, "set", again)

    assert reconcile_runs(cancel_run) == {"rollouts": 0, "finalized": 0}
    assert shell.client.get(LOCK) is None


def test_a_look_that_took_too_long_is_left_to_who_has_begun_another(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    submit(shell, "r-1", "a")
    active = RunStore.active

    def slowly(store: RunStore) -> list[str]:
        shell.client.set(LOCK, "theirs", ex=30)
        return active(store)

    monkeypatch.setattr(RunStore, "active", slowly)

    assert reconcile_runs(cancel_run) == {}

    assert caplog.messages == ["another process has taken over the search for lost work; leaving it to that one"]
    assert shell.client.get(LOCK) == "theirs"
    assert not shell.client.exists("{run:r-1}:suspects")


def test_each_step_of_a_look_holds_the_lock_for_another_while(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    submit(shell, "r-1", "a")
    left: list[Any] = []
    adopt = RunStore.adopt

    def soon_over(store: RunStore, run_id: str) -> Any:
        left.append(shell.client.ttl(LOCK))
        shell.client.expire(LOCK, 3)
        return adopt(store, run_id)

    monkeypatch.setattr(RunStore, "adopt", soon_over)
    send_lost = module.Reconciliation._send_lost

    def look(reconciliation: Any, run_id: str) -> None:
        left.append(shell.client.ttl(LOCK))
        send_lost(reconciliation, run_id)

    monkeypatch.setattr(module.Reconciliation, "_send_lost", look)

    reconcile_runs(cancel_run)

    assert len(left) == 2
    assert all(20 < seconds <= 30 for seconds in left)


@pytest.mark.parametrize(
    "problem",
    [
        UserError("broken"),
        KeyError("broken"),
        ValueError("broken"),
        TypeError("broken"),
        OSError("broken"),
        redis.ResponseError("broken"),
    ],
)
@pytest.mark.parametrize("step", ["adopt", "items_of"])
def test_whatever_is_wrong_with_one_run_keeps_nobody_from_the_next(
    shell: Shell,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    problem: Exception,
    step: str,
) -> None:
    for run_id in ("r-1", "r-2"):
        submit(shell, run_id, "a")
    reconcile_runs(cancel_run)
    caplog.clear()
    call = getattr(RunStore, step)

    def broken(store: RunStore, run_id: str, *more: Any) -> Any:
        if run_id == "r-1":
            raise problem
        return call(store, run_id, *more)

    monkeypatch.setattr(RunStore, step, broken)

    assert reconcile_runs(cancel_run) == {"rollouts": 1, "finalized": 0}

    said = "cannot be checked" if step == "adopt" else "its lost rollouts cannot be sent again"
    assert [message for message in caplog.messages if "r-1: " in message][-1] == f"run r-1: {said}: {problem}"
    assert [json.loads(one)["headers"]["run"] for one in shell.client.lrange(QUEUE, 0, -1)] == ["r-2"]  # type: ignore[union-attr]
    assert shell.client.get(LOCK) is None


def test_a_run_that_loses_its_submitter_goes_on_and_that_is_said(
    shell: Shell, caplog: pytest.LogCaptureFixture
) -> None:
    submit(shell, "r-1", "a")
    shell.client.hset("{run:r-1}", mapping={"state": "submitting", "submitter_beat": 1})
    submit(shell, "r-2", "a")
    shell.client.hset("{run:r-2}", mapping={"state": "submitting", "submitter_beat": 1, "total": 2})

    reconcile_runs(cancel_run)

    assert caplog.messages == [
        "run r-1: its submitter is gone; the run is running now",
        "run r-2: its submitter is gone; the run is half-submitted now",
    ]
    assert [shell.store.state(run_id) for run_id in ("r-1", "r-2")] == ["running", "half_submitted"]
    assert not shell.client.exists("{run:r-2}:suspects")


@pytest.mark.parametrize(
    ("state", "beat", "asked"),
    [("running", None, 1), ("finalizing", "now", 0), ("finalizing", "silent", 1), ("draining", None, 1)],
)
def test_a_complete_run_that_nobody_finalises_is_asked_to_be(
    shell: Shell, state: str, beat: str | None, asked: int
) -> None:
    submit(shell, "night-1", "a")
    shell.finish("a#0")
    shell.client.hset("{run:night-1}", "state", state)
    if beat is not None:
        seconds, _ = shell.client.time()  # type: ignore[misc]
        shell.client.hset("{run:night-1}", "finalizer_beat", int(seconds) + 5 if beat == "now" else 1)

    assert reconcile_runs(cancel_run) == {"rollouts": 0, "finalized": asked}

    assert shell.client.llen("finalize") == asked


@pytest.mark.parametrize("state", ["done", "cancelled"])
def test_a_run_that_is_over_is_looked_at_no_more(shell: Shell, state: str) -> None:
    submit(shell, "r-1", "a")
    shell.client.hset("{run:r-1}", "state", state)
    shell.client.sadd("runs:active", "forgotten")

    assert reconcile_runs(cancel_run) == {"rollouts": 0, "finalized": 0}

    assert shell.store.active() == []
    assert not shell.client.exists("{run:r-1}:suspects")


def cancel_with_a_dead_worker(shell: Shell) -> None:
    """Two rollouts of a worker that died: one had its attempt's result written, the other had not."""
    submit(shell, "night-1", "a", "b", "c")
    for rollout_id in ("a#0", "b#0"):
        shell.store.claim("night-1", rollout_id, {"token": "dead", "message": "m"})
        shell.client.zadd("{run:night-1}:alive", {rollout_id: 1.0})
        shell.run.begin_attempt(rollout_id, 1)
    shell.run.write_attempt(Verdict("a#0", 1, "completed", answer="4", score=1.0))


def check_cancelled(shell: Shell) -> None:
    ended = {verdict.rollout_id: verdict for verdict in shell.store.verdicts("night-1")}
    assert {name: verdict.status for name, verdict in ended.items()} == {
        "a#0": "completed",
        "b#0": "cancelled",
        "c#0": "cancelled",
    }
    assert ended["a#0"].answer == "4"
    assert ended["b#0"].worker.startswith("cancelling on ")
    assert shell.run.verdict("a#0") == ended["a#0"]


def test_cancelling_takes_what_a_dead_worker_left_from_the_folder(shell: Shell) -> None:
    cancel_with_a_dead_worker(shell)

    assert shell.call(run_actions.cancel, "night-1", {}, as_json=True) == 0

    assert json.loads(shell.out) == {"run_id": "night-1", "cancelled": 2, "being_stopped": 0}
    check_cancelled(shell)


def test_what_cannot_be_cancelled_from_here_is_left_to_the_workers(shell: Shell) -> None:
    cancel_with_a_dead_worker(shell)
    away = shell.run.path.with_name("away")
    shell.run.path.rename(away)

    assert shell.call(run_actions.cancel, "night-1", {}, as_json=True) == 0
    assert json.loads(shell.out) == {"run_id": "night-1", "cancelled": 1, "being_stopped": 2}
    assert shell.client.llen("finalize") == 0

    away.rename(shell.run.path)
    assert reconcile_runs(cancel_run) == {"rollouts": 0, "finalized": 1}
    check_cancelled(shell)


def test_the_lock_ends_by_itself_from_the_beginning(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    active, left = RunStore.active, []

    def first(store: RunStore) -> list[str]:
        left.append(shell.client.ttl(LOCK))
        return active(store)

    monkeypatch.setattr(RunStore, "active", first)

    reconcile_runs(cancel_run)

    assert [0 < seconds <= 30 for seconds in left] == [True]


def test_each_part_that_is_compared_holds_the_lock_for_another_while(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit(shell, "r-1", "a")
    reconcile_runs(cancel_run)
    send_lost, send_again, left = module.Reconciliation._send_lost, module.Reconciliation._send_again, []

    def soon_over(reconciliation: Any, run_id: str) -> None:
        shell.client.expire(LOCK, 3)
        send_lost(reconciliation, run_id)

    def look(reconciliation: Any, run_id: str, names: list[str]) -> int:
        left.append(shell.client.ttl(LOCK))
        return send_again(reconciliation, run_id, names)

    monkeypatch.setattr(module.Reconciliation, "_send_lost", soon_over)
    monkeypatch.setattr(module.Reconciliation, "_send_again", look)

    assert reconcile_runs(cancel_run)["rollouts"] == 1
    assert [20 < seconds <= 30 for seconds in left] == [True]


@pytest.mark.parametrize("state", ["draining", "cancelling", "finalizing", "submitting"])
def test_only_what_a_running_run_lost_is_sent_again(shell: Shell, state: str) -> None:
    submit(shell, "r-1", "a")
    seconds, _ = shell.client.time()  # type: ignore[misc]
    shell.client.hset("{run:r-1}", mapping={"state": state, "submitter_beat": int(seconds)})

    assert [reconcile_runs(lambda *_: None)["rollouts"] for _ in range(3)] == [0, 0, 0]

    assert not shell.client.exists("{run:r-1}:suspects")
    assert shell.client.llen(QUEUE) == 0


def test_what_a_killed_look_left_hides_no_loss_and_makes_none(shell: Shell) -> None:
    submit(shell, "r-1", "a", "b")
    for looks in ([0], [1]):
        shell.client.sadd("reconcile:messages", "r-1 a#0")
        shell.client.sadd("{run:r-1}:suspects_now", "b#0")
        shell.store.claim("r-1", "b#0", {"token": "t"})
        assert [reconcile_runs(cancel_run)["rollouts"]] == looks

    (sent,) = shell.client.lrange(QUEUE, 0, -1)  # type: ignore[misc]
    assert json.loads(sent)["headers"]["rollout"] == "a#0"


def test_a_run_that_does_not_say_its_queues_has_its_messages_in_those_that_are_known(shell: Shell) -> None:
    shell.call(run_actions.submit, shell.config({"id": "a"}, run_id="r-1"))
    shell.client.hset("{run:r-1}", "queues", "")

    assert [reconcile_runs(cancel_run)["rollouts"] for _ in range(3)] == [0, 0, 0]


@pytest.mark.parametrize("left", ["gone", "over"])
def test_a_run_that_is_resumed_during_the_look_stays_one_that_is_looked_after(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, left: str
) -> None:
    submit(shell, "r-1", "a")
    if left == "gone":
        shell.store.forget("r-1", "running")
        shell.client.sadd("runs:active", "r-1")
    else:
        shell.client.hset("{run:r-1}", "state", "done")
    progress = RunStore.progress

    def resumed_meanwhile(store: RunStore, run_id: str) -> object:
        found = progress(store, run_id)
        store.forget(run_id, "done")
        assert reserve(store.client, run_id, shell.config({"id": "a"}), "/f", 1) is not None
        return found

    monkeypatch.setattr(RunStore, "progress", resumed_meanwhile)

    reconcile_runs(cancel_run)

    assert shell.store.active() == ["r-1"]


def test_a_run_that_is_gone_is_not_brought_back_by_the_wish_for_a_report(shell: Shell) -> None:
    shell.store.finalize_by_last_commit("r-1")

    assert shell.client.keys("{run:r-1}*") == []
